"""stepvad benchmark: data to measure on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from stepvad.cli.terminal import AsJson, print_json, print_table, progress_bars

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


@benchmark.command()
def mocap(
    directory: Annotated[Path, typer.Argument(help="Where to write the data set.")],
    *,
    split: Annotated[int, typer.Option(min=1, max=2, help="Whose motions are tested on.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same files.")] = 0,
    size: Annotated[Literal["full", "small"], typer.Option(help="How many clips.")] = "full",
    archive: Annotated[
        Path | None, typer.Option(help="CMU's motions, if not below STEPVAD_DATA.")
    ] = None,
    sheet: Annotated[Path | None, typer.Option(help="Draw some events into this PNG.")] = None,
) -> None:
    """Write CMU's motion capture as virtual cameras see it, with known truth.

    Nobody who is fitted on is tested on; the two splits swap them:

        stepvad benchmark mocap mocap1 --split 1

    It is laid out as ShanghaiTech is, with the class of each event in gt/events.csv; clips to
    choose settings with are in DIRECTORY/validation.
    """
    from stepvad.benchmark.mocap.dataset import SIZES, make
    from stepvad.benchmark.mocap.sheet import draw_sheet
    from stepvad.benchmark.mocap.writing import write_dataset

    with progress_bars() as report:
        made = make(
            split=1 if split == 1 else 2,
            seed=seed,
            size=SIZES[size],
            archive=archive,
            report=report,
        )
        write_dataset(made, directory)
    if sheet is not None:
        draw_sheet(made, sheet)
    typer.echo(directory)


@benchmark.command()
def statistics(
    directory: Annotated[Path, typer.Argument(help="A data set with pose/train and pose/test.")],
    *,
    as_json: AsJson = False,
) -> None:
    """What a data set is like: people, tracks, confidence, and how long its events last.

    Of any data set that evaluate reads:

        stepvad benchmark statistics mocap1
    """
    from stepvad.benchmark.datasets import open_dataset
    from stepvad.benchmark.mocap.writing import read_events
    from stepvad.benchmark.statistics import describe, describe_events

    dataset = open_dataset(directory)
    test = [clip for clip, _ in dataset.test_clips()]
    parts = {"train": describe(dataset.train_clips()), "test": describe(test)}
    events = describe_events(test, read_events(directory))
    if as_json:
        named = {kind: asdict(found) for kind, found in events.items()}
        print_json({**{part: asdict(found) for part, found in parts.items()}, "events": named})
        return
    rows = [[part, *_cells(asdict(found))] for part, found in parts.items()]
    columns = [name.replace("_", " ") for name in asdict(parts["test"])]
    cells = [list(row) for row in zip(columns, *(row[1:] for row in rows), strict=True)]
    print_table(dataset.name, ("", *parts), cells)
    print_table(
        "events",
        ("class", "events", "median s", "frames"),
        [[kind, *_cells(asdict(found))] for kind, found in events.items()],
    )


def _cells(values: dict[str, object]) -> list[str]:
    """Numbers for a table: whole ones with commas, others with three digits."""
    return [
        f"{value:,}"
        if isinstance(value, int)
        else " ".join(f"{part:.3g}" for part in value)
        if isinstance(value, tuple)
        else f"{value:.3f}"
        for value in values.values()
    ]
