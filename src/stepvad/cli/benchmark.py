"""stepvad benchmark: data to measure on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.compare import compare
from stepvad.cli.options import ContactSheet, DataSeed
from stepvad.cli.reproduce import reproduce
from stepvad.cli.terminal import check_output, progress_bars

benchmark = typer.Typer(
    name="benchmark",
    no_args_is_help=True,
    help="Build data sets, compare methods and reproduce the paper.",
)


@benchmark.callback()
def _group() -> None:
    """Build data sets, compare methods and reproduce the paper."""


@benchmark.command()
def walkers(
    directory: Annotated[Path, typer.Argument(help="Directory to write the data set to.")],
    *,
    train_clips: Annotated[int, typer.Option(min=0, help="Clips of normal motion to fit on.")] = 20,
    test_clips: Annotated[int, typer.Option(min=0, help="Clips with anomalies to measure.")] = 14,
    seed: DataSeed = 0,
    contact_sheet: ContactSheet = None,
) -> None:
    """Write a small synthetic data set: people who walk and stand, and some who act abnormally.

    Ready to fit and evaluate:

        stepvad benchmark walkers people

    In six of seven test clips someone runs, falls, cycles, walks backwards, crouches or fights.
    The layout is that of ShanghaiTech: pose/train, pose/test, gt/test_frame_mask; gt/classes.csv
    lists the class of each anomaly.
    """
    from stepvad.evaluation.walkers import write_dataset

    if contact_sheet is not None:
        from stepvad.evaluation.walkers.sheet import strips
        from stepvad.plots.contact_sheet import draw_contact_sheet

        check_output(contact_sheet)
        draw_contact_sheet(strips(seed=seed), contact_sheet)
    with progress_bars() as report:
        write_dataset(
            directory, seed=seed, train_clips=train_clips, test_clips=test_clips, report=report
        )
    typer.echo(directory)


benchmark.command()(compare)
benchmark.command()(reproduce)
