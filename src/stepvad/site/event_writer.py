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
from typing import Generic, Literal, Protocol, TypeVar, get_args

from stepvad.errors import DataError, StepvadError
from stepvad.events.camera import CameraProfile
from stepvad.events.record import Record
from stepvad.events.rules import ChangeKind
from stepvad.explain.event import EventExplanation, explain_peak
from stepvad.poses import Clip
from stepvad.retries import Backoff
from stepvad.site import recorder
from stepvad.site.intake.status import LiveStatus
from stepvad.site.recorder import packed
from stepvad.site.stages import FailureLog, Heartbeat
from stepvad.site.store.database import StoreError
from stepvad.site.store.events import Store

logger = logging.getLogger(__name__)
FIRST_RETRY_S, LONGEST_RETRY_S = 0.25, 3.0
DEADLINE_S = 60.0
"""Deadline for one write, including a busy disk and the wait for a lock."""
WAIT_S = 0.25
MOST_POSES = 100
"""Maximum queued changes that keep their poses; later ones keep about 2 kB each."""
ALARM = 1000
"""Log an error again each time this many more changes are queued."""

TaskKind = Literal["recording", "explanation", "upkeep"]
MOST: Mapping[TaskKind, int] = {"recording": 64, "explanation": 200, "upkeep": 64}
"""Maximum queued tasks per kind; beyond it the oldest of that kind is dropped."""
MOST_ITEMS = 1000
"""Maximum items in a mailbox."""
TASK_DEADLINE_S = 300.0
"""Deadline for one task: rebuilding a large store takes minutes on a slow disk."""
FIRST_TASK_RETRY_S, LONGEST_TASK_RETRY_S, RETRIES = 0.5, 5.0, 10
"""A task that fails with a transient error is retried for about half a minute."""
Task = tuple[TaskKind, Callable[[], None]]
"""A function to call in the background; tasks of the same kind share one limit."""
Item = TypeVar("Item")


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


@dataclass(frozen=True, slots=True, eq=False)
class PendingChange:
    """An event change, the arrival time of its frame, and the poses of its people."""

    kind: ChangeKind
    record: Record
    arrived: float
    """Monotonic time."""
    poses: EventPoses | None = None


class BackgroundTasks:
    """The stage that runs queued tasks one by one."""

    name = "background"

    def __init__(self, tasks: TaskQueue) -> None:
        self.heartbeat = Heartbeat(TASK_DEADLINE_S)
        self._tasks = tasks
        self._failures = FailureLog(logger)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run tasks until stopped and the queue is empty; a failed task does not stop others."""
        while True:
            self.heartbeat.beat()
            task = self._tasks.take(WAIT_S)
            if task is None:
                if self._stopping.is_set():
                    return
                continue
            self._do(*task)

    def stop(self, deadline: float) -> None:
        """Drain the queue, then stop."""
        self._stopping.set()

    def _do(self, kind: TaskKind, work: Callable[[], None]) -> None:
        """Run a task; retry transient errors, such as a full disk, with back-off."""
        backoff = Backoff(FIRST_TASK_RETRY_S, LONGEST_TASK_RETRY_S)
        while True:
            try:
                work()
            except Exception as error:
                self.heartbeat.beat()
                last = backoff.failures >= RETRIES or not may_pass(error)
                if last or backoff.wait(self._stopping):
                    self._failures.log(f"a background task ({kind}) failed", error)
                    return
            else:
                return


class TaskQueue:
    """First-in, first-out queue of tasks; thread-safe."""

    def __init__(self, most: Mapping[TaskKind, int] = MOST) -> None:
        self._most = most
        self._tasks: deque[Task] = deque()
        self._waiting: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
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
            self._news.wait_for(lambda: self._tasks, timeout_s)
            if not self._tasks:
                return None
            task = self._tasks.popleft()
            self._waiting[task[0]] -= 1
            return task

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


class Explainer:
    """Explains events when they start and end, and returns stored explanations."""

    def __init__(
        self, store: Store, profiles: Mapping[str, CameraProfile], explained: ExplainedQueue
    ) -> None:
        self._store, self._profiles, self._explained = store, profiles, explained

    def explain(self, kind: ChangeKind, record: Record, poses: EventPoses) -> None:
        """Store the poses of an event and its explanation."""
        if not poses.clip.n_poses:
            return
        self._store.put_poses(record.id, packed(poses.clip))
        try:
            profile = self._profiles[record.camera]
            found = explain_peak(
                *(profile.detector, poses.clip, poses.track, poses.peak_frame),
                calm=profile.rules.calm,
            ).explanation(profile.rate)
        except StepvadError as error:
            logger.info("event %s: no explanation: %s", record.id, error)
            return
        self._store.put_explanation(record.id, found)
        if kind == "new":
            self._explained.put(Explained(record.camera, record.id, found.summary))

    def explanation(self, id: str) -> EventExplanation:
        """The stored explanation of an event."""
        found = self._store.explained(id)
        if found is None:
            raise DataError(
                f"event {id}: expected an explanation, got none",
                hint="it follows the event within moments, and is deleted with its poses",
            )
        return found


class EventStore(Protocol):
    """Stores event changes."""

    def change(self, kind: ChangeKind, record: Record) -> object:
        """Store a change; returns once it is on disk."""
        ...


def is_disk_full(error: Exception) -> bool:
    """Whether an error means that the disk is full."""
    if isinstance(error, StoreError):
        return error.fault == "full"
    return recorder.ran_out_of_space(error)


class Mailbox(Generic[Item]):
    """Items from any thread for one reader, such as explanations and limits for scoring.

    Beyond `MOST_ITEMS` the oldest is dropped.
    """

    def __init__(self) -> None:
        self._waiting: deque[Item] = deque(maxlen=MOST_ITEMS)
        self._lock = threading.Lock()

    def put(self, item: Item) -> None:
        """Add an item."""
        with self._lock:
            self._waiting.append(item)

    def take_all(self) -> list[Item]:
        """Take all queued items."""
        with self._lock:
            taken = [*self._waiting]
            self._waiting.clear()
            return taken


def may_pass(error: BaseException) -> bool:
    """Whether an error may be transient: caused by the system or the store, not by the task."""
    if isinstance(error, StoreError):
        return error.remedy != "give up"
    if isinstance(error, OSError):
        return True
    return error.__cause__ is not None and may_pass(error.__cause__)


@dataclass(frozen=True, slots=True, eq=False)
class EventPoses:
    """The people of an event: their poses, and the frame of the peak."""

    clip: Clip
    peak_frame: int
    track: int


@dataclass(frozen=True, slots=True)
class Explained:
    """Explanation of an event that may still be open."""

    camera: str
    event: str
    why: str


ExplainedQueue = Mailbox[Explained]
"""Explanations on their way back to scoring, which owns the open events."""
