"""Event changes to disk, in order, and work in the background: explanations, recordings."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from stepvad.errors import StepvadError
from stepvad.events.camera import CameraProfile
from stepvad.events.record import Record
from stepvad.events.rules import ChangeKind
from stepvad.explain.event import explain_peak
from stepvad.formats import tracks
from stepvad.poses import Clip
from stepvad.retries import Backoff
from stepvad.site import recorder
from stepvad.site.stages import FailureLog, Loop
from stepvad.site.status import LiveStatus
from stepvad.site.store.changes import ChangeQueue, PendingChange
from stepvad.site.store.database import StoreError
from stepvad.site.store.events import Store
from stepvad.site.store.positions import Position

logger = logging.getLogger(__name__)
FIRST_RETRY_S, LONGEST_RETRY_S = 0.25, 1.0
DEADLINE_S = 60.0
"""Deadline for one write, including a busy disk and the wait for a lock."""
WAIT_S = 0.25

TaskKind = Literal["recording", "explanation", "upkeep", "position"]
MOST: Mapping[TaskKind, int] = {
    "recording": 64,
    "explanation": 200,
    "upkeep": 64,
    "position": 1,
}
"""Maximum queued tasks per kind; beyond it the oldest of that kind is dropped."""
TASK_DEADLINE_S = 300.0
"""Deadline for one task: rebuilding a large store takes minutes on a slow disk."""
FIRST_TASK_RETRY_S, LONGEST_TASK_RETRY_S, RETRIES = 0.5, 5.0, 10
"""A task that fails with a transient error is retried for about half a minute."""
Task = tuple[TaskKind, Callable[[], object]]
"""A function to call in the background; tasks of the same kind share one limit."""


Explain = Callable[[PendingChange, bool], None]
"""Explains a change; the second value is true once it is stored."""


class EventWriter:
    """Stores changes one by one, and queues explanations of stored events.

    A change that cannot be stored stays in the queue and is retried, whatever the error; after a
    while sinks take it from there. Recorded poses are deleted to make room for events only if the
    disk is actually full.
    """

    def __init__(
        self,
        changes: ChangeQueue,
        store: Callable[[ChangeKind, Record], object],
        status: LiveStatus,
        tasks: TaskQueue,
        explain: Explain | None = None,
        *,
        recordings: Path | None = None,
        store_positions: Callable[[Sequence[Position]], None] = lambda positions: None,
    ) -> None:
        """`store` returns once a change is on disk; then `explain` runs in the background.

        `recordings` is the directory of recorded poses, with one subdirectory per camera.
        """
        self.stage = Loop("event-writer", self._store_next, DEADLINE_S)
        self._changes, self._store = changes, store
        self._status, self._tasks, self._explain = status, tasks, explain
        self._recordings, self._store_positions = recordings, store_positions
        self._backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._failures = FailureLog(logger)

    def _store_next(self, loop: Loop) -> bool:
        """Store the oldest change; it leaves the queue once it is on disk."""
        self._pass_positions()
        change = self._changes.first(WAIT_S)
        if change is None:
            # the words of events that have just ended are still to come
            is_explaining = self._tasks.is_explaining and time.monotonic() < loop.ends_at - 0.5
            return is_explaining or len(self._changes) > 0
        try:
            if change.is_news:
                self._store(change.kind, change.record)
        except Exception as error:
            self._report_failure(error)
            # sinks take them from memory: what follows does not wait for the disk either
            for one in self._changes.waiting() if self._changes.is_overdue else ():
                loop.heartbeat.beat()
                self._follow_up(one, is_stored=False)
            left_s = max(loop.ends_at - 0.6 - time.monotonic(), 0.01)
            time.sleep(min(self._backoff.next_s(), left_s))
            if loop.stopping.is_set() and time.monotonic() > loop.ends_at - 0.5:
                logger.error("%d changes of events could not be stored", len(self._changes))
                self._changes.give_up()
                return False
            return True
        if self._backoff.failures:
            logger.warning("events are stored again")
            self._backoff.reset()
            self._status.sink("store", 0, 0, "")
        self._changes.done()
        self._follow_up(change, is_stored=True)
        return True

    def _pass_positions(self) -> None:
        """Store positions that are due, after a way through the background.

        What their changes left to be explained comes before them there, and the words of those
        explanations here.
        """
        while (batch := self._changes.due_positions()) is not None:
            if not batch.is_explained:
                batch.is_explained = True
                self._tasks.put("position", partial(self._changes.put_positions, batch))
                continue
            try:
                self._store_positions(batch.positions)
            except Exception as error:  # the next ones tell as much
                self._failures.log("positions of cameras could not be stored", error)
            batch.is_over = True

    def _report_failure(self, error: Exception) -> None:
        """Report a failed write and, if the disk is full, free space; never raises."""
        if not self._backoff.failures:
            self._failures.log("an event could not be stored, retrying", error)
        self._status.sink(
            *("store", len(self._changes), self._backoff.failures + 1),
            getattr(error, "reason", "") or str(error) or type(error).__name__,
        )
        if self._recordings is not None:  # SQLite calls a used-up quota an I/O error
            try:
                recorder.make_room(self._recordings.glob("*/"))
            except Exception:
                logger.exception("no space could be freed for events")

    def _follow_up(self, change: PendingChange, *, is_stored: bool) -> None:
        """Log and count a change once, and explain it: in the background once it is stored."""
        record, camera = change.record, change.record.camera
        try:
            if not change.is_told and change.kind != "update":
                words = f"score {record.top_score:.1f}, threshold {record.threshold:.1f}"
                logger.info("camera %s: event %s: %s (%s)", camera, record.id, change.kind, words)
            if not change.is_told and change.kind == "new":
                self._status.count(camera, "events")
                self._status.observe_alert(camera, time.monotonic() - change.arrived)
            if change.poses is not None and self._explain is not None:
                if is_stored:
                    self._tasks.put("explanation", partial(self._explain, change, is_stored))
                elif not change.is_told:
                    self._explain(change, is_stored)
        except Exception:
            logger.exception("follow-up work for event %s failed", record.id)
        change.is_told |= not is_stored


def background_stage(tasks: TaskQueue) -> Loop:
    """The stage that runs queued tasks one by one; a failed task does not stop others."""
    failures = FailureLog(logger)

    def run_next(loop: Loop) -> bool:
        task = tasks.take(WAIT_S)
        if task is not None:
            _run_task(*task, loop, failures)
        return task is not None

    return Loop("background", run_next, TASK_DEADLINE_S)


def _run_task(kind: TaskKind, work: Callable[[], object], loop: Loop, failures: FailureLog) -> None:
    """Run a task; retry transient errors, such as a full disk, with back-off."""
    backoff: Backoff | None = None
    while True:
        try:
            work()
            return
        except Exception as error:
            loop.heartbeat.beat()
            backoff = backoff or Backoff(FIRST_TASK_RETRY_S, LONGEST_TASK_RETRY_S)
            is_last = backoff.failures >= RETRIES or not may_pass(error)
            if is_last or backoff.wait(loop.stopping):
                failures.log(f"a background task ({kind}) failed", error)
                return


def may_pass(error: BaseException) -> bool:
    """True if an error may be transient: caused by the system or the store, not by the task."""
    if isinstance(error, StoreError):
        return error.fault != "damaged"
    if isinstance(error, OSError):
        return True
    return error.__cause__ is not None and may_pass(error.__cause__)


class TaskQueue:
    """First-in, first-out queue of tasks; thread-safe."""

    def __init__(self, most: Mapping[TaskKind, int] = MOST) -> None:
        self._most = most
        self._tasks: deque[Task] = deque()
        self._dropped: Counter[TaskKind] = Counter()
        self._running: TaskKind | None = None
        """Kind of the task that was taken last; None once the next is asked for."""
        self._news = threading.Condition()

    def put(self, kind: TaskKind, work: Callable[[], object]) -> None:
        """Add a task; beyond the limit of its kind, drop the oldest of that kind."""
        with self._news:
            self._tasks.append((kind, work))
            same = [at for at, task in enumerate(self._tasks) if task[0] == kind]
            if len(same) > self._most[kind]:
                del self._tasks[same[0]]
                self._dropped[kind] += 1
                if self._dropped[kind] == 1:
                    logger.error("background work falls behind: the oldest %s is dropped", kind)
            self._news.notify_all()

    def take(self, timeout_s: float) -> Task | None:
        """The next task; None if there is none before the timeout."""
        with self._news:
            self._running = None
            self._news.wait_for(lambda: self._tasks, timeout_s)
            if not self._tasks:
                return None
            task = self._tasks.popleft()
            self._running = task[0]
            return task

    @property
    def is_explaining(self) -> bool:
        """True if an explanation waits or is being made."""
        with self._news:
            return "explanation" in (self._running, *(kind for kind, _ in self._tasks))

    def dropped(self) -> dict[str, int]:
        """Number of dropped tasks since the start, by kind."""
        with self._news:
            return {kind: self._dropped[kind] for kind in get_args(TaskKind)}

    def __len__(self) -> int:
        """Number of queued tasks."""
        with self._news:
            return len(self._tasks)


def explain_event(
    store: Store,
    profiles: Mapping[str, CameraProfile],
    changes: ChangeQueue,
    strangest: Callable[[Record, Clip], str | None],
    change: PendingChange,
    is_stored: bool,
) -> None:
    """Store the poses of an event and its explanation, and put its words into the event.

    The event may have ended meanwhile. If it could not be stored yet, its words are all.
    """
    record, poses = change.record, change.poses
    if poses is None or not poses.clip.n_poses:
        return
    # poses first: without them there is no replay; then why, as far as it can be said
    if is_stored:
        store.put_poses(record.id, tracks.to_bytes(poses.clip))
    try:
        # by the limit and the rate that the event began with: both may have changed meanwhile
        profile = profiles[record.camera]
        calm = profile.rules.release * record.threshold
        found = explain_peak(
            *(profile.detector, poses.clip, poses.track, poses.peak_frame), calm=calm
        ).explanation(poses.clip.rate())
        words = found.summary, strangest(record, poses.clip)
    except StepvadError as error:
        logger.info("event %s: no explanation: %s", record.id, error)
        return
    if not is_stored or store.put_explanation(record.id, found):
        now = time.monotonic()
        changes.put(PendingChange("update", record, now, words=words))
