"""Periodic work of a site: sink status, overload, retention, drift."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from stepvad.errors import DataError
from stepvad.events import drift
from stepvad.events.calibration import Calibration
from stepvad.events.camera import CameraProfile
from stepvad.events.ledger import HOUR_S
from stepvad.poses import Clip
from stepvad.site import recorder
from stepvad.site.event_writer import TaskQueue
from stepvad.site.frames import CameraListener
from stepvad.site.load import LoadState
from stepvad.site.settings.sections import RetentionSettings
from stepvad.site.stages import FailureLog, Loop
from stepvad.site.status import LiveStatus
from stepvad.site.store.database import StoreError
from stepvad.site.store.events import Store
from stepvad.site.store.outbox import SinkDelivery

logger = logging.getLogger(__name__)
DEADLINE_S = 60.0
WAIT_S = 0.25
STATUS_S = 1.0
CLEAR_CHECKS = 5
"""Checks in a row without overload that end one: a camera at the limit does not flicker."""
PAUSED_S = 10.0
"""A longer time between two looks at the cameras was watched by nobody."""
MOST_CHANGES = 3
"""Number of largest changes to report."""
UNKNOWN = "not compared: its calibration does not describe how people moved"
TOO_SHORT = (
    "not compared: the threshold was set on less than 8 hours with people, too few to detect "
    "a change"
)
DRIFT_REMEDY = "Check that the camera still looks at the same place, then recalibrate"


Job = tuple[float, Callable[[], None]]
"""Work, and its interval in seconds."""


class Housekeeping:
    """Runs jobs at intervals and shows how the sinks keep up; long work goes to the background."""

    def __init__(
        self,
        status: LiveStatus,
        store: Store,
        tasks: TaskQueue,
        deliveries: Sequence[SinkDelivery],
        jobs: Sequence[Job] = (),
    ) -> None:
        """`jobs`: work at fixed intervals; a failure is logged and retried at the next one."""
        self.stage = Loop("housekeeping", self._run_due, DEADLINE_S)
        self._status, self._store, self._tasks = status, store, tasks
        self._deliveries = deliveries
        self._jobs = [(STATUS_S, self._show_status), *jobs]
        self._due = [0.0 for _ in self._jobs]
        self._failures = FailureLog(logger)
        self._clock_doubt = ""

    def _run_due(self, loop: Loop) -> bool:
        if loop.stopping.wait(WAIT_S):
            return False
        for number, (every_s, work) in enumerate(self._jobs):
            if time.monotonic() < self._due[number]:
                continue
            loop.heartbeat.beat()
            self._due[number] = time.monotonic() + every_s
            try:
                work()
            except Exception as error:
                self._failures.log(f"a job that runs every {every_s:g} s failed", error)
        return False

    def _show_status(self) -> None:
        self._status.dropped_tasks(self._tasks.dropped())
        if self._store.clock_doubt != self._clock_doubt:
            self._clock_doubt = self._store.clock_doubt
            self._status.sink("store", 0, 0, self._clock_doubt)
        for delivery in [*self._deliveries]:
            lag = self._store.outbox.lag(delivery.name)
            self._status.sink(
                *(delivery.name, lag, delivery.failures, delivery.last_error or ""),
                refused=delivery.refused,
            )


class LoadWatch:
    """Reports to the log and the listeners when a camera becomes overloaded and when that ends."""

    def __init__(self, status: LiveStatus, listeners: Collection[CameraListener] = ()) -> None:
        self._status, self._listeners = status, listeners
        self._reported: dict[str, LoadState] = {}
        self._calm: dict[str, int] = {}

    def report_changes(self) -> None:
        """Report what changed since the last check; an overload has to be over for a while."""
        for view in self._status.snapshot().cameras:
            before, now = self._reported.get(view.name, "ok"), view.load.state
            self._calm[view.name] = self._calm.get(view.name, 0) + 1 if now == "ok" else 0
            # a camera at the limit does not flicker: an overload has to be over for a while
            is_over = now == "ok" and self._calm[view.name] >= CLEAR_CHECKS
            if now == before or (now == "ok" and not is_over):
                continue
            self._reported[view.name] = now
            if now == "ok":
                logger.info("camera %s is no longer overloaded", view.name)
            else:
                logger.warning("camera %s is %s", view.name, view.load.advice)
            for listener in [*self._listeners]:
                listener.load(view.name, now)


class WatchedTime:
    """Counts how long each camera was watched, hour by hour, until it is stored.

    A camera is watched while it is online and its people are judged, or learned from, whether there
    are any or not.
    """

    def __init__(
        self,
        status: LiveStatus,
        store: Store,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._status, self._store, self._clock, self._wall = status, store, clock, wall
        self._at = clock()
        self._lock = threading.Lock()
        self._seconds: dict[tuple[str, int], float] = {}

    def count(self) -> None:
        """Add the time since the last call, unless the process was paused."""
        now = self._clock()
        passed_s, self._at = now - self._at, now
        if passed_s > PAUSED_S:
            return
        hour = int(self._wall() // HOUR_S)
        for view in self._status.snapshot().cameras:
            if view.state == "online" and view.load.state != "not watching":
                key = view.name, hour
                with self._lock:
                    self._seconds[key] = self._seconds.get(key, 0.0) + passed_s

    def save(self) -> None:
        """Store what was counted; if the disk refuses it, the next call does.

        Nothing is raised: a task that is tried again would keep explanations waiting.
        """
        with self._lock, suppress(StoreError):
            self._store.add_watched(self._seconds)
            self._seconds.clear()


@dataclass(slots=True, eq=False)
class CameraDrift:
    """Compares the recent footage of one camera with its calibration."""

    profile: CameraProfile
    calibration: Calibration
    status: LiveStatus
    monitor: drift.DriftMonitor | None = field(init=False, default=None)
    _reason: str = field(init=False, default=UNKNOWN)
    _numbers: str = field(init=False, default="")
    _was_changed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        before = self.before
        if before is None:
            return
        try:
            self.monitor = drift.DriftMonitor(before)
        except DataError as error:
            self._reason = TOO_SHORT
            self._numbers = str(error)

    @property
    def before(self) -> drift.BlockStats | None:
        """Statistics of the camera at its calibration, or else of all cameras."""
        # too few blocks of its own: those of all cameras
        stats = self.calibration.block_stats
        own = stats.get(self.profile.camera)
        if own is not None and len(own) >= drift.FEWEST_BLOCKS:
            return own
        return drift.BlockStats.join([*stats.values()]) if stats else None

    def add_footage(self, clip: Clip) -> None:
        """Add the end of some footage to the statistics."""
        if self.monitor is not None:
            block = latest_block(clip)
            _, stats = drift.score_with_stats(self.profile.detector, block, clip.rate())
            self.monitor.observe(stats)

    def report(self) -> None:
        """Update the live status; log a warning when drift starts."""
        camera = self.profile.camera
        # nothing to compare with: say why
        if self.monitor is None:
            self.status.drift(camera, self._reason, False, self._numbers)
            return
        changed, text = self.monitor.has_changed, drift_words(self.monitor)
        if changed and not self._was_changed:
            logger.warning("camera %s: %s (%s)", camera, text, drift_numbers(self.monitor))
        self._was_changed = changed
        self.status.drift(camera, text, changed, drift_numbers(self.monitor))


def delete_old_data(store: Store, recordings: Path, kept: RetentionSettings) -> None:
    """Delete expired events and recorded poses."""
    now = time.time()
    done = store.retain(kept, now)
    files = recorder.retain(
        recordings,
        days=math.inf if store.clock_doubt else kept.poses_days,
        most_mb=kept.poses_mb,
        now=now,
    )
    if done.events or done.poses or files:
        logger.info(
            "retention deleted %d events, poses of %d more, %d recorded files",
            *(done.events, done.poses, files),
        )


def latest_block(clip: Clip) -> Clip:
    """The end of a clip, one block long."""
    # the rows of the last seconds, counted from the first of them
    first = max(clip.n_frames - round(drift.BLOCK_S * clip.rate()), 0)
    parts = [track.between(first, clip.n_frames) for track in clip.tracks]
    tracks = tuple(replace(part, frames=part.frames - first) for part in parts if len(part))
    return replace(clip, n_frames=clip.n_frames - first, tracks=tracks)


def drift_words(monitor: drift.DriftMonitor) -> str:
    """Describe the drift of a camera from its two-hour spans, for a guard."""
    if not monitor.spans_seen:
        looked = drift.SPAN_BLOCKS - monitor.missing
        return f"too early to tell: people were compared {looked} of {drift.SPAN_BLOCKS} times"
    if not monitor.in_a_row:
        return "people move as they did when the threshold was set"
    if not monitor.has_changed:
        return (
            f"people have moved differently for {2 * monitor.in_a_row} hours; it counts after "
            f"{2 * monitor.needed}"
        )
    # the meanings of the largest changes, each once
    found = [_meaning(change) for change in monitor.changes()[:MOST_CHANGES]]
    kinds = ", ".join(dict.fromkeys(found))
    return f"people move differently than when the threshold was set: {kinds}. {DRIFT_REMEDY}"


def drift_numbers(monitor: drift.DriftMonitor) -> str:
    """The largest changes, for experts."""
    return ", ".join(
        f"{change.name} {change.before:.3g} then and {change.now:.3g} now"
        for change in monitor.changes()[:MOST_CHANGES]
    )


def _meaning(change: drift.Shift) -> str:
    """Meaning of a changed statistic to somebody who looks at the camera."""
    more = change.now > change.before
    match change.name:
        case "score":
            return "more unusual movement" if more else "less unusual movement"
        case "confidence":
            return "people seen more clearly" if more else "people seen less clearly"
        case "jitter of joints":
            return "joints shake more" if more else "joints shake less"
        case "motion":
            return "other speeds"
        case "place":
            return "other places in the picture"
        case name if name.startswith("spread"):
            return "more varied movement" if more else "less varied movement"
        case _:
            return "other postures"
