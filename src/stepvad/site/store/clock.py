"""Store time, used for deletions: the monotonic clock, and the wall clock only where they agree.

A wrong wall clock must not make everything look old, nor may a site that was off keep its data
forever. So after a jump the wall clock is not trusted until it has run steadily for some days of
uptime. Rows are stamped with store time, not with the wall clock.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

logger = logging.getLogger(__name__)

HOUR_S = 3600.0
DAY_S = 86400.0
TOLERANCE_S = DAY_S
"""A wall clock that differs by less is trusted at once."""
CONFIRM_S = 3 * DAY_S
"""A wall clock that differs by more is trusted after running steadily for this long."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A wall clock that is not trusted."""

    ahead_s: float
    """How far the wall clock is ahead; negative if behind."""
    held_s: float = 0.0
    """How long it has run steadily, by the monotonic clock while a site was running."""

    def __str__(self) -> str:
        """The warning for an operator."""
        far = abs(self.ahead_s)
        amount = (
            f"{far / DAY_S:.1f} days" if far < 1e4 * DAY_S else f"{far / 365 / DAY_S:.0f} years"
        )
        left = max(CONFIRM_S - self.held_s, 0.0) / HOUR_S
        return (
            f"the wall clock is {amount} {'ahead of' if self.ahead_s > 0 else 'behind'} the time "
            f"that has passed; it is believed for deletions in {left:.0f} hours of running"
        )


@dataclass(frozen=True, slots=True)
class ClockState:
    """State of a clock, saved across restarts."""

    time: float
    doubt: Doubt | None = None


class StoreClock:
    """The clock of a store."""

    def __init__(self, state: ClockState, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._anchor, self._anchored = state.time, monotonic()
        self._read_at: float | None = None
        self.state = state

    def read(self, wall: float) -> bool:
        """Update `state`; return whether a jump of the wall clock is now accepted.

        The wall clock is compared with the monotonic clock since the start, so many small steps in
        one direction add up to a jump.
        """
        now = self._monotonic()
        progress = self._anchor + now - self._anchored
        ahead_s = wall - progress
        if abs(ahead_s) <= TOLERANCE_S:
            if self.state.doubt is not None:
                logger.warning("the wall clock is right again; retention uses it")
            self._read_at, self.state = now, ClockState(wall)
            return False
        doubt = self._doubted(ahead_s, now)
        self._read_at = now
        if doubt.held_s < CONFIRM_S:
            self.state = ClockState(progress, doubt)
            return False
        logger.warning("the wall clock has been steady; retention uses it again")
        self._anchor, self._anchored, self.state = wall, now, ClockState(wall)
        return True

    def _doubted(self, ahead_s: float, now: float) -> Doubt:
        """The previous doubt, updated, if the clock has run steadily since; otherwise a new one."""
        before = self.state.doubt
        if before is not None:
            change_s = ahead_s - before.ahead_s
            if self._read_at is None and change_s >= -TOLERANCE_S:
                return replace(before, ahead_s=ahead_s)  # time passed while the site was off
            if self._read_at is not None and abs(change_s) <= TOLERANCE_S:
                return replace(before, held_s=before.held_s + now - self._read_at)
        doubt = Doubt(ahead_s)
        logger.warning("%s", doubt)
        return doubt


def load(connection: sqlite3.Connection, wall: float) -> ClockState:
    """Load the saved clock of a store; without one, use the time of its newest row."""
    row = connection.execute("SELECT time, ahead_s, held_s FROM clock").fetchone()
    if row is None:
        (newest,) = connection.execute("SELECT max(stored) FROM events").fetchone()
        return ClockState(wall if newest is None else newest)
    time, ahead_s, held_s = row
    return ClockState(time, None if ahead_s is None else Doubt(ahead_s, held_s))


def save(connection: sqlite3.Connection, state: ClockState, *, has_jumped: bool) -> None:
    """Save a clock for the next start.

    When a jump is accepted, rows stored during the doubt get their wall-clock time back, capped at
    the current time.
    """
    doubt = state.doubt
    connection.execute(
        "INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?)",
        (state.time, *((doubt.ahead_s, doubt.held_s) if doubt else (None, None))),
    )
    if has_jumped:
        connection.execute("UPDATE events SET stored = min(max(stored, changed), ?)", (state.time,))
