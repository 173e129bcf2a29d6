"""A video to tracked poses; what is found is kept in parts, to resume from."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.codec import decode, encode
from stepvad.errors import DataError, Progress, Report, os_reason, silent
from stepvad.files import (
    read_arrays,
    read_bounded,
    remove_leftovers,
    replacing,
)
from stepvad.people import Boxes, People
from stepvad.poses import Clip, tracks_of
from stepvad.tracker import Tracker
from stepvad.video.estimators import PoseEstimator
from stepvad.video.following import Follower, Moment, detect_and_recover
from stepvad.video.source import PICTURE_RATE, DecodeStats, Footage, Frame, at_rate, open_footage

MIN_CONFIDENCE = 0.25
"""Mean joint confidence below which most boxes contain no person."""

PART_FRAMES = 50
"""Frames per part, the most that is lost: a few seconds of work."""
SETTINGS = "settings.json"
MAX_BYTES = 1 << 28
NAMES = (
    *("number", "time_s", "size", "n_people"),
    *("corners", "scores", "followed", "keypoints", "confidence"),
)
"""The arrays of a part."""
DAMAGED = (ValueError, TypeError, OverflowError, LookupError, DataError)
"""Exceptions raised on decoding a damaged part."""
PartOrigin = Mapping[str, str | float | None]
"""Provenance of poses: the networks, by checksum, and the settings."""


@dataclass(frozen=True, slots=True)
class FrameRange:
    """Frames of a video from `first` up to, not including, `end`."""

    first: int = 0
    end: int | None = None
    """None: to the end of the video."""

    def __str__(self) -> str:
        """As `A:B`."""
        return f"{self.first}:{'' if self.end is None else self.end}"


ALL_FRAMES = FrameRange()


def extract_file(
    video: Footage,
    estimator: PoseEstimator,
    parts: Parts,
    options: ExtractionOptions | None = None,
    *,
    frames: FrameRange = ALL_FRAMES,
) -> Extraction | None:
    """Extract the poses of some frames, numbered as in the video, or by a lower rate.

    Frames already in `parts` are not passed to the networks again. If `stop` is set,
    returns None; `parts` then holds the frames processed so far.
    """
    options = options or ExtractionOptions()
    # the frames that are left, all or by the lower rate
    first, end, stop = frames.first, frames.end, options.stop
    total = (min(end or video.n_frames, video.n_frames) - first) if video.n_frames else 0
    known = -1 if parts.latest is None else parts.latest.number
    rate = options.rate if options.rate and (not video.fps or options.rate < video.fps) else None
    reader = _Reader(video, frames, rate, stop)

    def progress() -> None:
        options.report(Progress(video.camera, reader.decoded, max(total, 0)))

    # the video is decoded from its beginning; only frames after the known ones reach the networks
    frames_per_s = _run_networks(
        reader.after(known), estimator, parts, progress, fps=rate or video.fps or PICTURE_RATE
    )
    if stop.is_set():
        return None
    if parts.latest is None:
        raise DataError(
            f"{video.path}: expected frames from {first}, got a video of "
            f"{video.counts.decoded or video.n_frames}",
            hint="choose frames that it has",
        )
    tracked = track(
        parts, video.camera, fps=rate or video.fps, min_confidence=options.min_confidence
    )
    summary = replace(tracked.summary, frames_per_s=frames_per_s, counts=video.counts)
    return replace(tracked, summary=summary)


def extract_clip(
    path: Path | str, estimator: PoseEstimator, *, picture_rate: float = PICTURE_RATE
) -> Clip:
    """Tracked poses of a video or a folder of pictures, in one go: `extract_file` resumes."""
    with TemporaryDirectory() as directory, Parts(Path(directory), {}) as parts:
        found = extract_file(open_footage(path, picture_rate=picture_rate), estimator, parts)
    if found is None:
        raise RuntimeError("an extraction without a stop signal was stopped")
    return found.clip


def track(
    seen: Iterable[FoundPeople], name: str, *, fps: float | None, min_confidence: float
) -> Extraction:
    """Track the detected people, without those of low confidence.

    Tracks end at a change of resolution, so no window spans two of them.
    """
    # the people of each frame as tracks
    tracker, size = Tracker(), None
    rows, times, certain = [], [], [np.empty(0, np.bool_)]
    for frame in seen:
        if size not in (None, frame.size):
            tracker.reset()
        size = frame.size
        certain.append(frame.people.certain(min_confidence))
        poses = tracker.update(frame.people.select(certain[-1]), time_s=frame.time_s)
        rows += [(pose.track_id, frame.number, pose.keypoints, pose.confidence) for pose in poses]
        times.append((frame.number, frame.time_s))
    # columns of all poses, (poses, …), and the frames to the last one
    tracks = tracks_of(*(np.array(column) for column in zip(*rows, strict=True))) if rows else ()
    clip = Clip(name, _fps(np.array(times)) if fps is None else fps, times[-1][0] + 1, tracks)
    sure = np.concatenate(certain)
    summary = ExtractionSummary(
        frames=len(times),
        people_per_frame=clip.n_poses / len(times),
        tracks=len(tracks),
        mean_track_length=clip.n_poses / max(len(tracks), 1),
        low_confidence=float((~sure).mean()) if len(sure) else 0.0,
        empty_frames=len(times) - len({row[1] for row in rows}),
    )
    return Extraction(clip, summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionOptions:
    """Settings of an extraction: whom to keep, the stop signal and the progress report."""

    min_confidence: float = MIN_CONFIDENCE
    """People whose mean joint confidence is lower are discarded."""
    rate: float | None = None
    """Frames per second to look at, at most; None for all."""
    stop: threading.Event = field(default_factory=threading.Event)
    report: Report = silent


@dataclass(frozen=True, slots=True, eq=False)
class Extraction:
    """The poses of a video, and a summary."""

    clip: Clip
    summary: ExtractionSummary


@dataclass(frozen=True, slots=True)
class ExtractionSummary:
    """Statistics of an extraction: what it found, what it discarded, and the networks' speed."""

    frames: int
    people_per_frame: float
    tracks: int
    mean_track_length: float
    low_confidence: float
    """Share of the detected people discarded for low confidence."""
    empty_frames: int
    """Frames without a tracked person."""
    frames_per_s: float | None = None
    """Speed of the networks in this run; None if they processed no frame."""
    counts: DecodeStats = field(default_factory=DecodeStats)
    """Counters of the stream."""


class Parts:
    """A directory of the frames processed so far; leaving the `with` block flushes the rest.

    Parts are written atomically. Parts of a different origin are rejected: half a video from one
    network and half from another would look like a change in how people move. So are parts of a
    newer layout, and parts that cannot be read.
    """

    def __init__(self, directory: Path, origin: PartOrigin) -> None:
        self._directory = directory
        self._waiting: list[FoundPeople] = []
        with _readable(directory):
            self._open(origin)
            found = (f for f in directory.iterdir() if re.fullmatch(r"\d{6,}\.npz", f.name))
            self._files = sorted(found, key=lambda file: int(file.stem))
        last = [*_frames(self._files[-1])][-1:] if self._files else []
        self.latest = last[0] if last else None

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()

    def __iter__(self) -> Iterator[FoundPeople]:
        """Iterate over all frames in order."""
        self.flush()
        for file in self._files:
            yield from _frames(file)

    def append(self, seen: FoundPeople) -> None:
        """Add a frame; a full part is flushed."""
        self._waiting.append(seen)
        self.latest = seen
        if len(self._waiting) >= PART_FRAMES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered frames as a part."""
        if self._waiting:
            path = self._directory / f"{len(self._files):06}.npz"
            with replacing(path, DataError) as temporary, temporary.open("wb") as file:
                np.savez(file, **_encoded(self._waiting))
            self._files.append(path)
            self._waiting = []

    def remove(self) -> None:
        """Remove the parts, once the poses have been saved."""
        self._waiting = []
        shutil.rmtree(self._directory)

    def _open(self, origin: PartOrigin) -> None:
        """Create the directory, or check that an existing one has this origin."""
        settings = self._directory / SETTINGS
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self._directory}: expected a place for a directory, got: {os_reason(error)}",
                hint="choose another output directory",
            ) from error
        try:
            data = read_bounded(settings, most=MAX_BYTES)
        except FileNotFoundError:
            with replacing(settings, DataError) as temporary:
                temporary.write_bytes(encode(PartSettings({**origin})))
            return
        found = decode(PartSettings, data, f"{self._directory}: parts").origin
        check_origin(found, origin, self._directory)
        remove_leftovers(self._directory)


@dataclass(frozen=True, slots=True, eq=False)
class FoundPeople:
    """The people of one frame before tracking; `size` is width and height."""

    number: int
    time_s: float
    size: tuple[int, int]
    people: People


def check_origin(found: Mapping[str, object], expected: PartOrigin, place: Path) -> None:
    """Refuse poses that came about in another way."""
    other = [name for name, value in expected.items() if found.get(name) != value]
    if other:
        name = other[0]
        raise DataError(
            f"{place}: expected {name} {expected[name]}, got poses made with {found.get(name)}",
            hint="repeat the command that started it, use another output directory, or remove it",
        )


@dataclass(frozen=True, slots=True)
class PartSettings:
    """Settings that are written beside the parts."""

    origin: dict[str, str | float | None]
    version: Literal[1] = 1
    """Version of the layout."""


@dataclass(slots=True)
class _Reader:
    """Reads some frames of a video, all or at a lower rate, until it is stopped."""

    video: Footage
    frames: FrameRange
    rate: float | None
    stop: threading.Event
    decoded: int = 0
    """Progress in frames of the video."""

    def after(self, known: int) -> Iterator[Frame]:
        """The frames whose numbers are above `known`."""
        if self.rate is None:
            return self._since(max(self.frames.first, known + 1))
        sampled = at_rate(self._since(self.frames.first), self.rate, self.video.fps)
        return (frame for frame in sampled if frame.number > known)

    def _since(self, first: int) -> Iterator[Frame]:
        end = self.frames.end
        for frame in self.video.since(first):
            if self.stop.is_set() or (end is not None and frame.number >= end):
                return
            self.decoded = frame.number + 1 - self.frames.first
            yield frame


def _run_networks(
    frames: Iterator[Frame],
    estimator: PoseEstimator,
    parts: Parts,
    progress: Callable[[], None],
    *,
    fps: float,
) -> float | None:
    """Run the networks on every frame, and add its people to the parts; return frames a second."""
    # the people of the stored frames are followed into the first new one
    follower = Follower()
    for seen in parts:
        follower.update(Moment(seen.time_s, seen.size), seen.people)
    started, n_frames = time.monotonic(), 0
    for frame in frames:
        height, width = frame.image.shape[:2]
        time_s = frame.number / fps if frame.pts is None else frame.pts
        moment = Moment(time_s, (width, height))
        (people,) = detect_and_recover(estimator, [frame.image], [follower.last_poses(moment)])
        follower.update(moment, people)
        parts.append(FoundPeople(frame.number, time_s, (width, height), people))
        n_frames += 1
        progress()
    parts.flush()
    return n_frames / max(time.monotonic() - started, 1e-6) if n_frames else None


def _fps(times: NDArray[np.float64]) -> float | None:
    """Median frame rate of numbers and times `(n, 2)`; None if no two frames allow an estimate."""
    numbers, seconds = np.diff(times, axis=0).T
    each_s = seconds[seconds > 0] / numbers[seconds > 0]
    return round(1 / float(np.median(each_s)), 3) if len(each_s) else None


def _encoded(frames: Sequence[FoundPeople]) -> Mapping[str, Any]:
    # a row for each frame, (frames,), and one for each person, (people, …), frame after frame
    people = [seen.people for seen in frames]
    return {
        "number": np.array([seen.number for seen in frames], np.int64),
        "time_s": np.array([seen.time_s for seen in frames]),
        "size": np.array([seen.size for seen in frames], np.int64),
        "n_people": np.array([len(some) for some in people], np.int64),
        "corners": np.concatenate([some.boxes.corners for some in people]),
        "scores": np.concatenate([some.boxes.scores for some in people]),
        "followed": np.concatenate([some.boxes.followed for some in people]).astype(np.uint8),
        "keypoints": np.concatenate([some.keypoints for some in people]),
        "confidence": np.concatenate([some.confidence for some in people]),
    }


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise failures of the disk as `DataError`."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or path}: expected a readable file, got: {os_reason(error)}",
            hint="no poses were deleted; run the command again",
        ) from error


def _frames(file: Path) -> Iterator[FoundPeople]:
    """The frames of a part."""
    with _readable(file):
        content = read_bounded(file, most=MAX_BYTES)
    try:
        yield from _decoded(content)
    except DAMAGED as error:
        raise DataError(
            f"{file}: expected a part of an extraction, got: {error}",
            hint="remove this part and those after it; their frames are looked at again",
        ) from error


def _decoded(content: bytes) -> Iterator[FoundPeople]:
    part = read_arrays(content, NAMES)
    # people lie one after the other; the rows of a frame end here
    ends = np.cumsum(part["n_people"])
    for at, end in enumerate(ends.tolist()):
        rows = slice(end - int(part["n_people"][at]), end)
        boxes = Boxes(part["corners"][rows], part["scores"][rows], part["followed"][rows] != 0)
        yield FoundPeople(
            int(part["number"][at]),
            float(part["time_s"][at]),
            (int(part["size"][at, 0]), int(part["size"][at, 1])),
            People(boxes, part["keypoints"][rows], part["confidence"][rows]),
        )
