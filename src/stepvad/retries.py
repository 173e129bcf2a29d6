"""Delays between retries: exponential, bounded, with jitter."""

from __future__ import annotations

import random
import threading

MOST_STEPS = 500
"""Keeps the power finite however long the other side is unreachable."""


class Backoff:
    """The delay after each consecutive failure: `growth` times the previous one, up to `longest_s`.

    Each delay is shortened at random, to no less than half, so many clients of one server do not
    reconnect in step. Each retry loop owns one instance; it is not thread-safe.
    """

    def __init__(
        self, first_s: float, longest_s: float, *, failures: int = 0, growth: float = 2.0
    ) -> None:
        """`failures`: number of earlier failures, if the caller keeps count."""
        self._first_s, self._longest_s, self._growth = first_s, longest_s, growth
        self.failures = failures
        self._random = random.Random()

    def reset(self) -> None:
        """Record a success: the next delay starts at `first_s` again."""
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """Count a failure and return the seconds to wait before the next try.

        `at_least_s` is the delay that the other side asked for, also capped at `longest_s`.
        """
        steps = min(self.failures, MOST_STEPS)
        full_s = min(self._first_s * self._growth**steps, self._longest_s)
        self.failures += 1
        return min(max(full_s * self._random.uniform(0.5, 1.0), at_least_s), self._longest_s)

    def wait(self, stop: threading.Event, at_least_s: float = 0.0) -> bool:
        """Count a failure and wait; return whether `stop` was set meanwhile."""
        return stop.wait(self.next_s(at_least_s))

    async def sleep(self, at_least_s: float = 0.0) -> None:
        """Count a failure and wait, in an event loop."""
        import asyncio  # which a camera's process never needs

        await asyncio.sleep(self.next_s(at_least_s))
