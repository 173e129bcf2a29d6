"""Waiting while brokers elect a leader, as they do when a stream changes its replicas."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stepvad.fleet.broker.bus import ConflictError, UnavailableError
from stepvad.retries import Backoff

LEADER_S = 20.0
"""How long a command waits for a leader."""
FIRST_S, LONGEST_S = 0.1, 1.0
"""First and longest time between attempts."""

T = TypeVar("T")


async def until_led(attempt: Callable[[], Awaitable[T]], within_s: float = LEADER_S) -> T:
    """Repeat what may be done twice until the brokers answer, or the time is over."""
    deadline, backoff = time.monotonic() + within_s, Backoff(FIRST_S, LONGEST_S)
    while True:
        try:
            return await attempt()
        except (UnavailableError, ConflictError):
            if time.monotonic() > deadline:
                raise
            await backoff.sleep()
