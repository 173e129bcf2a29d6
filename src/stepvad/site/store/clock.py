"""The time by which a store deletes: the monotonic clock, and the wall clock only where it agrees.

One wrong wall clock must not make everything look old, nor may a site that was off keep its data
for ever. So a wall clock that jumps is doubted until it has gone on steadily for some days of
running. Rows carry the time of this clock and not that of the wall.
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
"""A wall clock that differs by less is believed at once."""
CONFIRM_S = 3 * DAY_S
"""A wall clock that differs by more is believed after it has gone on steadily for so long."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A wall clock that is not believed."""

    ahead_s: float
    """How far it is ahead; negative if it is behind."""
    held_s: float = 0.0
    """How long it has gone on steadily, by the monotonic clock while a site ran."""

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
class State:
    """What a clock needs to go on after a restart."""

    time: float
    doubt: Doubt | None = None


class StoreClock:
    """The time of a store."""

    def __init__(self, state: State, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._anchor, self._anchored = state.time, monotonic()
        self._read_at: float | None = None
        self.state = state

    def read(self, wall: float) -> bool:
        """Bring `state` up to date; whether a jump of the wall clock is believed from now on.

        The wall clock is compared with the monotonic clock since the start, so that many small
        steps in one direction are seen as the jump that they are.
        """
        now = self._monotonic()
        progress = self._anchor + now - self._anchored
        ahead_s = wall - progress
        if abs(ahead_s) <= TOLERANCE_S:
            if self.state.doubt is not None:
                logger.warning("the wall clock is right again: old events are deleted by it")
            self._read_at, self.state = now, State(wall)
            return False
        doubt = self._doubted(ahead_s, now)
        self._read_at = now
        if doubt.held_s < CONFIRM_S:
            self.state = State(progress, doubt)
            return False
        logger.warning("the wall clock has gone on steadily: old events are deleted by it")
        self._anchor, self._anchored, self.state = wall, now, State(wall)
        return True

    def _doubted(self, ahead_s: float, now: float) -> Doubt:
        """The doubt of before if the clock has gone on steadily since, else another."""
        before = self.state.doubt
        if before is not None:
            change_s = ahead_s - before.ahead_s
            if self._read_at is None and change_s >= -TOLERANCE_S:
                return replace(before, ahead_s=ahead_s)  # the site was off, and time passed
            if self._read_at is not None and abs(change_s) <= TOLERANCE_S:
                return replace(before, held_s=before.held_s + now - self._read_at)
        doubt = Doubt(ahead_s)
        logger.warning("%s", doubt)
        return doubt


def load(connection: sqlite3.Connection, wall: float) -> State:
    """The clock of a store as it was saved; else its newest row tells the time."""
    row = connection.execute("SELECT time, ahead_s, held_s FROM clock").fetchone()
    if row is None:
        (newest,) = connection.execute("SELECT max(stored) FROM events").fetchone()
        return State(wall if newest is None else newest)
    time, ahead_s, held_s = row
    return State(time, None if ahead_s is None else Doubt(ahead_s, held_s))


def save(connection: sqlite3.Connection, state: State, *, has_jumped: bool) -> None:
    """Keep a clock for the next start.

    When a jump is believed, rows that were stored in doubt get the time of the wall clock back;
    none is later than now.
    """
    doubt = state.doubt
    connection.execute(
        "INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?)",
        (state.time, *((doubt.ahead_s, doubt.held_s) if doubt else (None, None))),
    )
    if has_jumped:
        connection.execute("UPDATE events SET stored = min(max(stored, changed), ?)", (state.time,))
