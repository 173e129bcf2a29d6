"""stepvad recalibrate: update thresholds with the events marked as normal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepvad.cli.calibrated import calibration_of
from stepvad.cli.engine import load_detector
from stepvad.cli.poses import read_poses, read_training_poses
from stepvad.cli.terminal import check_fleet, check_output, notes_of, progress_bars, say
from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.calibration import Calibration
    from stepvad.calibration.marks import Marks
    from stepvad.detector import Detector

Ids = Annotated[list[str] | None, typer.Option(help="Id of an event that was normal; repeatable.")]
Unmarked = Annotated[
    list[str] | None, typer.Option(help="Id of an event that was not normal after all; repeatable.")
]
RecalibratedSite = Annotated[
    Path | None,
    typer.Option(
        "--site",
        metavar="SITE.toml|DATA",
        help="Use the marks of a site, given by its settings or data.",
    ),
]

RecalibratedFleet = Annotated[
    Path | None,
    typer.Option("--fleet", metavar="FLEET.toml", help="Use the marks of a fleet."),
]


def recalibrate(
    events: Annotated[
        Path,
        typer.Argument(
            metavar="EVENTS|MODEL",
            help="Events as JSON lines, from `score --events`; with --site, the model.",
        ),
    ],
    *,
    site: RecalibratedSite = None,
    fleet: RecalibratedFleet = None,
    normal: Ids = None,
    not_normal: Unmarked = None,
    model: Annotated[Path | None, typer.Option(help="Model file, if it has moved.")] = None,
    poses: Annotated[
        list[Path] | None, typer.Option(help="Pose files, if they have moved.")
    ] = None,
    refit: Annotated[
        list[Path] | None,
        typer.Option(help="Training poses: fit a new model on them and the marked events."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="With --refit: the model file to write.")
    ] = None,
) -> None:
    """Update thresholds from events marked as normal; their poses join the normal set.

    Events that operators marked on a site's page, or with `stepvad events mark`:

        stepvad recalibrate model.safetensors --site site.toml

    Events of a fleet; restart its workers, one by one, to apply the new thresholds:

        stepvad recalibrate model.safetensors --fleet fleet.toml

    Events of pose files, by their ids in the event file:

        stepvad score model.safetensors tuesday/ --events events.jsonl

        stepvad recalibrate events.jsonl --normal tuesday-4-1200 --normal tuesday-9-3310

    The calibration next to the model counts them from now on and raises its thresholds where
    needed. Their poses are kept next to the model, in model.normal/, one file per event.

    If one kind of motion keeps raising alerts, refit a model on it:

        stepvad recalibrate events.jsonl --refit monday/ -o better.safetensors
    """
    if (refit is None) != (output is None):
        raise StepvadError(
            "--refit: expected training poses and -o MODEL, got one of the two",
            hint="stepvad recalibrate events.jsonl --refit TRAINING_POSES -o better.safetensors",
        )
    if site is None and fleet is None:
        where, detector, marks = _of_file(events, model, poses, normal or (), not_normal or ())
    elif normal or not_normal or poses or model or (site and fleet):
        raise StepvadError(
            "--site, --fleet: expected one of them and no other marks or poses, got more",
            hint="mark events with: stepvad events mark ID, or on the page",
        )
    else:
        where, detector = events, load_detector(events)
        sha256 = detector.model.sha256
        marks = _of_fleet(fleet, sha256) if fleet is not None else _of_site(site, sha256)
    kept = _keep(where, marks)
    _follow(where, detector.model.sha256, marks)
    if refit is not None and output is not None:
        _refit(detector, refit, kept, output)


def _of_fleet(fleet: Path, sha256: str) -> Marks:
    check_fleet()
    import asyncio

    from stepvad.fleet.events import service
    from stepvad.fleet.settings import load

    return asyncio.run(service.marks_of(load(fleet), sha256))


def _of_site(site: Path | None, sha256: str) -> Marks:
    from stepvad.settings.file import data_of
    from stepvad.site.marks import marks_of

    with notes_of("stepvad.site"):
        return marks_of(data_of(site or Path()), sha256)


def _of_file(
    events: Path,
    model: Path | None,
    poses: Sequence[Path] | None,
    normal: Sequence[str],
    not_normal: Sequence[str],
) -> tuple[Path, Detector, Marks]:
    """The model's path, the model, and the marks on the events in a file."""
    from stepvad.formats import eventlines

    found = eventlines.read(events)
    chosen = eventlines.chosen(found, normal, events)
    eventlines.chosen(found, not_normal, events)
    where = model if model is not None else eventlines.model_of(found, events)
    detector = load_detector(where)
    paths = poses or [Path(path) for event in chosen[:1] for path in event.poses]
    with progress_bars() as report:
        clips = read_poses(paths if chosen else (), "auto", report)
        return where, detector, eventlines.marks(chosen, not_normal, clips, detector.config)


def _keep(model: Path, marks: Marks) -> Path:
    from stepvad.formats import normal_set

    kept = normal_set.beside(model)
    normal_set.update(kept, marks.clips, marks.not_normal)
    if marks.clips:
        say(f"written: {kept}, of {len(marks.clips)} events")
    return kept


def _follow(model: Path, sha256: str, marks: Marks) -> None:
    from stepvad.calibration import file
    from stepvad.calibration.marks import recalibrate

    before = calibration_of(model, sha256)
    if before is None or not (marks.normal or marks.not_normal):
        return
    after = recalibrate(before, marks)
    file.write(after, file.beside(model))
    for sentence in _changes(before, after):
        typer.echo(sentence)


def _changes(before: Calibration, after: Calibration) -> Iterator[str]:
    yield f"events marked as normal: {len(after.marked)}"
    yield f"threshold {before.threshold.value:.2f} -> {after.threshold.value:.2f}"
    for camera, threshold in after.cameras.items():
        was = before.cameras.get(camera, before.threshold).value
        yield f"{camera}: threshold {was:.2f} -> {threshold.value:.2f}"


def _refit(detector: Detector, training: Sequence[Path], kept: Path, output: Path) -> None:
    from stepvad.calibration.marks import refit

    check_output(output)
    with progress_bars() as report:
        marked = [*read_poses([kept], "auto", report)]
        clips = read_training_poses(training, "auto", report)
        made = refit(detector, clips, marked, report=report)
    made.save(output)
    say(f"written: {output}; its scores differ: calibrate it with normal footage")
