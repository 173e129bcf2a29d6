"""Event changes to disk, in order, and work in the background: explanations, recordings."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from stepvad.errors import StepvadError
from stepvad.events.camera import CameraProfile, in_words
from stepvad.events.record import Record
from stepvad.events.rules import ChangeKind
from stepvad.explain.event import explain_peak
from stepvad.formats import tracks
from stepvad.poses import Clip
from stepvad.retries import Backoff
from stepvad.site import recorder
from stepvad.site.intake.status import LiveStatus
from stepvad.site.stages import FailureLog, Loop
from stepvad.site.store.database import StoreError
from stepvad.site.store.events import Store

logger = logging.getLogger(__name__)
FIRST_RETRY_S, LONGEST_RETRY_S = 0.25, 3.0
DEADLINE_S = 60.0
"""Deadline for one write, including a busy disk and the wait for a lock."""
WAIT_S = 0.25
MOST_POSES = 100
"""Maximum queued changes that keep their poses; later ones keep about 2 kB each."""
MOST_KNOWN = 1000
"""Events whose state and words are remembered for later changes of them, about 2 kB each."""
ALARM = 1000
"""Log an error again each time this many more changes are queued."""

TaskKind = Literal["recording", "explanation", "upkeep"]
MOST: Mapping[TaskKind, int] = {"recording": 64, "explanation": 200, "upkeep": 64}
"""Maximum queued tasks per kind; beyond it the oldest of that kind is dropped."""
TASK_DEADLINE_S = 300.0
"""Deadline for one task: rebuilding a large store takes minutes on a slow disk."""
FIRST_TASK_RETRY_S, LONGEST_TASK_RETRY_S, RETRIES = 0.5, 5.0, 10
"""A task that fails with a transient error is retried for about half a minute."""
Task = tuple[TaskKind, Callable[[], None]]
"""A function to call in the background; tasks of the same kind share one limit."""


class EventWriter:
    """Stores changes one by one, and queues explanations of stored events.

    A change that cannot be stored stays in the queue and is retried, whatever the error. Recorded
    poses are deleted to make room for events only if the disk is actually full.
    """

    def __init__(
        self,
        changes: ChangeQueue,
        store: Callable[[ChangeKind, Record], object],
        status: LiveStatus,
        tasks: TaskQueue,
        explain: Callable[[Record, EventPoses], None] | None = None,
        *,
        recordings: Path | None = None,
    ) -> None:
        """`store` returns once a change is on disk, `explain` runs in the background.

        `recordings` is the directory of recorded poses, with one subdirectory per camera.
        """
        self.stage = Loop("event-writer", self._store_next, DEADLINE_S)
        self._changes, self._store = changes, store
        self._status, self._tasks, self._explain = status, tasks, explain
        self._recordings = recordings
        self._backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._failures = FailureLog(logger)
        self._latest: dict[str, Record] = {}
        """The events changed last, as stored, by id."""
        self._summaries: dict[str, str] = {}
        """The words of their explanations."""

    def _store_next(self, loop: Loop) -> bool:
        """Store the oldest change; it leaves the queue once it is on disk."""
        change = self._changes.first(WAIT_S)
        if change is None:
            # the words of events that have just ended are still to come
            return self._tasks.is_explaining and time.monotonic() < loop.ends_at - 0.5
        change = self._in_words(change)
        try:
            if not self._is_known(change.record):
                self._store(change.kind, change.record)
        except Exception as error:
            self._report_failure(error)
            time.sleep(self._backoff.next_s())
            if loop.stopping.is_set() and time.monotonic() > loop.ends_at - 0.5:
                logger.error("%d changes of events could not be stored", len(self._changes))
                return False
            return True
        if self._backoff.failures:
            logger.warning("events are stored again")
            self._backoff.reset()
            self._status.sink("store", 0, 0, "")
        self._changes.done()
        self._latest.pop(change.record.id, None)
        self._latest[change.record.id] = change.record
        if len(self._latest) > MOST_KNOWN:
            oldest = next(iter(self._latest))
            del self._latest[oldest]
            self._summaries.pop(oldest, None)
        self._follow_up(change)
        return True

    def _is_known(self, record: Record) -> bool:
        """True if a change changes nothing: it only has poses to explain, or the same words."""
        known = self._latest.get(record.id)
        return known is not None and replace(known, version=record.version) == record

    def _in_words(self, change: PendingChange) -> PendingChange:
        """The change in the latest words of its event; words alone leave the rest as it was."""
        record = change.record
        if change.summary is not None:
            self._summaries[record.id] = change.summary
            record = replace(self._latest.get(record.id, record), version=record.version)
        summary = self._summaries.get(record.id)
        return change if summary is None else replace(change, record=in_words(record, summary))

    def _report_failure(self, error: Exception) -> None:
        """Report a failed write and free space if the disk is full; never raises."""
        # one line at first, then one for each thousand
        waiting = len(self._changes)
        if not self._backoff.failures:
            self._failures.log("an event could not be stored, retrying", error)
        elif waiting % ALARM == 0:
            logger.error("%d changes of events wait for the disk", waiting)
        self._status.sink(
            "store", waiting, self._backoff.failures + 1, str(error) or type(error).__name__
        )
        is_full = error.fault == "full" if isinstance(error, StoreError) else False
        if self._recordings is not None and (is_full or recorder.ran_out_of_space(error)):
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
            if change.poses is not None and self._explain is not None:
                explain = partial(self._explain, record, change.poses)
                self._tasks.put("explanation", explain)
        except Exception:
            logger.exception("event %s is stored, but follow-up work failed", record.id)


class ChangeQueue:
    """Queue of changes to be written; thread-safe.

    Starts and ends of events are never dropped. Of consecutive updates of an event only the last
    is kept, and only the first `MOST_POSES` changes keep their poses: the size is bounded by the
    number of events that start while the disk is unavailable.
    """

    def __init__(self, next_version: Callable[[], int] = lambda: 0) -> None:
        """`next_version` numbers the changes, before the first attempt to store them."""
        self._next_version = next_version
        self._waiting: deque[PendingChange] = deque()
        self._news = threading.Condition()

    def put(self, change: PendingChange) -> None:
        """Add a change."""
        with self._news:
            record = replace(change.record, version=self._next_version())
            change = replace(change, record=record)
            # the oldest change may be on its way to the disk: it is never replaced
            latest = self._waiting[-1] if len(self._waiting) > 1 else None
            # of two updates of an event only the later one counts, but words stay as they are
            if (
                latest is not None
                and (latest.kind, change.kind) == ("update", "update")
                and latest.record.id == change.record.id
                and latest.summary is None
                and change.summary is None
            ):
                self._waiting.pop()
                change = replace(change, poses=change.poses or latest.poses)
            # poses are what takes memory
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


@dataclass(frozen=True, slots=True, eq=False)
class PendingChange:
    """An event change, the arrival time of its frame, and the poses of its people."""

    kind: ChangeKind
    record: Record
    arrived: float
    """Monotonic time."""
    poses: EventPoses | None = None
    summary: str | None = None
    """The words of an explanation: all that an update with them changes."""


def background_stage(tasks: TaskQueue) -> Loop:
    """The stage that runs queued tasks one by one; a failed task does not stop others."""
    failures = FailureLog(logger)

    def run_next(loop: Loop) -> bool:
        task = tasks.take(WAIT_S)
        if task is not None:
            _run_task(*task, loop, failures)
        return task is not None

    return Loop("background", run_next, TASK_DEADLINE_S)


def _run_task(kind: TaskKind, work: Callable[[], None], loop: Loop, failures: FailureLog) -> None:
    """Run a task; retry transient errors, such as a full disk, with back-off."""
    backoff: Backoff | None = None
    while True:
        try:
            return work()
        except Exception as error:
            loop.heartbeat.beat()
            backoff = backoff or Backoff(FIRST_TASK_RETRY_S, LONGEST_TASK_RETRY_S)
            is_last = backoff.failures >= RETRIES or not may_pass(error)
            if is_last or backoff.wait(loop.stopping):
                failures.log(f"a background task ({kind}) failed", error)
                return None


def may_pass(error: BaseException) -> bool:
    """True if an error may be transient: caused by the system or the store, not by the task."""
    if isinstance(error, StoreError):
        return error.remedy != "give up"
    if isinstance(error, OSError):
        return True
    return error.__cause__ is not None and may_pass(error.__cause__)


class TaskQueue:
    """First-in, first-out queue of tasks; thread-safe."""

    def __init__(self, most: Mapping[TaskKind, int] = MOST) -> None:
        self._most = most
        self._tasks: deque[Task] = deque()
        self._waiting: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._running: TaskKind | None = None
        """Kind of the task that was taken last; None once the next is asked for."""
        self._news = threading.Condition()

    def put(self, kind: TaskKind, work: Callable[[], None]) -> None:
        """Add a task; beyond the limit of its kind, drop the oldest of that kind."""
        with self._news:
            self._tasks.append((kind, work))
            self._waiting[kind] += 1
            if self._waiting[kind] > self._most[kind]:
                self._drop_oldest(kind)
            self._news.notify_all()

    def take(self, timeout_s: float) -> Task | None:
        """The next task; None if there is none before the timeout."""
        with self._news:
            self._running = None
            self._news.wait_for(lambda: self._tasks, timeout_s)
            if not self._tasks:
                return None
            # first in, first out
            task = self._tasks.popleft()
            self._running = task[0]
            self._waiting[task[0]] -= 1
            return task

    @property
    def is_explaining(self) -> bool:
        """True while an explanation is waiting or running."""
        with self._news:
            return self._waiting["explanation"] > 0 or self._running == "explanation"

    def dropped(self) -> dict[str, int]:
        """Number of dropped tasks since the start, by kind."""
        with self._news:
            return {kind: self._dropped[kind] for kind in get_args(TaskKind)}

    def __len__(self) -> int:
        """Number of queued tasks."""
        with self._news:
            return len(self._tasks)

    def _drop_oldest(self, kind: TaskKind) -> None:
        oldest = next(i for i, task in enumerate(self._tasks) if task[0] == kind)
        del self._tasks[oldest]
        self._waiting[kind] -= 1
        self._dropped[kind] += 1
        if self._dropped[kind] == 1:
            logger.error("background work falls behind: the oldest %s is dropped", kind)


@dataclass(frozen=True, slots=True, eq=False)
class EventPoses:
    """The people of an event: their poses, and the frame of the peak."""

    clip: Clip
    peak_frame: int
    track: int


def explain_event(
    store: Store,
    profiles: Mapping[str, CameraProfile],
    changes: ChangeQueue,
    record: Record,
    poses: EventPoses,
) -> None:
    """Store the poses of an event and its explanation, and put its words into the event.

    The event may have ended meanwhile.
    """
    if not poses.clip.n_poses:
        return
    # poses first: without them there is no replay; then why, as far as it can be said
    store.put_poses(record.id, tracks.to_bytes(poses.clip))
    try:
        # by the limit and the rate that the event began with: both may have changed meanwhile
        profile = profiles[record.camera]
        calm = profile.rules.release * record.threshold
        found = explain_peak(
            *(profile.detector, poses.clip, poses.track, poses.peak_frame), calm=calm
        ).explanation(poses.clip.rate())
    except StepvadError as error:
        logger.info("event %s: no explanation: %s", record.id, error)
        return
    if store.put_explanation(record.id, found):
        now = time.monotonic()
        changes.put(PendingChange("update", record, now, summary=found.summary))
