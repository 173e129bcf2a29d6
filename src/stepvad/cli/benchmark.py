"""stepvad benchmark: data to measure on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.compare import compare
from stepvad.cli.options import ContactSheet, DataSeed
from stepvad.cli.pictures import PICTURES
from stepvad.cli.promises import promises
from stepvad.cli.reproduce import reproduce
from stepvad.cli.runtimes import runtimes
from stepvad.cli.studies import study
from stepvad.cli.terminal import AsJson, check_output, print_json, print_table, progress_bars

if TYPE_CHECKING:
    from stepvad.evaluation.statistics import Statistics

COUNTS = ("clips", "frames", "tracks", "poses", "windows")

benchmark = typer.Typer(
    no_args_is_help=True, help="Build data sets, compare methods and reproduce the paper."
)


@benchmark.callback()
def _group() -> None:
    """Build data sets, compare methods and reproduce the paper."""


benchmark.command()(runtimes)


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
benchmark.command()(study)
for picture in PICTURES:
    benchmark.command()(picture)
benchmark.command()(promises)
benchmark.command()(reproduce)


@benchmark.command()
def statistics(
    data: Annotated[
        Path,
        typer.Argument(
            help="Data set: poses under pose and labels under gt, trajectories, or box tracks."
        ),
    ],
    *,
    window: Annotated[int, typer.Option(min=1, help="Frames in a window.")] = 12,
    as_json: AsJson = False,
) -> None:
    """Describe a data set: people, tracks, confidence, covered frames, anomalies.

    stepvad benchmark statistics people
    """
    from stepvad.evaluation.datasets import open_dataset
    from stepvad.evaluation.statistics import describe, without_labels

    dataset = open_dataset(data)
    train = describe(without_labels(dataset.train_clips()), window=window)
    test = describe(dataset.test_clips(), window=window)
    if as_json:
        print_json({"train": asdict(train), "test": asdict(test)})
        return
    lines = zip(_lines(train), _lines(test), strict=True)
    rows = [[words, in_train, in_test] for (words, in_train), (_, in_test) in lines]
    print_table(dataset.name, ["", "train", "test"], rows)
    events = [
        [name, *(f"{n:,}" for n in (c.events, c.frames, c.shortest, c.median, c.longest))]
        for name, c in test.classes.items()
    ]
    if events:
        columns = ["class", "events", "frames", "shortest", "median", "longest"]
        print_table("anomalies (frames)", columns, events)


def _lines(part: Statistics) -> list[tuple[str, str]]:
    """Labels and values of one split's table; the same rows for every split."""
    shares = [*part.people, 0.0, 0.0, 0.0, 0.0]  # padded, if no frame shows four people
    people = dict(
        zip(("0", "1", "2", "3", "4 or more"), [*shares[:4], sum(shares[4:])], strict=True)
    )
    length = "  ".join(f"{n:,.0f}" for n in part.track_length)
    return [
        *((name, f"{getattr(part, name):,}") for name in COUNTS),
        *((f"people in a frame: {n} (%)", f"{100 * share:.1f}") for n, share in people.items()),
        ("track length: 10, 50, 90 % (frames)", length),
        *(
            (f"confidence from {n / 10:.1f} to {(n + 1) / 10:.1f} (%)", f"{100 * share:.1f}")
            for n, share in enumerate(part.confidence)
        ),
        ("confidence: mean", f"{part.confidence_mean:.3f}"),
        ("confidence: correlation with the next frame", f"{part.confidence_correlation:.3f}"),
        ("confidence: the same of a pose's mean", f"{part.pose_confidence_correlation:.3f}"),
        ("frames with a score (%)", f"{100 * part.covered:.1f}"),
        ("abnormal frames (%)", f"{100 * part.abnormal:.1f}"),
    ]
