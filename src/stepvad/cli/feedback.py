"""stepvad feedback: alerts that were normal, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from stepvad.cli.calibrated import calibration_of
from stepvad.cli.engine import load_detector
from stepvad.cli.poses import read_poses, read_training_poses
from stepvad.cli.terminal import check_output, progress_bars, say
from stepvad.errors import StepvadError
from stepvad.progress import Report

if TYPE_CHECKING:
    from stepvad.calibration import Calibration, Marked
    from stepvad.detector import Detector
    from stepvad.formats.eventlines import FoundEvent
    from stepvad.poses import Clip

Ids = Annotated[
    list[str] | None, typer.Option(help="An event that was normal; as often as needed.")
]
Unmarked = Annotated[list[str] | None, typer.Option(help="An event that was not normal after all.")]


Site = Annotated[
    Path | None,
    typer.Option(
        "--site", metavar="SITE.toml|DATA", help="Take the marks of a site: its settings or data."
    ),
]


def feedback(
    events: Annotated[
        Path,
        typer.Argument(
            metavar="EVENTS|MODEL",
            help="Events as JSON lines, of `score --events`; with --site the model.",
        ),
    ],
    *,
    site: Site = None,
    normal: Ids = None,
    not_normal: Unmarked = None,
    model: Annotated[Path | None, typer.Option(help="The model, if it has moved.")] = None,
    poses: Annotated[list[Path] | None, typer.Option(help="The poses, if they have moved.")] = None,
    refit: Annotated[
        list[Path] | None,
        typer.Option(help="Training poses: fit a model anew on them and the marked events."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="With --refit: the model to write.")
    ] = None,
) -> None:
    """Say which events were normal: thresholds follow, and their poses join the normal set.

    Ids are in the file of events:

        stepvad score model.safetensors tuesday/ --events events.jsonl

        stepvad feedback events.jsonl --normal tuesday-4-1200 --normal tuesday-9-3310

    The calibration beside the model counts them from now on, and its thresholds rise where they
    must. Their poses are kept beside the model, in model.normal/, one file for each event.

    What operators marked on the page of a site, or with `stepvad events mark`:

        stepvad feedback model.safetensors --site site.toml

    Where one kind of motion alerts again and again, let a model learn it:

        stepvad feedback events.jsonl --refit monday/ -o better.safetensors
    """
    from stepvad.formats import eventlines

    if (refit is None) != (output is None):
        raise StepvadError(
            "--refit: expected training poses and -o MODEL, got one of the two",
            hint="stepvad feedback events.jsonl --refit TRAINING_POSES -o better.safetensors",
        )
    if site is not None:
        if normal or not_normal or poses or model:
            raise StepvadError(
                "--site: expected the marks and poses of the site, got others beside them",
                hint="mark events with: stepvad events mark ID, or on the page",
            )
        where, detector = events, load_detector(events)
        marks = _site_marks(site, detector.model.sha256)
    else:
        found = eventlines.read(events)
        known = _known(found, [*(normal or ()), *(not_normal or ())], events)
        where = model if model is not None else _model(found, events)
        detector = load_detector(where)
        chosen = [known[name] for name in normal or ()]
        with progress_bars() as report:
            clips = _marked_clips(chosen, poses, detector, report)
        marks = Marks({one.id: _alert(one) for one in chosen}, clips, not_normal or ())
    kept = where.with_suffix(".normal")
    _keep(kept, marks.clips, marks.not_normal)
    _follow(where, detector.model.sha256, marks)
    if refit is not None and output is not None:
        _refit(detector, refit, kept, output)


class Marks(NamedTuple):
    """What somebody said of events."""

    normal: Mapping[str, Marked]
    clips: Mapping[str, Clip]
    """Poses of those among the normal ones that still have them."""
    not_normal: Sequence[str]


def _alert(event: FoundEvent) -> Marked:
    from stepvad.calibration import Marked

    return Marked(camera=event.camera or "", peak=event.event.peak)


def _site_marks(site: Path, sha256: str) -> Marks:
    """The marks of a site on events that this model found; the poses as far as they are kept."""
    from stepvad.calibration import Marked
    from stepvad.cli.events import open_store
    from stepvad.cli.undelivered import data_of
    from stepvad.site.explainer import unpacked

    with open_store(data_of(site)) as store:
        records = {one.id: one for one in store.events(limit=None) if one.model_sha256 == sha256}
        marked = [id for id in store.marked() if id in records]
        others = len(store.marked()) - len(marked)
        bodies = {id: body for id in marked if (body := store.poses(id)) is not None}
    if others:
        say(f"marked events of other models, left alone: {others}")
    if len(bodies) < len(marked):
        say(f"marked events whose poses are too old to be kept: {len(marked) - len(bodies)}")
    clips = {}
    for id, body in bodies.items():
        clip = unpacked(body)
        tracks = tuple(track for track in clip.tracks if track.id in records[id].tracks)
        clips[id] = replace(clip, name=id, tracks=tracks or clip.tracks)
    return Marks(
        {id: Marked(camera=records[id].camera, peak=records[id].top_score) for id in marked},
        clips,
        [id for id in records if id not in marked],
    )


def _known(
    found: Mapping[str, FoundEvent], ids: Sequence[str], events: Path
) -> dict[str, FoundEvent]:
    for name in ids:
        if name not in found:
            some = ", ".join([*found][:3]) or "none"
            raise StepvadError(
                f"{events}: expected an event {name}, got others, as {some}",
                hint="copy the id from the file of events",
            )
    return {name: found[name] for name in ids}


def _model(found: Mapping[str, FoundEvent], events: Path) -> Path:
    if not found:
        raise StepvadError(f"{events}: expected events, got none", hint="there is nothing to mark")
    path = Path(next(iter(found.values())).model)
    if not path.exists():
        raise StepvadError(
            f"{path}: expected the model that found the events, got no file",
            hint="name its --model",
        )
    return path


def _marked_clips(
    events: Sequence[FoundEvent],
    moved: Sequence[Path] | None,
    detector: Detector,
    report: Report,
) -> dict[str, Clip]:
    """The poses of each event, by its id."""
    from stepvad.calibration.feedback import cut_out

    if not events:
        return {}
    clips: dict[str, Clip] = {}
    paths = moved or [Path(path) for path in events[0].poses]
    wanted = {event.clip for event in events}
    for clip in read_poses(paths, "auto", report):
        for event in events if clip.name in wanted else ():
            if event.clip == clip.name:
                cut = cut_out(clip, event.event, event.fps, detector.config.T)
                clips[event.id] = replace(cut, name=event.id, fps=event.fps)
    missing = [event.id for event in events if event.id not in clips or not clips[event.id].n_poses]
    if missing:
        raise StepvadError(
            f"{missing[0]}: expected its poses in {', '.join(map(str, paths))}, got none",
            hint="name the --poses that were scored",
        )
    return clips


def _follow(model: Path, sha256: str, marks: Marks) -> None:
    """Let the thresholds of the calibration follow."""
    from stepvad.calibration import file, from_counts

    before = calibration_of(model, sha256)
    if before is None or not (marks.normal or marks.not_normal):
        return
    gone = {*marks.not_normal}
    marked = {name: alert for name, alert in before.marked.items() if name not in gone}
    marked |= marks.normal
    after = from_counts(
        before.counted,
        model_sha256=before.model_sha256,
        alerts_per_hour=before.threshold.alerts_per_hour,
        confidence=before.threshold.confidence,
        rules=before.rules,
        marked=marked,
    )
    file.write(replace(after, looks=before.looks), file.beside(model))
    for sentence in _changes(before, after):
        typer.echo(sentence)


def _changes(before: Calibration, after: Calibration) -> Iterator[str]:
    yield f"events marked as normal: {len(after.marked)}"
    yield f"threshold {before.threshold.value:.2f} -> {after.threshold.value:.2f}"
    for camera, threshold in after.cameras.items():
        was = before.cameras.get(camera, before.threshold).value
        yield f"{camera}: threshold {was:.2f} -> {threshold.value:.2f}"


def _keep(directory: Path, clips: Mapping[str, Clip], not_normal: Sequence[str]) -> None:
    """Keep the poses of marked events, and drop those of others."""
    from stepvad.formats import file_stem, write_clip

    for name, clip in clips.items():
        directory.mkdir(exist_ok=True)
        write_clip(clip, directory / f"{file_stem(name)}.parquet")
    for name in not_normal:
        (directory / f"{file_stem(name)}.parquet").unlink(missing_ok=True)
    if clips:
        say(f"written: {directory}, of {len(clips)} events")


def _refit(detector: Detector, training: Sequence[Path], kept: Path, output: Path) -> None:
    from stepvad.calibration.feedback import repeated
    from stepvad.detector import Detector

    check_output(output)
    with progress_bars() as report:
        marked = [*read_poses([kept], "auto", report)]
        clips = [*read_training_poses(training, "auto", report)]
        clips += repeated(marked, detector.origin.windows, detector.config.T)
        made = Detector.fit(clips, detector.config, report=report)
    made.save(output)
    say(f"written: {output}; its scores are others: calibrate it with normal footage")
