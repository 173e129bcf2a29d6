"""The outbox: pending messages of each sink, in order."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepvad.codec import decode, encode
from stepvad.events.record import SinkMessage
from stepvad.site.store.database import Database

if TYPE_CHECKING:
    from stepvad.events.rules import ChangeKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """One pending message for one sink."""

    seq: int
    sink: str
    event_id: str
    kind: ChangeKind
    body: str
    """The message as it is stored."""
    created: float
    tries: int
    next_try: float
    """Earliest time of the next attempt."""
    error: str | None
    """Error of the last attempt."""

    @property
    def message(self) -> SinkMessage:
        """The message to send; raises `DataError` if it is damaged or of a newer version."""
        return decode(SinkMessage, self.body, "message")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One message that a sink refused permanently."""

    seq: int
    sink: str
    event_id: str
    kind: ChangeKind
    body: str
    created: float
    refused: float
    error: str

    @property
    def message(self) -> SinkMessage:
        """The message that was sent; raises `DataError` if it is damaged or of a newer version."""
        return decode(SinkMessage, self.body, "message")


class Outbox:
    """Messages that are stored but not yet delivered, and dead letters."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._news = threading.Condition()
        self._posted = 0

    def put(
        self,
        connection: sqlite3.Connection,
        sinks: Iterable[str],
        event_id: str,
        kind: ChangeKind,
        message: SinkMessage,
    ) -> None:
        """Add one message per sink, in the transaction of the change it reports."""
        body, now = encode(message).decode(), self._clock()
        connection.executemany(
            "INSERT INTO outbox (sink, event_id, kind, body, created) VALUES (?, ?, ?, ?, ?)",
            [(sink, event_id, kind, body, now) for sink in sinks],
        )

    def ring(self) -> None:
        """Wake the threads waiting for messages."""
        with self._news:
            self._posted += 1
            self._news.notify_all()

    def posted(self) -> int:
        """How often `ring` was called."""
        return self._posted

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait until `ring` has been called since `seen`, or until the timeout."""
        with self._news:
            self._news.wait_for(lambda: self._posted != seen, timeout_s)

    def pending(self, sink: str, limit: int = 100) -> list[OutboxMessage]:
        """The oldest pending messages of a sink, in order."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT * FROM outbox WHERE sink = ? ORDER BY seq LIMIT ?", (sink, limit)
            ).fetchall()
        return [OutboxMessage(**row) for row in rows]

    def lag(self, sink: str) -> int:
        """Number of pending messages of a sink."""
        with self._database.read() as connection:
            (count,) = connection.execute(
                "SELECT count(*) FROM outbox WHERE sink = ?", (sink,)
            ).fetchone()
        return int(count)

    def delivered(self, sink: str, seq: int) -> None:
        """Remove a message that was delivered."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM outbox WHERE sink = ? AND seq = ?", (sink, seq))

    def failed(self, sink: str, seq: int, error: str, next_try: float) -> None:
        """Record a failed delivery; the message is retried at `next_try`."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE outbox SET tries = tries + 1, error = ?, next_try = ? "
                "WHERE sink = ? AND seq = ?",
                (error, next_try, sink, seq),
            )

    def refused(self, sink: str, seq: int, error: str) -> None:
        """Move a message that the sink refused permanently to the dead letters."""
        with self._database.write() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO dead_letters "
                "SELECT seq, sink, event_id, kind, body, created, ?, ? FROM outbox "
                "WHERE sink = ? AND seq = ?",
                (self._clock(), error, sink, seq),
            )
            connection.execute("DELETE FROM outbox WHERE sink = ? AND seq = ?", (sink, seq))

    def resend(self, *, sink: str | None = None, seqs: Sequence[int] | None = None) -> int:
        """Requeue refused messages at their place in the order; return how many."""
        chosen = (
            "FROM dead_letters WHERE (?1 IS NULL OR sink = ?1) "
            "AND (?2 IS NULL OR seq IN (SELECT value FROM json_each(?2)))"
        )
        values = (sink, None if seqs is None else json.dumps([*seqs]))
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO outbox (seq, sink, event_id, kind, body, created) "
                f"SELECT seq, sink, event_id, kind, body, ?3 {chosen}",
                (*values, self._clock()),
            )
            count = connection.execute(f"DELETE {chosen}", values).rowcount
        if count:
            self.ring()
        return count

    def waiting(self, sink: str | None = None, limit: int = 100) -> list[OutboxMessage]:
        """The oldest pending messages of one sink or of all, in order."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT * FROM outbox WHERE ?1 IS NULL OR sink = ?1 ORDER BY seq LIMIT ?2",
                (sink, limit),
            ).fetchall()
        return [OutboxMessage(**row) for row in rows]

    def counts(self) -> dict[str, tuple[int, int]]:
        """Number of pending and refused messages by sink."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT sink, sum(waits), sum(1 - waits) FROM (SELECT sink, 1 AS waits FROM outbox "
                "UNION ALL SELECT sink, 0 FROM dead_letters) GROUP BY sink ORDER BY sink"
            ).fetchall()
        return {sink: (waiting, refused) for sink, waiting, refused in rows}

    def dead_letters(self, sink: str | None = None) -> list[DeadLetter]:
        """Messages that a sink refused permanently, in order."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT * FROM dead_letters WHERE ? IS NULL OR sink = ? ORDER BY seq",
                (sink, sink),
            ).fetchall()
        return [DeadLetter(**row) for row in rows]
