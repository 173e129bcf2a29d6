"""Periodic work of a site: sink status, overload, retention, drift."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from stepvad.intake.load import REMEDY, LoadListener, LoadState
from stepvad.intake.status import LiveStatus
from stepvad.settings.sections import RetentionSettings
from stepvad.site import recorder
from stepvad.site.background import TaskQueue
from stepvad.site.drifting import CameraDrift
from stepvad.site.mark_follower import MarkFollower
from stepvad.site.sinks.delivery import SinkDelivery
from stepvad.site.store.events import Store
from stepvad.supervision.logs import FailureLog
from stepvad.supervision.stages import Heartbeat

logger = logging.getLogger(__name__)

DEADLINE_S = 60.0
WAIT_S = 0.25
STATUS_S, LOAD_S, MARKS_S, RETAIN_S, DRIFT_S = 1.0, 2.0, 3.0, 600.0, 600.0
CALM_LOOKS = 5
"""How many looks in a row without overload end one: a camera at the limit does not flicker."""


class Housekeeping:
    """The stage for periodic work; long jobs go to the background."""

    name = "housekeeping"

    def __init__(
        self,
        status: LiveStatus,
        tasks: TaskQueue,
        store: Store,
        deliveries: Sequence[SinkDelivery],
        retain: Callable[[], None],
        drifting: Sequence[CameraDrift],
        marks: MarkFollower,
        listeners: Sequence[LoadListener] = (),
    ) -> None:
        """`retain` deletes what has expired; `listeners` hear of cameras that become overloaded."""
        self.heartbeat = Heartbeat(DEADLINE_S)
        self._status, self._tasks, self._store = status, tasks, store
        self._deliveries, self._drifting = deliveries, drifting
        self._retain, self._marks = retain, marks
        self._load = LoadWatch(status, listeners)
        self._clock_doubt = ""
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run the jobs until stopped; a failed job is retried at its next interval."""
        jobs = [
            _Every(STATUS_S, self._show_status),
            _Every(RETAIN_S, lambda: self._tasks.put("upkeep", self._retain)),
            _Every(MARKS_S, lambda: self._tasks.put("upkeep", self._marks.follow)),
            _Every(LOAD_S, self._load.look),
            *(
                _Every(DRIFT_S, partial(self._tasks.put, "upkeep", one.tell), at_once=False)
                for one in self._drifting
            ),
        ]
        while not self._stopping.wait(WAIT_S):
            for job in jobs:
                self.heartbeat.beat()
                job.run(time.monotonic())

    def stop(self, deadline: float) -> None:
        """Request the stage to stop."""
        self._stopping.set()

    def _show_status(self) -> None:
        self._status.dropped_tasks(self._tasks.dropped())
        if self._store.clock_doubt != self._clock_doubt:
            self._clock_doubt = self._store.clock_doubt
            self._status.sink("store", 0, 0, self._clock_doubt)
        for delivery in self._deliveries:
            lag = self._store.outbox.lag(delivery.name)
            self._status.sink(
                *(delivery.name, lag, delivery.failures, delivery.last_error or ""),
                refused=delivery.refused,
            )


class LoadWatch:
    """Tells the log and the listeners when a camera becomes overloaded and when that ends."""

    def __init__(self, status: LiveStatus, listeners: Sequence[LoadListener] = ()) -> None:
        self._status, self._listeners = status, listeners
        self._told: dict[str, LoadState] = {}
        self._calm: dict[str, int] = {}

    def look(self) -> None:
        """Tell what changed since the last look; an overload has to be over for a while."""
        for view in self._status.snapshot().cameras:
            before, now = self._told.get(view.name, "ok"), view.load.state
            self._calm[view.name] = self._calm.get(view.name, 0) + 1 if now == "ok" else 0
            is_over = now == "ok" and self._calm[view.name] >= CALM_LOOKS
            if now == before or (now == "ok" and not is_over):
                continue
            self._told[view.name] = now
            if now == "ok":
                logger.info("camera %s is no longer overloaded", view.name)
            else:
                logger.warning("camera %s is %s; %s", view.name, view.load.words, REMEDY)
            for listener in self._listeners:
                listener.load(view.name, now)


def delete_old_data(store: Store, recordings: Path, kept: RetentionSettings) -> None:
    """Delete expired events and recorded poses."""
    now = time.time()
    done = store.retain(kept, now)
    files = recorder.retain(
        recordings,
        days=math.inf if store.clock_doubt else kept.poses_days,
        most_mb=kept.poses_mb,
        now=now,
        stamp=store.stamp(now),
    )
    if done.events or done.poses or files:
        logger.info(
            "retention deleted %d events, poses of %d more, %d recorded files",
            *(done.events, done.poses, files),
        )


class _Every:
    """A job that runs at a fixed interval."""

    def __init__(self, seconds: float, task: Callable[[], None], *, at_once: bool = True) -> None:
        self._seconds, self._task = seconds, task
        self._failures = FailureLog(logger)
        self._next = time.monotonic() + (0.0 if at_once else seconds)

    def run(self, now: float) -> None:
        """Run the job if it is due; a failure is logged and retried at the next interval."""
        if now < self._next:
            return
        self._next = now + self._seconds
        try:
            self._task()
        except Exception as error:
            self._failures.log(f"a job that runs every {self._seconds:g} s failed", error)
