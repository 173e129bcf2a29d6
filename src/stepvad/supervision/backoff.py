"""Waits between retries: doubling, bounded, with jitter."""

from __future__ import annotations

import asyncio
import random
import threading

MOST_DOUBLINGS = 30
"""Keeps the power of two finite however long the other side is away."""


class Backoff:
    """The wait after each failure in a row: twice the one before, up to `longest_s`.

    Each wait is cut at random to between half and all of it, so that many clients of one server
    do not come back in step. One retry loop owns one of these; it is not for several threads.
    """

    def __init__(self, first_s: float, longest_s: float, *, failures: int = 0) -> None:
        """`failures`: how often the work failed before, where somebody else remembers it."""
        self._first_s, self._longest_s = first_s, longest_s
        self.failures = failures

    def reset(self) -> None:
        """The work succeeded: the next failure waits `first_s` again."""
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Count a failure; the seconds to wait before the next try.

        `at_least_s` is what the other side asked for; the upper bound holds for it too.
        """
        full_s = min(self._first_s * 2.0 ** min(self.failures, MOST_DOUBLINGS), self._longest_s)
        self.failures += 1
        return min(max(full_s * random.uniform(0.5, 1.0), at_least_s), self._longest_s)

    def wait(self, stop: threading.Event, at_least_s: float = 0.0) -> bool:
        """Count a failure and wait; whether `stop` was set meanwhile."""
        return stop.wait(self.next_s(at_least_s))

    async def sleep(self, at_least_s: float = 0.0) -> None:
        """Count a failure and wait, in an event loop."""
        await asyncio.sleep(self.next_s(at_least_s))
