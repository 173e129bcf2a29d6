"""Work that can wait, in the order in which it came, by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)

MOST = 200
"""Tasks that wait at most; the oldest are left out."""


class Chores:
    """A thread that never holds up scoring."""

    def __init__(self, most: int = MOST) -> None:
        self.left_out = 0
        self._tasks: deque[Callable[[], None]] = deque()
        self._most = most
        self._news = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="chores", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def add(self, task: Callable[[], None]) -> None:
        """One more task."""
        with self._news:
            self._tasks.append(task)
            if len(self._tasks) > self._most:
                self._tasks.popleft()
                self.left_out += 1
            self._news.notify_all()

    def stop(self, within_s: float = 5.0) -> None:
        """Do what is left, for so long."""
        with self._news:
            self._stopping = True
            self._news.notify_all()
        self._thread.join(within_s)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._tasks or self._stopping)
                if not self._tasks:
                    return
                task = self._tasks.popleft()
            try:
                task()
            except Exception:
                logger.exception("a task failed")
