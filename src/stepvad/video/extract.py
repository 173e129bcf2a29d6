"""Extract tracked poses from video: run the networks on each frame, then track the people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.files.temporary import temporary_directory
from stepvad.poses import Clip, tracks_of
from stepvad.progress import Progress, Report, silent
from stepvad.video.camera import Camera
from stepvad.video.following import Follower, Moment, look
from stepvad.video.footage import Footage, open_footage
from stepvad.video.parts import FoundPeople, Parts
from stepvad.video.people import NOBODY, People
from stepvad.video.pictures import PICTURE_RATE
from stepvad.video.pose import PoseEstimator
from stepvad.video.source import DecodeStats, Frame
from stepvad.video.thinning import at_rate
from stepvad.video.tracker import Tracker

MIN_CONFIDENCE = 0.25
"""Mean joint confidence below which most boxes contain no person."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionOptions:
    """Settings of an extraction: whom to keep, the stop signal and the progress report."""

    min_confidence: float = MIN_CONFIDENCE
    """People whose mean joint confidence is lower are discarded."""
    follow: bool = True
    """Whether people whom the detector loses are followed by their last pose."""
    rate: float | None = None
    """Frames per second to look at, at most; None for all."""
    stop: threading.Event = field(default_factory=threading.Event)
    report: Report = silent


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
            steps = np.diff(seconds)[np.diff(self.epoch) == 0]
            numbers = np.diff(self.number)[np.diff(self.epoch) == 0]
            each_s = steps[steps > 0] / numbers[steps > 0]
            if len(each_s):
                return round(1 / float(np.median(each_s)), 3)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Extraction:
    """The poses of a video, the times of its frames, and a summary."""

    clip: Clip
    times: Times
    summary: ExtractionSummary


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
    first, end, stop = frames.first, frames.end, options.stop
    total = (min(end or video.n_frames, video.n_frames) - first) if video.n_frames else 0
    known = -1 if parts.latest is None else parts.latest.number
    rate = options.rate if options.rate and (not video.fps or options.rate < video.fps) else None
    reader = _Reader(video, frames, rate, stop)

    def progress(frame: Frame) -> None:
        options.report(Progress(video.camera, reader.decoded, max(total, 0)))

    frames_per_s = _look(
        reader.after(known), estimator, parts, progress, _follower(parts, follow=options.follow)
    )
    if stop.is_set():
        return None
    if parts.latest is None:
        raise DataError(
            f"{video.path}: expected frames from {first}, got a video of "
            f"{video.counts.decoded or video.n_frames}",
            hint="choose frames that it has",
        )
    tracked = follow(
        parts, video.camera, fps=rate or video.fps, min_confidence=options.min_confidence
    )
    summary = replace(tracked.summary, frames_per_s=frames_per_s, counts=video.counts)
    return replace(tracked, summary=summary)


@dataclass(slots=True)
class _Reader:
    """Reads some frames of a video, all or at a lower rate, until it is stopped."""

    video: Footage
    frames: FrameRange
    rate: float | None
    stop: threading.Event
    decoded: int = 0
    """How far it is, in frames of the video."""

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


def extract_clip(
    path: Path | str, estimator: PoseEstimator, *, picture_rate: float = PICTURE_RATE
) -> Clip:
    """Tracked poses of a video or a folder of pictures, in one go: `extract_file` resumes."""
    with temporary_directory() as directory, Parts(directory, {}) as parts:
        found = extract_file(open_footage(path, picture_rate=picture_rate), estimator, parts)
    if found is None:
        raise RuntimeError("an extraction without a stop signal was stopped")
    return found.clip


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
    lag_s: list[float | None] = []

    def frames() -> Iterator[Frame]:
        for frame in at_rate(camera, options.rate) if options.rate else camera:
            if before is None:
                yield frame
            else:
                number, epoch = before.number + 1 + frame.number, before.epoch + 1 + frame.epoch
                yield replace(frame, number=number, epoch=epoch)

    def progress(frame: Frame) -> None:
        lag_s[:] = [frame.age_s]
        counts = camera.counts
        note = f"{counts.dropped} dropped, {counts.reconnects} reconnects"
        options.report(Progress(camera.name, frame.number + 1, 0, note))

    frames_per_s = _look(
        frames(), estimator, parts, progress, _follower(parts, follow=options.follow)
    )
    if parts.latest is None:
        raise DataError(
            f"camera {camera.name}: expected frames, got none",
            hint="check its address, its credentials and the network",
        )
    tracked = follow(parts, camera.name, fps=options.rate, min_confidence=options.min_confidence)
    summary = replace(
        tracked.summary, frames_per_s=frames_per_s, lag_s=(lag_s or [None])[0], counts=camera.counts
    )
    return replace(tracked, summary=summary)


def follow(
    seen: Iterable[FoundPeople], name: str, *, fps: float | None, min_confidence: float
) -> Extraction:
    """Track the detected people, without those of low confidence.

    Tracks end at a reconnect or a change of resolution, so no window spans two of either. Frames
    without a stream time are `fps` apart, or as far apart as they arrived.
    """
    tracker, before = Tracker(), None
    rows, times, certain = [], [], [np.empty(0, np.bool_)]
    for frame in seen:
        if before not in (None, (frame.epoch, frame.size)):
            tracker.reset()
        before = frame.epoch, frame.size
        certain.append(frame.people.certain(min_confidence))
        time_s = frame.pts if frame.pts is not None else frame.number / fps if fps else frame.wall
        poses = tracker.update(frame.people.take(certain[-1]), time_s=time_s)
        rows += [(pose.track_id, frame.number, pose.keypoints, pose.confidence) for pose in poses]
        times.append((frame.number, frame.epoch, frame.pts, frame.wall))
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
    return follow(seen, name, fps=fps, min_confidence=min_confidence).clip


def _look(
    frames: Iterator[Frame],
    estimator: PoseEstimator,
    parts: Parts,
    progress: Callable[[Frame], None],
    follower: Follower | None,
) -> float | None:
    """Run the networks on every frame; return frames per second, or None without frames."""
    started, looked_at = time.monotonic(), 0
    for frame in frames:
        if not looked_at:
            started = time.monotonic()
        height, width = frame.image.shape[:2]
        moment = Moment(_seconds(frame), (frame.epoch, width, height))
        last = NOBODY if follower is None else follower.last_poses(moment)
        (people,) = look(estimator, [frame.image], [last])
        if follower is not None:
            follower.update(moment, people)
        parts.add(
            FoundPeople(frame.number, frame.epoch, frame.pts, frame.wall, (width, height), people)
        )
        looked_at += 1
        progress(frame)
    parts.flush()
    return looked_at / max(time.monotonic() - started, 1e-6) if looked_at else None


def _follower(parts: Parts, *, follow: bool) -> Follower | None:
    """A follower that remembers the people of the stored frames; None if nobody is followed."""
    if not follow:
        return None
    follower = Follower()
    for seen in parts:
        follower.update(Moment(_seconds(seen), (seen.epoch, *seen.size)), seen.people)
    return follower


def _seconds(frame: Frame | FoundPeople) -> float:
    """When a frame was: in the stream, or by the clock where the stream does not say."""
    return frame.wall if frame.pts is None else frame.pts


def _stop_later(camera: Camera, stop: threading.Event, duration_s: float | None) -> None:
    stop.wait(duration_s)
    camera.stop()
