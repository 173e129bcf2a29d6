"""stepvad archive: score stored poses, compare models on them, and count them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.options import ExecutorName, FpsOption, RuntimeName
from stepvad.cli.terminal import AsJson, print_json, print_table, progress_bars, say
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.archive.diff import Changed, Difference, Side
    from stepvad.archive.inventory import CameraFootage, ScoreCoverage

archive = typer.Typer(
    name="archive", no_args_is_help=True, help="Score stored poses, compare models, show contents."
)

ScoresArgument = Annotated[
    str, typer.Argument(help="Scores written by `archive score`: a path or URL.")
]
ThresholdOption = Annotated[float | None, typer.Option(help="Threshold for all cameras.")]
CalibrationOption = Annotated[Path | None, typer.Option(help="Calibration file of the model.")]

POSES = ("camera", "from", "to", "files", "MB")
SCORES = ("scores", "model", "runtime", "last run", "shards", "windows", "files failed")
CHANGES = ("change", "date", "camera", "clip", "from", "to", "peak", "tracks")


@archive.callback()
def _group() -> None:
    """Stored poses in Parquet: score them, compare two models over them, see what is there."""


@archive.command(no_args_is_help=True)
def score(
    poses: Annotated[str, typer.Argument(help="Poses: a directory, a file or a URL.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="Output for the scores: a path or URL.")
    ],
    model: Annotated[Path, typer.Option("-m", "--model", help="A model file.")],
    *,
    jobs: Annotated[
        int, typer.Option(min=1, help="Shards to score in parallel, one core each.")
    ] = 1,
    executor: ExecutorName = "processes",
    runtime: RuntimeName = "auto",
    energies: Annotated[
        bool, typer.Option("--energies", help="Also keep the energy at each noise scale.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Treat poses of the same name and size as unchanged.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score an archive of poses, resuming where an earlier run stopped.

        stepvad archive score poses -o scores --model model.safetensors --jobs 4

    Poses are track files in directories like date=2026-05-01/camera=yard, or any others; each score
    file goes to the same directory below SCORES. Existing scores of the same poses and model are
    kept. Unreadable poses do not stop the run: they are listed at the end, and the command fails.

    The ray executor uses the cluster that RAY_ADDRESS names, otherwise this machine only. All
    machines of a cluster must see POSES, SCORES and MODEL in the same place.
    """
    from stepvad.archive import scoring

    try:
        with progress_bars() as report:
            summary = scoring.score(
                poses,
                output,
                model,
                scoring.ScoreOptions(
                    runtime=runtime, energies=energies, quick=quick, jobs=jobs, executor=executor
                ),
                report=report,
            )
    except KeyboardInterrupt:
        say("interrupted: finished scores are kept; repeat the command to resume")
        raise typer.Exit(130) from None
    if as_json:
        print_json(asdict(summary))
    else:
        columns = ("shards", "kept", "windows", "scored now", "files failed")
        row = [summary.shards, summary.kept, summary.windows, summary.scored, len(summary.failed)]
        print_table(output, columns, [[f"{number:,}" for number in row]])
    for warning in summary.warnings:
        say(f"warning: {warning}")
    for name, reason in summary.failed.items():
        say(f"failed: {name}: {reason}")
    if summary.failed:
        raise typer.Exit(1)


@archive.command(no_args_is_help=True)
def diff(
    old: ScoresArgument,
    new: ScoresArgument,
    *,
    old_threshold: ThresholdOption = None,
    new_threshold: ThresholdOption = None,
    old_calibration: CalibrationOption = None,
    new_calibration: CalibrationOption = None,
    fps: FpsOption = None,
    within: Annotated[
        float, typer.Option(min=0, help="Largest distance in seconds between matching events.")
    ] = 3.0,
    as_json: AsJson = False,
) -> None:
    """Show which events a new model gains and loses on an archive.

    Give each model a threshold, or a calibration, which has one per camera:

        stepvad archive diff scores-a scores-b --old-threshold 4 --new-threshold 3.5

        stepvad archive diff scores-a scores-b --old-calibration a.calibration.json
        --new-calibration b.calibration.json

    Events of the same clip no farther apart than --within count as the same. Clips that only one
    model scored are not compared.
    """
    from stepvad.archive.diff import compare

    sides = (
        _side("old", old, old_threshold, old_calibration),
        _side("new", new, new_threshold, new_calibration),
    )
    with progress_bars() as report:
        found = compare(*sides, fps=fps, within_s=within, report=report)
    if as_json:
        print_json(asdict(found))
    else:
        _show(found)


@archive.command(no_args_is_help=True)
def info(
    places: Annotated[list[str], typer.Argument(help="Poses and their scores, in any order.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show the contents of an archive: poses by camera, scores by model, and how much is scored.

    stepvad archive info poses scores-a scores-b
    """
    from stepvad.archive import inventory

    found = inventory.read(places)
    if as_json:
        print_json(asdict(found))
        return
    if found.poses:
        print_table("poses", POSES, [*map(_footage_row, found.poses)])
    if found.scores:
        print_table("scores", SCORES, [*map(_scored_row, found.scores)])


def _footage_row(line: CameraFootage) -> list[str]:
    size = f"{line.bytes / 1e6:,.1f}"
    return [line.camera, line.first_date, line.last_date, f"{line.files:,}", size]


def _scored_row(one: ScoreCoverage) -> list[str]:
    return [
        one.place,
        f"{one.model} {one.model_sha256[:12]}",
        one.engine,
        one.state,
        f"{one.shards:,}" + ("" if one.of is None else f" of {one.of:,}"),
        f"{one.windows:,}",
        f"{one.failed:,}",
    ]


def _side(name: str, scores: str, threshold: float | None, calibration: Path | None) -> Side:
    from stepvad.archive.diff import Side
    from stepvad.archive.storage import Directory

    if threshold is not None and calibration is None:
        return Side.by_threshold(Directory.at(scores), threshold)
    if calibration is not None and threshold is None:
        return Side.by_calibration(Directory.at(scores), calibration)
    raise StepvadError(
        f"expected either --{name}-threshold or --{name}-calibration, got "
        + ("neither" if threshold is None else "both"),
        hint="run stepvad calibrate to write a threshold next to the model",
    )


def _show(found: Difference) -> None:
    columns = ("camera", "clips", "old events", "new events", "gained", "lost")
    rows = [
        [line.camera, *(f"{n:,}" for n in (line.clips, line.old, line.new, line.gained, line.lost))]
        for line in found.lines
    ]
    print_table("events of both models", columns, rows)
    if found.changed:
        print_table("changes", CHANGES, [*map(_row, found.changed)])
    for side, number in (("old", found.only_old), ("new", found.only_new)):
        if number:
            say(f"clips that only the {side} model scored, not compared: {number:,}")


def _row(change: Changed) -> list[str]:
    event = change.event
    return [
        change.kind,
        change.date,
        change.camera,
        change.clip,
        f"{event.first_s:.1f} s",
        f"{event.last_s:.1f} s",
        f"{event.peak:.2f}",
        ", ".join(map(str, event.tracks)),
    ]
