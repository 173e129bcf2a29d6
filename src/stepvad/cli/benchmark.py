"""stepvad benchmark: data to measure on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepvad.cli.terminal import progress_bars

benchmark = typer.Typer(no_args_is_help=True, help="Data to measure on.")


@benchmark.callback()
def _group() -> None:
    """Data to measure on."""


@benchmark.command()
def walkers(
    directory: Annotated[Path, typer.Argument(help="Where to write the data set.")],
    *,
    train_clips: Annotated[int, typer.Option(min=0, help="Clips of normal motion to fit on.")] = 20,
    test_clips: Annotated[int, typer.Option(min=0, help="Clips with anomalies to measure.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same files.")] = 0,
) -> None:
    """Write a small synthetic data set: people who walk and stand, and some who run or fall.

    To fit and measure on at once:

        stepvad benchmark walkers people

    It is laid out as ShanghaiTech is: pose/train, pose/test, gt/test_frame_mask.
    """
    from stepvad.benchmark.walkers import write_dataset

    with progress_bars() as report:
        write_dataset(
            directory, seed=seed, train_clips=train_clips, test_clips=test_clips, report=report
        )
    typer.echo(directory)
