"""A video or a camera to tracked poses; what is found is kept in parts, to resume from."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.codec import decode, encode
from stepvad.errors import DataError, Progress, Report, os_reason, silent
from stepvad.files import (
    DAMAGED_SUFFIX,
    read_arrays,
    read_bounded,
    remove_leftovers,
    replacing,
    set_aside,
    temporary_directory,
)
from stepvad.people import NOBODY, Boxes, People
from stepvad.poses import Clip, tracks_of
from stepvad.tracker import Tracker
from stepvad.video.camera import Camera
from stepvad.video.estimators import PoseEstimator
from stepvad.video.following import Follower, Moment, detect_and_recover
from stepvad.video.source import PICTURE_RATE, DecodeStats, Footage, Frame, at_rate, open_footage

logger = logging.getLogger(__name__)

MIN_CONFIDENCE = 0.25
"""Mean joint confidence below which most boxes contain no person."""

PART_FRAMES = 50
"""Frames per part, the most that is lost: a few seconds of work."""
SETTINGS = "settings.json"
MAX_BYTES = 1 << 28
NAMES = (
    *("number", "epoch", "pts", "wall", "size", "n_people"),
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

    def progress(frame: Frame) -> None:
        options.report(Progress(video.camera, reader.decoded, max(total, 0)))

    # the video is decoded from its beginning; only frames after the known ones reach the networks
    follower = _follower(parts, follow=options.follow)
    frames_per_s, _ = _run_networks(reader.after(known), estimator, parts, progress, follower)
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


def extract_camera(
    camera: Camera,
    estimator: PoseEstimator,
    parts: Parts,
    options: ExtractionOptions | None = None,
    *,
    duration_s: float | None = None,
) -> Extraction:
    """Extract the poses of a camera until `stop` is set or `duration_s` has elapsed.

    Frames already in `parts` come first, as an earlier connection.
    """
    options = options or ExtractionOptions()
    before = parts.latest
    threading.Thread(
        target=_stop_later, args=(camera, options.stop, duration_s), daemon=True
    ).start()

    def frames() -> Iterator[Frame]:
        # numbers and connections go on from those in the parts
        for frame in at_rate(camera, options.rate) if options.rate else camera:
            if before is None:
                yield frame
            else:
                number, epoch = before.number + 1 + frame.number, before.epoch + 1 + frame.epoch
                yield replace(frame, number=number, epoch=epoch)

    def progress(frame: Frame) -> None:
        counts = camera.counts
        note = f"{counts.dropped} dropped, {counts.reconnects} reconnects"
        options.report(Progress(camera.name, frame.number + 1, 0, note))

    follower = _follower(parts, follow=options.follow)
    frames_per_s, lag_s = _run_networks(frames(), estimator, parts, progress, follower)
    if parts.latest is None:
        raise DataError(
            f"camera {camera.name}: expected frames, got none",
            hint="check its address, its credentials and the network",
        )
    tracked = track(parts, camera.name, fps=options.rate, min_confidence=options.min_confidence)
    summary = replace(tracked.summary, frames_per_s=frames_per_s, lag_s=lag_s, counts=camera.counts)
    return replace(tracked, summary=summary)


def extract_clip(
    path: Path | str, estimator: PoseEstimator, *, picture_rate: float = PICTURE_RATE
) -> Clip:
    """Tracked poses of a video or a folder of pictures, in one go: `extract_file` resumes."""
    with temporary_directory() as directory, Parts(directory, {}) as parts:
        found = extract_file(open_footage(path, picture_rate=picture_rate), estimator, parts)
    if found is None:
        raise RuntimeError("an extraction without a stop signal was stopped")
    return found.clip


def track(
    seen: Iterable[FoundPeople], name: str, *, fps: float | None, min_confidence: float
) -> Extraction:
    """Track the detected people, without those of low confidence.

    Tracks end at a reconnect or a change of resolution, so no window spans two of either. Frames
    without a stream time are `fps` apart, or as far apart as they arrived.
    """
    # the people of each frame as tracks
    tracker, before = Tracker(), None
    rows, times, certain = [], [], [np.empty(0, np.bool_)]
    for frame in seen:
        if before not in (None, (frame.epoch, frame.size)):
            tracker.reset()
        before = frame.epoch, frame.size
        certain.append(frame.people.certain(min_confidence))
        time_s = frame.pts if frame.pts is not None else frame.number / fps if fps else frame.wall
        poses = tracker.update(frame.people.select(certain[-1]), time_s=time_s)
        rows += [(pose.track_id, frame.number, pose.keypoints, pose.confidence) for pose in poses]
        times.append((frame.number, frame.epoch, frame.pts, frame.wall))
    # columns of all frames, (frames,), and of all poses, (poses, …)
    when = Times(*(np.array(column, np.float64) for column in zip(*times, strict=True)))
    tracks = tracks_of(*(np.array(column) for column in zip(*rows, strict=True))) if rows else ()
    clip = Clip(name, when.fps() if fps is None else fps, int(when.number[-1]) + 1, tracks)
    sure = np.concatenate(certain)
    summary = ExtractionSummary(
        frames=len(times),
        people_per_frame=clip.n_poses / len(times),
        tracks=len(tracks),
        mean_track_length=clip.n_poses / max(len(tracks), 1),
        low_confidence=float((~sure).mean()) if len(sure) else 0.0,
        empty_frames=len(times) - len({row[1] for row in rows}),
    )
    return Extraction(clip, when, summary)


def track_people(
    frames: Iterable[People], name: str, *, fps: float, min_confidence: float = MIN_CONFIDENCE
) -> Clip:
    """Track the people of consecutive frames, found by any estimator; one `People` per frame."""
    seen = [
        FoundPeople(number, 0, number / fps, number / fps, (0, 0), people)
        for number, people in enumerate(frames)
    ]
    if not seen:
        raise DataError(f"{name}: expected frames, got none", hint="give one People per frame")
    return track(seen, name, fps=fps, min_confidence=min_confidence).clip


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionOptions:
    """Settings of an extraction: whom to keep, the stop signal and the progress report."""

    min_confidence: float = MIN_CONFIDENCE
    """People whose mean joint confidence is lower are discarded."""
    follow: bool = True
    """Follow people whom the detector loses by their last pose."""
    rate: float | None = None
    """Frames per second to look at, at most; None for all."""
    stop: threading.Event = field(default_factory=threading.Event)
    report: Report = silent


@dataclass(frozen=True, slots=True, eq=False)
class Extraction:
    """The poses of a video, the times of its frames, and a summary."""

    clip: Clip
    times: Times
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
    lag_s: float | None = None
    """Seconds from decoding a camera's last frame to its poses."""
    counts: DecodeStats = field(default_factory=DecodeStats)
    """Counters of the stream; `CameraCounts` for a camera."""


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Frame times: number, connection, stream time and wall clock, all `(n,)`."""

    number: NDArray[np.float64]
    epoch: NDArray[np.float64]
    pts: NDArray[np.float64]
    wall: NDArray[np.float64]

    def fps(self) -> float | None:
        """Median frame rate within a connection; None if no two frames allow an estimate."""
        for seconds in (self.pts, self.wall):
            # seconds from frame to frame within a connection, (n,), by the numbers between them
            steps = np.diff(seconds)[np.diff(self.epoch) == 0]
            numbers = np.diff(self.number)[np.diff(self.epoch) == 0]
            each_s = steps[steps > 0] / numbers[steps > 0]
            if len(each_s):
                return round(1 / float(np.median(each_s)), 3)
        return None


class Parts:
    """A directory of the frames processed so far; leaving the `with` block flushes the rest.

    Parts are written atomically. Parts of a different origin are rejected: half a video from one
    network and half from another would look like a change in how people move. So are parts of a
    newer layout, and parts that cannot be read now.
    """

    def __init__(self, directory: Path, origin: PartOrigin, *, is_camera: bool = False) -> None:
        """`is_camera`: the frames cannot be extracted again, so a damaged part leaves a gap."""
        self._directory = directory
        self._waiting: list[FoundPeople] = []
        with _readable(directory):
            self._open(origin)
            found = (f for f in directory.iterdir() if re.fullmatch(r"\d{6,}\.npz", f.name))
            self._next, files = 0, sorted(found, key=lambda file: int(file.stem))
            self._files, self.latest = self._intact(files) if is_camera else self._whole(files)

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()

    def __iter__(self) -> Iterator[FoundPeople]:
        """Iterate over all frames in order."""
        self.flush()
        for file in self._files:
            yield from _decoded(_content(file))

    def append(self, seen: FoundPeople) -> None:
        """Add a frame; a full part is flushed."""
        self._waiting.append(seen)
        self.latest = seen
        if len(self._waiting) >= PART_FRAMES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered frames as a part."""
        if self._waiting:
            path = self._directory / f"{self._next:06}.npz"
            with replacing(path, DataError) as temporary, temporary.open("wb") as file:
                np.savez(file, **_encoded(self._waiting))
            self._files.append(path)
            self._next += 1
            self._waiting = []

    def remove(self) -> None:
        """Remove the parts, once the poses have been saved."""
        self._waiting = []
        remove_parts(self._directory)

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

    def _whole(self, files: Sequence[Path]) -> tuple[list[Path], FoundPeople | None]:
        """Intact parts from the first on, and their last frame; deletes those after a gap.

        A video is still there, so their frames are extracted again, in order.
        """
        # parts are numbered without gaps; after the first that is missing or damaged, all go
        kept, latest = list[Path](), None
        for number, file in enumerate(files):
            last = _last_frame(file) if int(file.stem) == number else None
            if last is None:
                break
            kept.append(file)
            latest = last
        for file in files[len(kept) :]:
            file.unlink()
        self._next = len(kept)
        return kept, latest

    def _intact(self, files: Sequence[Path]) -> tuple[list[Path], FoundPeople | None]:
        """All intact parts and their last frame; damaged ones are set aside."""
        kept, latest = list[Path](), None
        for file in files:
            last = _last_frame(file)
            if last is None:
                aside = set_aside(file)
                logger.warning("%s: damaged, its frames are left out; kept as %s", file, aside.name)
            else:
                kept.append(file)
                latest = last
            self._next = int(file.stem) + 1
        return kept, latest


@dataclass(frozen=True, slots=True, eq=False)
class FoundPeople:
    """The people of one frame before tracking; `size` is width and height."""

    number: int
    epoch: int
    pts: float | None
    wall: float
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


def remove_parts(directory: Path) -> None:
    """Remove a directory of parts; those that were set aside as damaged stay."""
    files = [*directory.iterdir()]
    others = [file for file in files if DAMAGED_SUFFIX not in file.name]
    if len(others) == len(files):
        shutil.rmtree(directory)
        return
    for file in others:
        file.unlink()


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
    progress: Callable[[Frame], None],
    follower: Follower | None,
) -> tuple[float | None, float | None]:
    """Run the networks on every frame, and add its people to the parts.

    Returns the frames per second, and the age of the last frame when they were done with it.
    """
    started, n_frames, lag_s = time.monotonic(), 0, None
    for frame in frames:
        if not n_frames:  # the first frame may have to wait for its camera
            started = time.monotonic()
        # people detected, then those followed from their last pose
        height, width = frame.image.shape[:2]
        moment = Moment(_seconds(frame), (frame.epoch, width, height))
        last = NOBODY if follower is None else follower.last_poses(moment)
        (people,) = detect_and_recover(estimator, [frame.image], [last])
        if follower is not None:
            follower.update(moment, people)
        parts.append(
            FoundPeople(frame.number, frame.epoch, frame.pts, frame.wall, (width, height), people)
        )
        n_frames, lag_s = n_frames + 1, frame.age_s
        progress(frame)
    parts.flush()
    each_s = n_frames / max(time.monotonic() - started, 1e-6)
    return each_s if n_frames else None, lag_s


def _follower(parts: Parts, *, follow: bool) -> Follower | None:
    """A follower that remembers the people of the stored frames; None if nobody is followed."""
    if not follow:
        return None
    follower = Follower()
    for seen in parts:
        follower.update(Moment(_seconds(seen), (seen.epoch, *seen.size)), seen.people)
    return follower


def _seconds(frame: Frame | FoundPeople) -> float:
    """Time of a frame: in the stream, or by the clock where the stream does not say."""
    return frame.wall if frame.pts is None else frame.pts


def _stop_later(camera: Camera, stop: threading.Event, duration_s: float | None) -> None:
    stop.wait(duration_s)
    camera.stop()


def _encoded(frames: Sequence[FoundPeople]) -> Mapping[str, Any]:
    # a row for each frame, (frames,), and one for each person, (people, …), frame after frame
    people = [seen.people for seen in frames]
    return {
        "number": np.array([seen.number for seen in frames], np.int64),
        "epoch": np.array([seen.epoch for seen in frames], np.int64),
        "pts": np.array([np.nan if seen.pts is None else seen.pts for seen in frames]),
        "wall": np.array([seen.wall for seen in frames]),
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


def _content(file: Path) -> bytes:
    with _readable(file):
        return read_bounded(file, most=MAX_BYTES)


def _last_frame(file: Path) -> FoundPeople | None:
    """The last frame of a part, None if it is damaged; raise `OSError` if it cannot be read."""
    try:
        *_, last = _decoded(read_bounded(file, most=MAX_BYTES))
    except DAMAGED:
        return None
    return last


def _decoded(content: bytes) -> Iterator[FoundPeople]:
    part = read_arrays(content, NAMES)
    # people lie one after the other; the rows of a frame end here
    ends = np.cumsum(part["n_people"])
    for at, end in enumerate(ends.tolist()):
        rows = slice(end - int(part["n_people"][at]), end)
        boxes = Boxes(part["corners"][rows], part["scores"][rows], part["followed"][rows] != 0)
        pts = float(part["pts"][at])
        yield FoundPeople(
            int(part["number"][at]),
            int(part["epoch"][at]),
            None if np.isnan(pts) else pts,
            float(part["wall"][at]),
            (int(part["size"][at, 0]), int(part["size"][at, 1])),
            People(boxes, part["keypoints"][rows], part["confidence"][rows]),
        )
