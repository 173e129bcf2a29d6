"""The audit log: who looked at what, who changed what, and who tried to log in."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from stepvad.accounts.database import AccountsDatabase

MOST_ROWS = 100_000
MOST_FAILED = 10_000
"""Failed log-ins have a limit of their own: a stranger must not push everything else out."""
AUDIT_DAYS = 90.0
PRUNE_EVERY = 100
"""Old rows are deleted with every so many new ones."""
LONGEST_TEXT = 200
FAILED = "failed log-in"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One line of the audit log."""

    seq: int
    time: float
    user: str
    address: str
    action: str
    subject: str


class AuditLog:
    """Appends and reads the lines; bounded by days and by rows."""

    def __init__(
        self,
        database: AccountsDatabase,
        *,
        days: float = AUDIT_DAYS,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._days, self._wall = database, days, wall
        self._added = 0

    def add(self, user: str, action: str, subject: str = "", address: str = "") -> None:
        """Append a line; long texts are cut."""
        texts = [text[:LONGEST_TEXT] for text in (user, address, action, subject)]
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO audit (time, user, address, action, subject) VALUES (?, ?, ?, ?, ?)",
                (self._wall(), *texts),
            )
        if self._added % PRUNE_EVERY == 0:
            self.prune()
        self._added += 1

    def prune(self) -> None:
        """Delete lines that are too old or too many."""
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM audit WHERE time < ?", (self._wall() - 86400 * self._days,)
            )
            for condition, most in (("action = ?", MOST_FAILED), ("action != ?", MOST_ROWS)):
                connection.execute(
                    f"DELETE FROM audit WHERE {condition} AND seq <= (SELECT seq FROM audit "  # noqa: S608  # constants
                    f"WHERE {condition} ORDER BY seq DESC LIMIT 1 OFFSET ?)",
                    (FAILED, FAILED, most),
                )

    def entries(
        self,
        *,
        user: str | None = None,
        since: float | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Lines, the newest first; `before` is the `seq` of the last line already seen."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT seq, time, user, address, action, subject FROM audit WHERE "
                "(?1 IS NULL OR user = ?1 COLLATE NOCASE) AND (?2 IS NULL OR time >= ?2) AND "
                "(?3 IS NULL OR seq < ?3) ORDER BY seq DESC LIMIT ?4",
                (user, since, before, limit),
            ).fetchall()
        return [AuditEntry(*row) for row in rows]
