"""Work that can wait, done by a stage of its own so that scoring never does."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import Literal, Protocol, get_args

from stepvad.site.store.errors import StoreError
from stepvad.supervision.backoff import Backoff
from stepvad.supervision.logs import FailureLog
from stepvad.supervision.stages import Heartbeat

logger = logging.getLogger(__name__)

TaskKind = Literal["recording", "explanation", "upkeep"]
MOST: Mapping[TaskKind, int] = {"recording": 64, "explanation": 200, "upkeep": 64}
"""Tasks of each kind that wait at most; then the oldest of that kind is dropped."""
DEADLINE_S = 300.0
"""Longest time for one task: rebuilding a large store takes minutes on a slow disk."""
WAIT_S = 0.25
FIRST_RETRY_S, LONGEST_RETRY_S, RETRIES = 0.5, 5.0, 10
"""A task that fails for a reason that may pass is tried for about half a minute."""


class Task(Protocol):
    """Something to be done."""

    @property
    def kind(self) -> TaskKind:
        """What it competes with for room."""
        ...

    def run(self) -> None:
        """Do it."""
        ...


class TaskQueue:
    """Tasks in the order in which they came; any thread may add one."""

    def __init__(self, most: Mapping[TaskKind, int] = MOST) -> None:
        self._most = most
        self._tasks: deque[Task] = deque()
        self._waiting: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._news = threading.Condition()

    def put(self, task: Task) -> None:
        """One more task; beyond the limit of its kind the oldest of that kind goes."""
        with self._news:
            self._tasks.append(task)
            self._waiting[task.kind] += 1
            if self._waiting[task.kind] > self._most[task.kind]:
                self._drop_oldest(task.kind)
            self._news.notify_all()

    def take(self, timeout_s: float) -> Task | None:
        """The next task, or None if there is none in time."""
        with self._news:
            self._news.wait_for(lambda: self._tasks, timeout_s)
            if not self._tasks:
                return None
            task = self._tasks.popleft()
            self._waiting[task.kind] -= 1
            return task

    def dropped(self) -> dict[str, int]:
        """Tasks of each kind that there was no room for, since the start."""
        with self._news:
            return {kind: self._dropped[kind] for kind in get_args(TaskKind)}

    def __len__(self) -> int:
        """Tasks that wait."""
        with self._news:
            return len(self._tasks)

    def _drop_oldest(self, kind: TaskKind) -> None:
        oldest = next(i for i, task in enumerate(self._tasks) if task.kind == kind)
        del self._tasks[oldest]
        self._waiting[kind] -= 1
        self._dropped[kind] += 1
        if self._dropped[kind] == 1:
            logger.error("background work falls behind: the oldest %s is dropped", kind)


class BackgroundTasks:
    """The stage that does what waits in a queue, one task after the other."""

    name = "background"

    def __init__(self, tasks: TaskQueue) -> None:
        self.heartbeat = Heartbeat(DEADLINE_S)
        self._tasks = tasks
        self._failures = FailureLog(logger)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Do tasks until stopped and none is left; one that fails stops no other."""
        while True:
            self.heartbeat.beat()
            task = self._tasks.take(WAIT_S)
            if task is None:
                if self._stopping.is_set():
                    return
                continue
            self._do(task)

    def stop(self, deadline: float) -> None:
        """Do what is left, then end."""
        self._stopping.set()

    def _do(self, task: Task) -> None:
        """Do a task; what may pass, such as a disk that is full, is tried for some seconds."""
        backoff = Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        while True:
            try:
                task.run()
            except Exception as error:
                self.heartbeat.beat()
                last = backoff.failures >= RETRIES or not may_pass(error)
                if last or backoff.wait(self._stopping):
                    self._failures.log(f"a background task ({task.kind}) failed", error)
                    return
            else:
                return


def may_pass(error: BaseException) -> bool:
    """Whether the system or the store is behind an error, and not the task itself."""
    if isinstance(error, StoreError):
        return error.remedy != "give up"
    if isinstance(error, OSError):
        return True
    return error.__cause__ is not None and may_pass(error.__cause__)
