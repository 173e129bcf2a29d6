"""What people said of events, and how it changes thresholds and training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from stepvad.codec import Number, decode, encode
from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.events.calibration import Calibration, from_counts
from stepvad.events.record import clip_event_id
from stepvad.events.rules import Event, Rules, find_events
from stepvad.events.threshold import Marked
from stepvad.files import replacing
from stepvad.formats import file_stem, write_clip
from stepvad.formats.reading import MAX_LABEL_BYTES, read_bytes
from stepvad.model.scoring import Scores
from stepvad.poses import MAX_FPS, Clip
from stepvad.windows.runs import Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Events marked as normal, and events whose mark was taken back."""

    normal: Mapping[str, Marked] = field(default_factory=dict)
    clips: Mapping[str, Clip] = field(default_factory=dict)
    """Poses of the normal events for which they are still stored."""
    not_normal: Sequence[str] = ()


def recalibrate(before: Calibration, marks: Marks) -> Calibration:
    """Update the thresholds of a calibration to count the events marked as normal."""
    gone = {*marks.not_normal}
    marked = {name: alert for name, alert in before.marked.items() if name not in gone}
    after = from_counts(
        before.counted,
        model_sha256=before.model_sha256,
        alerts_per_hour=before.threshold.alerts_per_hour,
        confidence=before.threshold.confidence,
        rules=before.rules,
        marked=marked | dict(marks.normal),
    )
    return replace(after, block_stats=before.block_stats, rates=before.rates)


SHARE = 0.05
"""Fraction of the training windows that show marked alerts."""


def cut_out(clip: Clip, event: Event, fps: float, T: int) -> Clip:
    """The poses of an event's people in all its windows; frames keep their numbers."""
    begin_s = min(event.first_s, event.peak_s)  # late joiners may have peaked before it began
    first, last = round(begin_s * fps) - T + 1, round(event.last_s * fps)
    tracks = (track.between(first, last + 1) for track in clip.tracks if track.id in event.tracks)
    return replace(
        clip, n_frames=min(last + 1, clip.n_frames), tracks=tuple(t for t in tracks if len(t))
    )


def repeated(
    marked: Sequence[Clip], windows: int, T: int, *, share: float = SHARE
) -> Iterator[Clip]:
    """Repeat marked clips until they reach `share` of this many training windows.

    Used only once, a few alerts would be lost among hours of footage.
    """
    own = sum(max(len(track) - T + 1, 0) for clip in marked for track in clip.tracks)
    times = max(round(share * windows / max(own, 1)), 1)
    for number, clip in product(range(times), marked):
        yield replace(clip, name=f"{clip.name} {number}")


def normal_set_path(model: Path) -> Path:
    """Directory of a model's normal set."""
    return model.with_suffix(".normal")


def update_normal_set(directory: Path, clips: Mapping[str, Clip], dropped: Iterable[str]) -> None:
    """Write the poses of marked events, by id, and delete those of `dropped` events."""
    for id, clip in clips.items():
        directory.mkdir(exist_ok=True)
        write_clip(clip, directory / f"{file_stem(id)}.parquet")
    for id in dropped:
        (directory / f"{file_stem(id)}.parquet").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvent(Event):
    """An event of a clip, with everything needed to find it again."""

    schema: Literal[1] = 1
    """Version of the layout."""
    id: str
    clip: str
    camera: str | None
    """None if the threshold applies to all cameras."""
    model: str
    """Path of the model file."""
    poses: tuple[str, ...]
    """Files or directories that were scored; one of them contains the clip."""
    fps: Annotated[float, Meta(gt=0, lt=MAX_FPS)]
    threshold: Number
    model_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundWith:
    """Model, pose files and camera of a scoring run, shared by all of its events."""

    model: str
    model_sha256: str
    poses: tuple[str, ...]
    camera: str | None = None

    @classmethod
    def from_paths(
        cls, model: Path, sha256: str, poses: Sequence[Path], *, camera: str | None = None
    ) -> FoundWith:
        """Resolve the paths, so that they hold wherever the lines are read."""
        files = tuple(str(path.resolve()) for path in poses)
        return cls(model=str(model.resolve()), model_sha256=sha256, poses=files, camera=camera)


def found_events(
    clip: Clip, scores: Scores, fps: float, rules: Rules, origin: FoundWith
) -> list[FoundEvent]:
    """The events of a scored clip, with everything needed to find them again."""
    return [
        FoundEvent(
            id=clip_event_id(scores.clip, event, fps),
            clip=scores.clip,
            camera=origin.camera,
            model=origin.model,
            poses=origin.poses,
            fps=fps,
            threshold=rules.threshold,
            model_sha256=origin.model_sha256,
            **asdict(event),
        )
        for event in find_events(clip, scores, rules, fps=fps)
    ]


def write_found(found: Iterable[FoundEvent], path: Path) -> None:
    """Write events atomically, one per line."""
    with replacing(path) as temporary:
        temporary.write_bytes(b"".join(encode(event) + b"\n" for event in found))


def read_found(path: Path) -> dict[str, FoundEvent]:
    """The events of a file by their id."""
    found = {}
    data = read_bytes(path, most=MAX_LABEL_BYTES)
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            try:
                event = decode(FoundEvent, line, "event")
            except DataError as error:
                raise DataError(
                    f"{path}, line {number}: {error.problem}",
                    hint="write the lines with: stepvad score MODEL POSES --events events.jsonl",
                ) from error
            found[event.id] = event
    return found


def with_ids(found: Mapping[str, FoundEvent], ids: Sequence[str], path: Path) -> list[FoundEvent]:
    """The events of a file with these ids."""
    for id in ids:
        if id not in found:
            some = ", ".join([*found][:3]) or "none"
            raise DataError(
                f"{path}: expected an event {id}, got others, as {some}",
                hint="copy the id from the event file",
            )
    return [found[id] for id in ids]


def marks_from(
    normal: Sequence[FoundEvent], not_normal: Sequence[str], clips: Iterable[Clip], config: Config
) -> Marks:
    """An operator's marks on events, with the poses of normal events cut from `clips`.

    `config` are the settings of the model, which say how far back its windows reach.
    """
    cut: dict[str, Clip] = {}
    for clip in clips:
        for event in normal:
            if event.clip == clip.name:
                span = Sampling.for_rate(config, event.fps).span
                own = cut_out(clip, event, event.fps, span)
                cut[event.id] = replace(own, name=event.id, fps=event.fps)
    missing = [event.id for event in normal if event.id not in cut or not cut[event.id].n_poses]
    if missing:
        raise DataError(
            f"{missing[0]}: expected its poses in the footage, got none",
            hint="name the pose files that were scored, after the model",
        )
    alerts = {one.id: Marked(camera=one.camera or "", peak=one.peak) for one in normal}
    return Marks(normal=alerts, clips=cut, not_normal=not_normal)
