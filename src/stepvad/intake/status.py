"""Live status of a site: written by the pipeline, read by the web page and the metrics."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from stepvad.errors import ConfigError
from stepvad.poses import Pose
from stepvad.skeletons import COCO17, Skeleton

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
BUCKETS_S = (
    *(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0),
)
"""Upper bounds of the histogram buckets for delays."""
RECENT = 1000
"""Number of latest delays used for quantiles."""
RATE_OVER = 50
"""Number of latest frames used to measure the frame rate."""


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


@dataclass(frozen=True, slots=True)
class Delays:
    """Histogram of delays: counts by `BUCKETS_S` plus overflow, and the latest delays."""

    counts: tuple[int, ...]
    total_s: float
    recent: tuple[float, ...]

    @property
    def n(self) -> int:
        """Number of delays observed."""
        return sum(self.counts)

    def quantiles(self, *shares: float) -> list[float | None]:
        """Quantiles of the latest delays; None before the first."""
        ranked = sorted(self.recent)
        if not ranked:
            return [None for _ in shares]
        return [ranked[min(int(share * len(ranked)), len(ranked) - 1)] for share in shares]


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraView:
    """Current status of one camera."""

    name: str
    rate: float
    threshold: float
    model: str
    zones: Zones
    skeleton: Skeleton
    state: CaptureState
    reason: str
    """Why the camera is not online; empty if it is."""
    since: float | None
    """Unix time of the last state change; None before the first."""
    counts: Mapping[Field, int]
    fps: float | None
    """Measured rate of scored frames; None with fewer than two frames."""
    people: int
    last_wall: float | None
    """Unix time of the latest frame."""
    drift: str
    drifted: bool
    latency: Delays
    """Delay from the arrival of a frame to its scores."""
    alerts: Delays
    """Delay from the arrival of a frame to the event it starts."""


@dataclass(frozen=True, slots=True)
class SinkView:
    """Current status of one sink: pending events, failures and dead letters."""

    name: str
    lag: int
    failures: int
    last_error: str
    refused: int = 0
    """Messages that became dead letters since the start."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Status of the whole site at one moment."""

    cameras: tuple[CameraView, ...]
    sinks: tuple[SinkView, ...]
    uptime_s: float
    dropped_tasks: Mapping[str, int] = field(default_factory=dict)
    """Background tasks dropped because the queue was full, by kind."""


class _Delays:
    """Mutable histogram behind `Delays`."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0
        self.recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds
        self.recent.append(seconds)

    def view(self) -> Delays:
        return Delays(tuple(self.counts), self.total_s, tuple(self.recent))


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
    latency: _Delays = field(default_factory=_Delays)
    alerts: _Delays = field(default_factory=_Delays)
    timeline: _Timeline = field(default_factory=_Timeline)
    arrivals: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_OVER))
    frame: ScoredFrame | None = None
    n_frames: int = 0

    def seen(self, now: float) -> CameraView:
        """An immutable view of the camera."""
        frame = self.frame
        return replace(
            self.view,
            counts=dict(self.counts),
            fps=self._fps(now),
            people=0 if frame is None else len(frame.poses),
            last_wall=None if frame is None else frame.wall,
            latency=self.latency.view(),
            alerts=self.alerts.view(),
        )

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
        self._sinks: dict[str, SinkView] = {}
        self._dropped_tasks: dict[str, int] = {}

    def camera(
        self,
        name: str,
        *,
        rate: float,
        threshold: float,
        model: str,
        zones: Zones,
        skeleton: Skeleton = COCO17,
    ) -> None:
        """Add a camera or update its settings; counters are kept."""
        with self._lock:
            known = self._cameras.get(name)
            nothing = _Delays().view()
            view = CameraView(
                name=name, rate=rate, threshold=threshold, model=model, zones=zones,
                skeleton=skeleton, state="offline", reason="not connected yet", since=None,
                counts={}, fps=None, people=0, last_wall=None, drift="", drifted=False,
                latency=nothing, alerts=nothing,
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
                skeleton=skeleton,
            )

    def state(self, name: str, state: CaptureState, reason: str, wall: float) -> None:
        """Set the state of a camera."""
        with self._lock:
            camera = self._of(name)
            since = wall if camera.view.state != state else camera.view.since or wall
            camera.view = replace(camera.view, state=state, reason=reason, since=since)

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

    def count(self, name: str, field: Field, n: int = 1) -> None:
        """Add `n` to a counter of a camera."""
        with self._lock:
            counts = self._of(name).counts
            if field not in counts:
                raise ConfigError(f"count: expected one of {', '.join(FIELDS)}, got {field!r}")
            counts[field] += n

    def observe_latency(self, name: str, seconds: float) -> None:
        """Record the delay from a frame's arrival to its scores."""
        with self._lock:
            self._of(name).latency.add(seconds)

    def observe_alert(self, name: str, seconds: float) -> None:
        """Record the delay from a frame's arrival to the event it starts."""
        with self._lock:
            self._of(name).alerts.add(seconds)

    def drift(self, name: str, words: str, changed: bool) -> None:
        """Set whether a camera has drifted from its calibration."""
        with self._lock:
            camera = self._of(name)
            camera.view = replace(camera.view, drift=words, drifted=changed)

    def sink(self, name: str, lag: int, failures: int, last_error: str, refused: int = 0) -> None:
        """Set the status of a sink."""
        with self._lock:
            self._sinks[name] = SinkView(name, lag, failures, last_error, refused)

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
            )

    def names(self) -> list[str]:
        """The cameras in the order they were added."""
        with self._lock:
            return [*self._cameras]

    def thresholds(self) -> dict[str, float]:
        """The event threshold of each camera."""
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
