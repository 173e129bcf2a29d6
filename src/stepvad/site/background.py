"""Background tasks in their own stage, so scoring never waits for them."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Generic, Literal, TypeVar, get_args

from stepvad.site.store.database import StoreError
from stepvad.supervision.backoff import Backoff
from stepvad.supervision.logs import FailureLog
from stepvad.supervision.stages import Heartbeat

logger = logging.getLogger(__name__)

TaskKind = Literal["recording", "explanation", "upkeep"]
MOST: Mapping[TaskKind, int] = {"recording": 64, "explanation": 200, "upkeep": 64}
"""Maximum queued tasks per kind; beyond it the oldest of that kind is dropped."""
MOST_ITEMS = 1000
"""Maximum items in a mailbox."""
DEADLINE_S = 300.0
"""Deadline for one task: rebuilding a large store takes minutes on a slow disk."""
WAIT_S = 0.25
FIRST_RETRY_S, LONGEST_RETRY_S, RETRIES = 0.5, 5.0, 10
"""A task that fails with a transient error is retried for about half a minute."""


Task = tuple[TaskKind, Callable[[], None]]
"""A function to call in the background; tasks of the same kind share one limit."""
Item = TypeVar("Item")


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


class BackgroundTasks:
    """The stage that runs queued tasks one by one."""

    name = "background"

    def __init__(self, tasks: TaskQueue) -> None:
        self.heartbeat = Heartbeat(DEADLINE_S)
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
        backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
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


def may_pass(error: BaseException) -> bool:
    """Whether an error may be transient: caused by the system or the store, not by the task."""
    if isinstance(error, StoreError):
        return error.remedy != "give up"
    if isinstance(error, OSError):
        return True
    return error.__cause__ is not None and may_pass(error.__cause__)
