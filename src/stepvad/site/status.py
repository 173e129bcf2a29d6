"""Live status of a site: written by the pipeline, read by the web page and the metrics."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import ConfigError
from stepvad.files import hide_directories
from stepvad.poses import Pose
from stepvad.site.load import FrameLoad, Load
from stepvad.skeletons import COCO17, Skeleton, strokes

CaptureState = Literal["offline", "online", "failed"]
Field = Literal[
    "frames_in",
    "scored",
    "shed",
    "skipped",
    "windows",
    "flat_windows",
    "muted_windows",
    "events",
    "restarts",
    "reconnects",
]
FIELDS: tuple[Field, ...] = get_args(Field)
Zones = Mapping[str, Sequence[tuple[float, float]]]
"""Corners of each zone by name, as fractions of the image."""

HOUR_S = 3600
"""Length of a timeline."""
RATE_OVER = 50
"""Number of latest frames used to measure the frame rate."""

KEPT_S = 600.0
"""How long frames are kept: as long as the score line shows at first."""
MOST_FRAMES = 20_000
"""Upper bound of frames per camera, whatever its rate and clock."""
UNSEEN = -32768
"""Coordinate of a joint that was not found."""
SEEN = 0.05
"""Minimum confidence of a joint to be drawn."""

BUCKETS_S = (
    *(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the histogram buckets for delays."""
RECENT = 1000
"""Number of latest delays used for quantiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraView:
    """Current status of one camera."""

    name: str
    rate: float
    """Frames a second that are asked for."""
    threshold: float | None
    """Score above which a person raises an event; None while the site has no model of it yet."""
    model: str
    zones: Zones
    """Corners as fractions of the picture."""
    bones: list[list[int]]
    """Lines between joints; one of three goes to the middle of the last two."""
    state: CaptureState
    reason: str
    """Why the camera is not online; empty if it is."""
    since: float | None
    """Unix time of the last state change; None before the first."""
    counts: Mapping[Field, int]
    fps: float | None
    """Measured rate of scored frames; None with fewer than two frames."""
    people: int
    last_frame: float | None
    """Unix time of the latest frame."""
    drift: str
    """How it differs from calibration, in words."""
    drifted: bool
    """Whether it is time to calibrate again."""
    limit: str
    """Its alerts and their budget, or why it has no threshold, in words."""
    latency: Delays
    """Delay from the arrival of a frame to its scores."""
    alerts: Delays
    """Delay from the arrival of a frame to the event it starts."""
    load: Load = field(default_factory=Load)
    drift_numbers: str = ""
    """The largest changes, in numbers."""


@dataclass(frozen=True, slots=True)
class SinkView:
    """Current status of one sink: pending events, failures and dead letters."""

    name: str
    lag: int
    """Messages that wait for it."""
    failures: int
    last_error: str
    refused: int = 0
    """Messages that became dead letters since the start."""


@dataclass(frozen=True, slots=True)
class LearningView:
    """How far a site has learned its own model."""

    words: str
    hours: float
    """Hours of recorded motion."""
    people: int
    doing: str = ""
    """fit while it does so."""
    problem: str = ""
    """Why the latest round failed; empty if it did not."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong with the site."""

    key: str
    words: str
    since: float
    """Unix time of its beginning."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Status of the whole site at one moment."""

    cameras: tuple[CameraView, ...]
    sinks: tuple[SinkView, ...]
    uptime_s: float
    dropped_tasks: Mapping[str, int] = field(default_factory=dict)
    """Background tasks dropped because the queue was full, by kind."""
    learning: LearningView | None = None
    """None if the site has a model that others made."""
    troubles: tuple[Trouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Delays:
    """How long something took, in seconds; quantiles are those of the latest delays."""

    n: int
    p50: float | None
    """None before the first delay."""
    p99: float | None
    counts: tuple[int, ...]
    """How many there were in each step of the histogram of `/metrics`, and above its last."""
    total_s: float


class DelayHistogram:
    """Mutable histogram behind `Delays`."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        """Count a delay."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds
        self.recent.append(seconds)

    def view(self) -> Delays:
        """An immutable copy."""
        ranked = sorted(self.recent)
        p50, p99 = (ranked[int(share * len(ranked))] if ranked else None for share in (0.5, 0.99))
        return Delays(sum(self.counts), p50, p99, tuple(self.counts), self.total_s)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredFrame:
    """The people in one scored frame of a camera; those without a full window have no score."""

    number: int
    wall: float
    size: tuple[int, int]
    """Width and height of the image in pixels."""
    poses: tuple[Pose, ...]
    scores: Mapping[int, float]
    muted: Mapping[int, float] = field(default_factory=dict)
    """Share of seen poses of people whose score does not count for events, by track."""


@dataclass(frozen=True, slots=True, eq=False)
class RecentFrame:
    """One frame: joints `(P, V, 2)` in whole pixels, and the scores that there are."""

    wall: float
    size: tuple[int, int]
    tracks: tuple[int, ...]
    joints: NDArray[np.int16]
    scores: Mapping[int, float]


class RecentFrames:
    """The frames of all cameras of the last minutes; thread-safe, with bounded memory."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._cameras: dict[str, deque[RecentFrame]] = {}

    def add(self, camera: str, frame: ScoredFrame) -> None:
        """Keep a frame, and forget those that are too old."""
        tracks = tuple(pose.track_id for pose in frame.poses)
        kept = RecentFrame(
            frame.wall, frame.size, tracks, whole_pixels(frame.poses), dict(frame.scores)
        )
        with self._lock:
            frames = self._cameras.setdefault(camera, deque(maxlen=MOST_FRAMES))
            while frames and frames[-1].wall > frame.wall:
                frames.pop()  # the clock was set back
            frames.append(kept)
            while frames[0].wall < frame.wall - self._kept_s:
                frames.popleft()

    def between(self, camera: str, first: float, last: float) -> list[RecentFrame]:
        """The frames of a camera in a span of wall-clock time, in order."""
        with self._lock:
            return [one for one in self._cameras.get(camera, ()) if first <= one.wall <= last]


def whole_pixels(poses: Sequence[Pose]) -> NDArray[np.int16]:
    """Joints of people in whole pixels `(P, V, 2)`; `UNSEEN` where none was found."""
    if not poses:
        return np.empty((0, 0, 2), np.int16)
    places = np.stack([pose.keypoints for pose in poses])
    sure = np.stack([pose.confidence for pose in poses]) >= SEEN
    whole = np.clip(np.rint(np.nan_to_num(places)), -32767, 32767).astype(np.int16)
    whole[~sure] = UNSEEN
    return whole


class _Timeline:
    """The highest score of each second of the last hour, where there is one."""

    def __init__(self) -> None:
        self.points: deque[tuple[int, float]] = deque(maxlen=HOUR_S)

    def add(self, wall: float, score: float) -> None:
        second = int(wall)
        while self.points and self.points[-1][0] > second:
            self.points.pop()  # the clock was set back
        if self.points and self.points[-1][0] == second:
            score = max(score, self.points.pop()[1])
        self.points.append((second, score))
        while self.points[0][0] <= second - HOUR_S:
            self.points.popleft()


@dataclass(slots=True, eq=False)
class _Camera:
    """Mutable state of one camera."""

    view: CameraView
    counts: dict[Field, int] = field(default_factory=lambda: dict.fromkeys(FIELDS, 0))
    latency: DelayHistogram = field(default_factory=DelayHistogram)
    alerts: DelayHistogram = field(default_factory=DelayHistogram)
    timeline: _Timeline = field(default_factory=_Timeline)
    load: FrameLoad = field(default_factory=FrameLoad)
    arrivals: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_OVER))
    frame: ScoredFrame | None = None
    n_frames: int = 0
    divisor: int = 1
    """One of so many frames that are asked for is used."""
    hangs: bool = False
    """True while the process that should find its people hangs."""

    def seen(self, now: float) -> CameraView:
        """An immutable view of the camera."""
        frame = self.frame
        return replace(
            self.view,
            counts=dict(self.counts),
            fps=self._fps(now),
            people=0 if frame is None else len(frame.poses),
            last_frame=None if frame is None else frame.wall,
            latency=self.latency.view(),
            alerts=self.alerts.view(),
            load=self._load(now),
        )

    def _load(self, now: float) -> Load:
        view = self.view
        if view.state != "online":
            return Load()
        return self.load.view(now, rate=view.rate, divisor=self.divisor, hangs=self.hangs)

    def _fps(self, now: float) -> float | None:
        """Recent frame rate; it decays when frames stop arriving."""
        if len(self.arrivals) < 2:
            return None
        took = max(self.arrivals[-1], now - 1.0) - self.arrivals[0]
        return (len(self.arrivals) - 1) / took if took > 0 else None


class LiveStatus:
    """Live status of a site; thread-safe, with bounded memory."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._cameras: dict[str, _Camera] = {}
        self.recent = RecentFrames()
        """The people of the last minutes."""
        self._sinks: dict[str, SinkView] = {}
        self._dropped_tasks: dict[str, int] = {}
        self._learning: LearningView | None = None
        self._troubles: tuple[Trouble, ...] = ()

    def camera(
        self,
        name: str,
        *,
        rate: float,
        threshold: float | None,
        model: str,
        zones: Zones,
        skeleton: Skeleton = COCO17,
    ) -> None:
        """Add a camera or update its settings; counters are kept."""
        with self._lock:
            known = self._cameras.get(name)
            nothing = DelayHistogram().view()
            view = CameraView(
                name=name, rate=rate, threshold=threshold, model=model, zones=zones,
                bones=strokes(skeleton), state="offline", reason="not connected yet", since=None,
                counts={}, fps=None, people=0, last_frame=None, drift="", drifted=False,
                limit="", latency=nothing, alerts=nothing,
            )  # fmt: skip
            if known is None:
                self._cameras[name] = _Camera(view)
                return
            known.view = replace(
                known.view,
                rate=rate,
                threshold=threshold,
                model=model,
                zones=zones,
                bones=view.bones,
            )

    def state(self, name: str, state: CaptureState, reason: str, wall: float) -> None:
        """Set the state of a camera."""
        with self._lock:
            camera = self._of(name)
            since = wall if camera.view.state != state else camera.view.since or wall
            if camera.view.state != state:
                camera.load.clear()
            words = hide_directories(reason)
            camera.view = replace(camera.view, state=state, reason=words, since=since)

    def lower_rate(self, name: str, divisor: int) -> None:
        """Set that one of `divisor` frames of a camera is used, since the machine is busy."""
        with self._lock:
            camera = self._of(name)
            if divisor != camera.divisor:  # frames lost before say nothing of the load now
                camera.divisor = divisor
                camera.load.clear()

    def hang(self, cameras: Iterable[str], hangs: bool) -> None:
        """Set whether the process that finds the people of some cameras hangs."""
        with self._lock:
            for camera in map(self._of, cameras):
                if camera.hangs and not hangs:  # frames lost before say nothing of the load now
                    camera.load.clear()
                camera.hangs = hangs

    def frame(
        self,
        name: str,
        number: int,
        wall: float,
        size: tuple[int, int],
        poses: Sequence[Pose],
        scores: Mapping[int, float],
        muted: Mapping[int, float] | None = None,
    ) -> None:
        """Set the people of the latest frame and the scores of the windows it completes."""
        frame = ScoredFrame(number, wall, size, tuple(poses), dict(scores), dict(muted or {}))
        with self._lock:
            camera = self._of(name)
            camera.frame = frame
            camera.n_frames += 1
            camera.arrivals.append(self._clock())
            counted = [score for track, score in scores.items() if track not in frame.muted]
            if counted:
                camera.timeline.add(wall, max(counted))
        self.recent.add(name, frame)

    def count(self, name: str, field: Field, n: int = 1) -> None:
        """Add `n` to a counter of a camera."""
        with self._lock:
            camera = self._of(name)
            if field not in camera.counts:
                raise ConfigError(f"count: expected one of {', '.join(FIELDS)}, got {field!r}")
            camera.counts[field] += n
            if field == "scored":
                camera.load.add(self._clock(), scored=n)
            elif field == "shed" and n:
                camera.load.add(self._clock(), shed=n)

    def observe_latency(self, name: str, seconds: float) -> None:
        """Record the delay from a frame's arrival to its scores."""
        with self._lock:
            self._of(name).latency.add(seconds)

    def observe_alert(self, name: str, seconds: float) -> None:
        """Record the delay from a frame's arrival to the event it starts."""
        with self._lock:
            self._of(name).alerts.add(seconds)

    def drift(self, name: str, words: str, changed: bool, numbers: str = "") -> None:
        """Set whether a camera has drifted from its calibration."""
        with self._lock:
            camera = self._of(name)
            camera.view = replace(camera.view, drift=words, drifted=changed, drift_numbers=numbers)

    def limit(self, name: str, threshold: float | None, words: str) -> None:
        """Set the threshold of a camera and its words."""
        with self._lock:
            camera = self._of(name)
            camera.view = replace(camera.view, threshold=threshold, limit=words)

    def sink(self, name: str, lag: int, failures: int, last_error: str, refused: int = 0) -> None:
        """Set the status of a sink."""
        with self._lock:
            self._sinks[name] = SinkView(name, lag, failures, hide_directories(last_error), refused)

    def forget_sink(self, name: str) -> None:
        """Show a sink no more, until it has a status again."""
        with self._lock:
            self._sinks.pop(name, None)

    def learning(self, view: LearningView) -> None:
        """Set how far the site has learned."""
        with self._lock:
            self._learning = replace(view, problem=hide_directories(view.problem))

    def troubles(self, now: Sequence[Trouble]) -> None:
        """Set what is wrong with the site."""
        with self._lock:
            self._troubles = tuple(now)

    def dropped_tasks(self, by_kind: Mapping[str, int]) -> None:
        """Set the number of background tasks dropped since the start, by kind."""
        with self._lock:
            self._dropped_tasks = dict(by_kind)

    def snapshot(self) -> Snapshot:
        """Current status of the whole site."""
        with self._lock:
            now = self._clock()
            return Snapshot(
                tuple(camera.seen(now) for camera in self._cameras.values()),
                tuple(self._sinks.values()),
                now - self._began,
                dict(self._dropped_tasks),
                self._learning,
                self._troubles,
            )

    def names(self) -> list[str]:
        """The cameras in the order they were added."""
        with self._lock:
            return [*self._cameras]

    def thresholds(self) -> dict[str, float | None]:
        """The event threshold of each camera; None before it has a model."""
        with self._lock:
            return {name: camera.view.threshold for name, camera in self._cameras.items()}

    def timeline(self, name: str) -> list[tuple[int, float]]:
        """Unix second and highest score of each second of the last hour, in order."""
        with self._lock:
            return [*self._of(name).timeline.points]

    def subscribe(self) -> Subscription:
        """Create a subscription to frames; a slow reader only misses old frames."""
        return Subscription(self)

    def frames_after(self, seen: Mapping[str, int]) -> dict[str, tuple[int, ScoredFrame]]:
        """The latest frame of each camera with frames newer than `seen`, and its frame count."""
        with self._lock:
            return {
                name: (camera.n_frames, camera.frame)
                for name, camera in self._cameras.items()
                if camera.frame is not None and camera.n_frames > seen.get(name, 0)
            }

    def _of(self, name: str) -> _Camera:
        try:
            return self._cameras[name]
        except KeyError:
            known = ", ".join(self._cameras) or "none"
            raise ConfigError(
                f"camera {name!r}: expected a camera of the site ({known})",
                hint="add the camera first",
            ) from None


class Subscription:
    """Frames for one reader: the latest unread frame of each camera."""

    def __init__(self, status: LiveStatus) -> None:
        self._status = status
        self._seen: dict[str, int] = {}

    def take(self) -> dict[str, ScoredFrame]:
        """New frames since the last call, by camera; nothing is buffered."""
        new = self._status.frames_after(self._seen)
        self._seen.update({name: n for name, (n, _) in new.items()})
        return {name: frame for name, (_, frame) in new.items()}
