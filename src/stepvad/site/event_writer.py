"""Write event changes to disk in order; failed writes are retried without limit."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from stepvad.incidents.events import ChangeKind
from stepvad.incidents.record import Record
from stepvad.intake.status import LiveStatus
from stepvad.site import recorder
from stepvad.site.background import TaskQueue
from stepvad.site.explainer import EventPoses, Explainer
from stepvad.site.store.database import StoreError
from stepvad.supervision.backoff import Backoff
from stepvad.supervision.logs import FailureLog
from stepvad.supervision.stages import Heartbeat

logger = logging.getLogger(__name__)

FIRST_RETRY_S, LONGEST_RETRY_S = 0.25, 3.0
DEADLINE_S = 60.0
"""Deadline for one write, including a busy disk and the wait for a lock."""
WAIT_S = 0.25
MOST_POSES = 100
"""Maximum queued changes that keep their poses; later ones keep about 2 kB each."""
ALARM = 1000
"""Log an error again each time this many more changes are queued."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingChange:
    """An event change, the arrival time of its frame, and the poses of its people."""

    kind: ChangeKind
    record: Record
    arrived: float
    """Monotonic time."""
    poses: EventPoses | None = None


class ChangeQueue:
    """Queue of changes to be written; thread-safe.

    Starts and ends of events are never dropped. Of consecutive updates of an event only the last
    is kept, and only the first `MOST_POSES` changes keep their poses: the size is bounded by the
    number of events that start while the disk is unavailable.
    """

    def __init__(self) -> None:
        self._waiting: deque[PendingChange] = deque()
        self._news = threading.Condition()

    def put(self, change: PendingChange) -> None:
        """Add a change."""
        with self._news:
            latest = self._waiting[-1] if len(self._waiting) > 1 else None
            if (
                latest is not None
                and (latest.kind, change.kind) == ("update", "update")
                and latest.record.id == change.record.id
            ):
                self._waiting.pop()
            if len(self._waiting) >= MOST_POSES:
                change = replace(change, poses=None)
            self._waiting.append(change)
            self._news.notify_all()

    def first(self, timeout_s: float) -> PendingChange | None:
        """The oldest change, without removing it; None if there is none before the timeout."""
        with self._news:
            self._news.wait_for(lambda: self._waiting, timeout_s)
            return self._waiting[0] if self._waiting else None

    def done(self) -> None:
        """Remove the oldest change, once it is stored."""
        with self._news:
            self._waiting.popleft()

    def __len__(self) -> int:
        """Number of queued changes."""
        with self._news:
            return len(self._waiting)


class EventStore(Protocol):
    """Stores event changes."""

    def change(self, kind: ChangeKind, record: Record) -> object:
        """Store a change; returns once it is on disk."""
        ...


class EventWriter:
    """The stage that stores changes one by one and queues explanations of stored events.

    A change that cannot be stored stays in the queue and is retried, whatever the error. Recorded
    poses are deleted to make room for events only if the disk is actually full.
    """

    name = "event-writer"

    def __init__(
        self,
        changes: ChangeQueue,
        store: EventStore,
        status: LiveStatus,
        tasks: TaskQueue,
        explainer: Explainer | None = None,
        *,
        recordings: Path | None = None,
    ) -> None:
        """`recordings` is the directory of recorded poses, with one subdirectory per camera."""
        self.heartbeat = Heartbeat(DEADLINE_S)
        self._changes, self._store = changes, store
        self._status, self._tasks, self._explainer = status, tasks, explainer
        self._recordings = recordings
        self._stopping = threading.Event()
        self._deadline = float("inf")
        self._backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._failures = FailureLog(logger)

    def run(self) -> None:
        """Store changes until stopped and the queue is empty, or the deadline has passed."""
        while True:
            self.heartbeat.beat()
            change = self._changes.first(WAIT_S)
            if change is None:
                if self._stopping.is_set():
                    return
                continue
            if self._store_one(change):
                self._changes.done()
                self._follow_up(change)
            elif self._stopping.is_set() and time.monotonic() > self._deadline:
                logger.error("%d changes of events could not be stored", len(self._changes))
                return

    def stop(self, deadline: float) -> None:
        """Drain the queue, then stop."""
        self._deadline = deadline - 0.5
        self._stopping.set()

    def _store_one(self, change: PendingChange) -> bool:
        """Store a change; return True once it is on disk, False after an error and back-off."""
        try:
            self._store.change(change.kind, change.record)
        except Exception as error:
            self._trouble(error)
            time.sleep(self._backoff.next_s())
            return False
        if self._backoff.failures:
            logger.warning("events are stored again")
            self._backoff.reset()
            self._status.sink("store", 0, 0, "")
        return True

    def _trouble(self, error: Exception) -> None:
        """Report a failed write and free space if the disk is full; never raises."""
        waiting = len(self._changes)
        if not self._backoff.failures:
            self._failures.log("an event could not be stored, retrying", error)
        elif waiting % ALARM == 0:
            logger.error("%d changes of events wait for the disk", waiting)
        self._status.sink(
            "store", waiting, self._backoff.failures + 1, str(error) or type(error).__name__
        )
        if self._recordings is not None and is_disk_full(error):
            try:
                recorder.make_room(self._recordings.glob("*/"))
            except Exception:
                logger.exception("no space could be freed for events")

    def _follow_up(self, change: PendingChange) -> None:
        """Log and count a stored change, and queue its explanation."""
        record, camera = change.record, change.record.camera
        try:
            if change.kind != "update":
                words = f"score {record.top_score:.1f}, threshold {record.threshold:.1f}"
                logger.info("camera %s: event %s: %s (%s)", camera, record.id, change.kind, words)
            if change.kind == "new":
                self._status.count(camera, "events")
                self._status.observe_alert(camera, time.monotonic() - change.arrived)
            if change.poses is not None and self._explainer is not None:
                explain = partial(self._explainer.explain, change.kind, record, change.poses)
                self._tasks.put("explanation", explain)
        except Exception:
            logger.exception("event %s is stored, but follow-up work failed", record.id)


def is_disk_full(error: Exception) -> bool:
    """Whether an error means that the disk is full."""
    if isinstance(error, StoreError):
        return error.fault == "full"
    return recorder.ran_out_of_space(error)
