"""Delete expired data, but nothing while the wall clock is in doubt."""

from __future__ import annotations

import logging
import math
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stepvad.events.record import DAY_S, Deleted
from stepvad.site.settings.sections import RetentionSettings
from stepvad.site.store.backup import BEFORE

logger = logging.getLogger(__name__)

JUMP_S = DAY_S
"""A wall clock that differs by more from the saved time and the time since is in doubt."""
CONFIRM_S = 3 * DAY_S
"""Time for which a site runs until it believes a clock in doubt."""


class StoreClock:
    """Time by which rows get old: the wall clock as far as it is believed."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._expected: float | None = None
        self._ahead_s = math.nan  # after a start not known: the time off is no second jump
        self._held_s = self._since = self._read_at = 0.0
        self.doubt = ""
        """Why nothing is deleted by age; empty if the clock is believed."""

    def read(self, connection: sqlite3.Connection, wall: float) -> float:
        """The time of the store, to stamp rows with; save it in the caller's transaction."""
        now = self._monotonic()
        if self._expected is None:
            row = connection.execute("SELECT time, held_s, since FROM clock").fetchone()
            self._expected, self._held_s, self._since = row or (wall, 0.0, wall)
            if not self._held_s:
                self._since = wall if abs(wall - self._expected) <= JUMP_S else math.inf
            self._read_at = now
        passed_s, self._read_at = now - self._read_at, now
        expected = self._expected + passed_s
        ahead_s = wall - expected
        has_moved = abs(ahead_s - self._ahead_s) > JUMP_S
        self._held_s = passed_s if has_moved else self._held_s + passed_s
        is_near, is_held = abs(ahead_s) <= JUMP_S, self._held_s >= CONFIRM_S
        if is_held and ahead_s > JUMP_S:  # what this run stored before the jump is no older for it
            connection.execute(
                "UPDATE events SET stored = stored + ? WHERE stored >= ? AND stored <= ?",
                (ahead_s, self._since, expected - self._held_s),
            )
        if is_near or (is_held and ahead_s > 0):  # a slow clock is never followed
            expected, ahead_s, self._held_s = wall, 0.0, 0.0
        self._expected, self._ahead_s = expected, ahead_s
        self._tell("" if is_near or is_held else _doubt(ahead_s))
        values = (expected, self._held_s, self._since)
        connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?)", values)
        return max(wall, expected)

    def _tell(self, doubt: str) -> None:
        if bool(doubt) != bool(self.doubt):
            logger.warning("%s", doubt or "the wall clock is believed again")
        self.doubt = doubt


def _doubt(ahead_s: float) -> str:
    days = f"{abs(ahead_s) / DAY_S:.0f} days {'ahead of' if ahead_s > 0 else 'behind'}"
    return (
        f"the wall clock is {days} the time that has passed: nothing is deleted by age until it is "
        f"right, or has run for {CONFIRM_S / DAY_S:.0f} days"
    )


def delete_old(
    connection: sqlite3.Connection, retention: RetentionSettings, time: float
) -> Deleted:
    """Delete ended events, and poses and explanations, that have expired by the store's time.

    Rows with the stamp of a clock that was ahead are as old as this moment.
    """
    connection.execute("UPDATE events SET stored = ?1 WHERE stored > ?1", (time,))
    old = "SELECT id FROM events WHERE stored < ? AND end_time IS NOT NULL"
    events = connection.execute(
        f"DELETE FROM events WHERE id IN ({old})",  # noqa: S608  constant parts
        (time - retention.events_days * DAY_S,),
    ).rowcount
    poses = 0
    for table in ("explanations", "poses"):
        poses = connection.execute(
            f"DELETE FROM {table} WHERE id IN ({old})",  # noqa: S608  one of two tables
            (time - retention.poses_days * DAY_S,),
        ).rowcount
    return Deleted(events=events, poses=poses, kept_open=0)


def forget_replaced(store: Path, retention: RetentionSettings, time: float) -> None:
    """Delete the store replaced by a restore once its newest row would have expired."""
    replaced = store.with_name(store.name + BEFORE)
    days = min(retention.events_days, retention.poses_days)
    with suppress(OSError):
        if replaced.stat().st_mtime < time - days * DAY_S:
            for end in ("-wal", "-shm", ""):
                replaced.with_name(replaced.name + end).unlink(missing_ok=True)
