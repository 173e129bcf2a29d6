"""A bounded queue that its reader empties in one go; thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")

MOST = 1000
"""Maximum queued items; beyond it the oldest is dropped."""


class Mailbox(Generic[T]):
    """Items from any thread for one reader, such as explanations and limits for scoring."""

    def __init__(self, most: int = MOST) -> None:
        self._waiting: deque[T] = deque(maxlen=most)
        self._lock = threading.Lock()

    def put(self, item: T) -> None:
        """Add an item."""
        with self._lock:
            self._waiting.append(item)

    def take_all(self) -> list[T]:
        """Take all queued items."""
        with self._lock:
            taken = [*self._waiting]
            self._waiting.clear()
            return taken
