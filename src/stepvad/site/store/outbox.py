"""The outbox: pending messages of each sink, in order, and the stage that delivers them."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from stepvad.codec import decode, encode
from stepvad.errors import DataError
from stepvad.events.record import DeliveryError, RefusedError, Sink, SinkMessage
from stepvad.events.rules import ChangeKind
from stepvad.retries import Backoff
from stepvad.site.stages import Loop
from stepvad.site.store.changes import ChangeKey, ChangeQueue, PendingChange
from stepvad.site.store.database import Database, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """One message for one sink: pending, or a dead letter, which it refused permanently."""

    seq: int
    """Its number on disk; 0 if it is in memory."""
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
    refused: float | None = None
    """Time at which it became a dead letter."""
    version: int | None
    """That of the change; with the event it names the message. None if the body is damaged."""

    @property
    def key(self) -> ChangeKey:
        """What names the message."""
        return self.event_id, self.kind, self.version or 0

    @property
    def message(self) -> SinkMessage:
        """The message to send; raises `DataError` if it is damaged or of a newer version."""
        return decode(SinkMessage, self.body, "message")


_VERSION = "CASE WHEN json_valid(body) THEN json_extract(body, '$.after.version') END"
_LEFT = f"""
SELECT count(*) FROM outbox WHERE sink = ?1 AND refused IS NULL AND NOT EXISTS (
    SELECT 1 FROM json_each(?2) done WHERE event_id = json_extract(done.value, '$[0]')
    AND kind = json_extract(done.value, '$[1]')
    AND coalesce({_VERSION}, 0) = json_extract(done.value, '$[2]')
)
"""  # noqa: S608  constant


class Outbox:
    """Messages that are not yet delivered, and dead letters.

    They are on disk; if the disk refuses changes for long, those go to the sinks from memory. What
    was delivered is never sent again, even if its row cannot be deleted for now.
    """

    def __init__(
        self, database: Database, changes: ChangeQueue, clock: Callable[[], float] = time.time
    ) -> None:
        self._database, self._changes = database, changes
        self._clock = clock
        self._news = threading.Condition()
        self._posted = 0
        self._done: dict[str, set[ChangeKey]] = defaultdict(set)
        """By sink: messages that are delivered, whose rows may be there, or may still come."""
        changes.on_overdue = self.ring

    def now(self) -> float:
        """Current time by the store's wall clock."""
        return self._clock()

    @property
    def trouble(self) -> str:
        """The reason why the disk takes no changes; empty if it does."""
        return self._database.trouble

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
        """The number of calls of `ring`."""
        return self._posted

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait until `ring` has been called since `seen`, or until the timeout.

        It ends early when changes in memory become due.
        """
        due_s = self._changes.due_s()
        with self._news:
            self._news.wait_for(lambda: self._posted != seen, min(timeout_s, due_s or timeout_s))

    def pending(self, sink: str, limit: int = 100) -> list[OutboxMessage]:
        """The oldest pending messages of a sink, in order: first those on disk.

        Raise a `StoreError` if the disk cannot be read and nothing is in memory.
        """
        done = self._done[sink]
        if done and not self.trouble:
            self._tidy(sink)
        # disk before memory: a change on its way from one to the other is found at least once
        problem, found = None, list[OutboxMessage]()
        try:
            stored = self.waiting(sink, limit + len(done))
            found = [one for one in stored if one.key not in done]
        except StoreError as error:
            problem = error
        if len(found) < limit and self._changes.is_overdue:
            keys = {one.key for one in found}
            found += [one for one in self._in_memory(sink) if one.key not in keys]
        if problem is not None and not found:
            raise problem
        return found[:limit]

    def _in_memory(self, sink: str) -> list[OutboxMessage]:
        """Changes that wait for the disk and that a sink has not got, as messages."""
        now = self._clock()
        return [
            OutboxMessage(
                seq=0,
                sink=sink,
                event_id=one.record.id,
                kind=one.kind,
                body=encode(one.message).decode(),
                created=now - self._changes.age_s(one),
                tries=0,
                next_try=0.0,
                error=None,
                version=one.record.version,
            )
            for one in self._unsent(sink)
        ]

    def _unsent(self, sink: str) -> list[PendingChange]:
        """Changes that wait for the disk and that a sink has not got."""
        done = self._done[sink]
        return [one for one in self._changes.waiting() if one.is_news and one.key not in done]

    def lag(self, sink: str) -> int:
        """Number of pending messages of a sink; without those on a disk that cannot be read."""
        count = len(self._unsent(sink))
        with suppress(StoreError):
            done = json.dumps([*self._done[sink]])
            ((stored,),) = self._database.rows(_LEFT, sink, done)
            count += int(stored)
        return count

    def delivered(self, message: OutboxMessage) -> None:
        """Remove a message that was delivered; its row goes when the disk takes changes again."""
        self._done[message.sink].add(message.key)
        if not self.trouble:
            self._tidy(message.sink)

    def _tidy(self, sink: str) -> None:
        """Delete the rows of what was delivered, and forget it unless its row is yet to come."""
        waiting = {one.key for one in self._changes.waiting()}
        done = self._done[sink] - waiting
        named = f"event_id = ? AND kind = ? AND coalesce({_VERSION}, 0) = ?"
        statement = f"DELETE FROM outbox WHERE sink = ? AND refused IS NULL AND {named}"  # noqa: S608  constant
        with suppress(StoreError):
            with self._database.transaction() as connection:
                connection.executemany(statement, [(sink, *key) for key in done])
            self._done[sink] -= done

    def failed(self, message: OutboxMessage, error: str, next_try: float) -> None:
        """Record a failed delivery; the message is retried at `next_try`."""
        if message.seq and not self.trouble:
            with suppress(StoreError):
                self._database.change(
                    "UPDATE outbox SET tries = tries + 1, error = ?, next_try = ? "
                    "WHERE sink = ? AND seq = ?",
                    *(error, next_try, message.sink, message.seq),
                )

    def refused(self, message: OutboxMessage, error: str) -> None:
        """Make a message that the sink refused permanently a dead letter.

        If the disk fails it is not sent again either, until the next start.
        """
        try:
            self._database.change(
                "UPDATE outbox SET refused = ?, error = ? WHERE seq = ?",
                *(self._clock(), error, message.seq),
            )
        except StoreError:
            logger.error(
                "%s refused the %s of event %s: %s", *(message.sink, *message.key[1::-1], error)
            )
        self.delivered(message)

    def resend(self) -> int:
        """Requeue refused messages at their place in the order; return how many."""
        count = self._database.change(
            "UPDATE outbox SET refused = NULL, error = NULL, tries = 0, next_try = 0, created = ? "
            "WHERE refused IS NOT NULL",
            self._clock(),
        )
        if count:
            self.ring()
        return count

    def waiting(self, sink: str | None = None, limit: int = 100) -> list[OutboxMessage]:
        """The oldest pending messages of one sink or of all, in order."""
        return self._messages("refused IS NULL", sink, limit)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Number of pending and refused messages by sink."""
        rows = self._database.rows(
            "SELECT sink, sum(refused IS NULL), sum(refused IS NOT NULL) FROM outbox "
            "GROUP BY sink ORDER BY sink"
        )
        return {sink: (waiting, refused) for sink, waiting, refused in rows}

    def dead_letters(self, sink: str | None = None) -> list[OutboxMessage]:
        """Messages that a sink refused permanently, in order."""
        return self._messages("refused IS NOT NULL", sink, -1)

    def _messages(self, state: str, sink: str | None, limit: int) -> list[OutboxMessage]:
        by_sink = "" if sink is None else "AND sink = ?1"
        query = f"SELECT *, {_VERSION} AS version FROM outbox WHERE {state} {by_sink} "  # noqa: S608  constant
        query += "ORDER BY seq LIMIT ?2"
        return [OutboxMessage(**row) for row in self._database.rows(query, sink, limit)]


logger = logging.getLogger(__name__)
FIRST_S, LONGEST_S = 0.5, 10.0
ASKED_S = 60.0
"""Longest delay that a sink may ask for."""
IDLE_S = 5.0
"""Polling interval for messages added without a notification."""
TICK_S = 1.0
"""The same for a sink whose messages become due by the clock."""
BATCH = 50
SEND_S, MARGIN_S = 35.0, 15.0
"""Longest send, unless a sink has a longer time-out; and time for the store beside it."""


@runtime_checkable
class Timed(Protocol):
    """A sink that takes changes down and sends messages of its own when they are due."""

    on_progress: Callable[[], None]
    """Called between steps that may each take `SEND_S`."""

    def send_due(self) -> bool:
        """Send what is due; return whether anything was. Raise `DeliveryError` if it failed."""
        ...

    def cancel(self) -> None:
        """Give up a running send; thread-safe."""
        ...


class SinkDelivery:
    """The stage that delivers to one sink and retries with back-off."""

    def __init__(
        self,
        outbox: Outbox,
        sink: Sink,
        *,
        first_s: float = FIRST_S,
        longest_s: float = LONGEST_S,
    ) -> None:
        self.name = sink.name
        self.stage = Loop(
            sink.name,
            self._deliver,
            max(SEND_S, getattr(sink, "timeout_s", 0.0)) + MARGIN_S,
            on_stop=self._cancel,
            at_end=sink.close,
        )
        self.sent = 0
        self.failures = 0
        """Failed delivery attempts."""
        self.refused = 0
        """Messages that became dead letters."""
        self.last_error: str | None = None
        """None after a successful delivery."""
        self.sink, self._outbox = sink, outbox
        self._retries, self._troubles = Backoff(first_s, longest_s), Backoff(first_s, longest_s)
        """Back-off for errors of the sink, and for those of the store."""
        self._called = threading.Event()
        self._timed = sink if isinstance(sink, Timed) else None
        if self._timed is not None:
            self._timed.on_progress = self.stage.heartbeat.beat

    def wake(self) -> None:
        """Retry now, for example after a reconnect."""
        self._called.set()
        self._outbox.ring()

    @property
    def is_idle(self) -> bool:
        """True if no messages are pending."""
        return self._outbox.lag(self.name) == 0

    def _cancel(self) -> None:
        """Finish the current message; the rest stays in the store until the next start."""
        if self._timed is not None:
            self._timed.cancel()
        self.wake()

    def _deliver(self, loop: Loop) -> bool:
        """Send the pending messages, or wait for one; a stop does not wait for the others."""
        # in order: what comes after a message that failed waits with it
        seen = self._outbox.posted()
        try:
            self._send_due()  # first: it goes on while the store fails
            pending = self._outbox.pending(self.name, BATCH)
            done = all(self._is_done(message) for message in pending)
        except Exception as error:  # the store's disk may be full: keep running
            if not (isinstance(error, StoreError) and self._outbox.trouble):
                self._fail(f"{type(error).__name__}: {error}")
            self._outbox.wait(seen, min(self._troubles.next_s(), IDLE_S))
            return False
        self._troubles.reset()
        if done and not pending:
            self._outbox.wait(seen, IDLE_S if self._timed is None else TICK_S)
        return False

    def _send_due(self) -> None:
        """Let a sink send what became due; it waits after failures by itself."""
        if self._timed is None or self.stage.stopping.is_set():
            return
        self.stage.heartbeat.beat()
        try:
            if self._timed.send_due():
                self._succeed()
        except DeliveryError as error:
            self._fail(str(error))

    def _is_done(self, message: OutboxMessage) -> bool:
        """True if a message was delivered or refused; otherwise returns after the back-off."""
        if self.stage.stopping.is_set():
            return False
        self.stage.heartbeat.beat()
        # a reconnect from here on cuts the back-off short
        self._called.clear()
        try:
            self.sink.send(message.kind, _readable(message))
        except DeliveryError as error:
            if isinstance(error, RefusedError):
                self.refused += 1
                self._fail(str(error))
                self._outbox.refused(message, str(error))
                return True
            self._put_off(message, str(error), error.after_s)
            return False
        except Exception as error:
            self._put_off(message, type(error).__name__, 0.0)
            return False
        self._retries.reset()
        self._outbox.delivered(message)
        if self._timed is None:
            self._succeed()
        return True

    def _put_off(self, message: OutboxMessage, words: str, after_s: float) -> None:
        self._retries.failures = max(self._retries.failures, message.tries)
        delay_s = max(self._retries.next_s(), min(after_s, ASKED_S))
        self._fail(words)
        self._outbox.failed(message, words, self._outbox.now() + delay_s)
        ends = time.monotonic() + delay_s
        while (left_s := ends - time.monotonic()) > 0 and not self._called.wait(
            min(left_s, TICK_S)
        ):
            self.stage.heartbeat.beat()

    def _succeed(self) -> None:
        self.sent += 1
        self.last_error = None

    def _fail(self, words: str) -> None:
        self.failures += 1
        if words != self.last_error:
            logger.warning("sink %s: %s", self.name, words)
        self.last_error = words


def _readable(message: OutboxMessage) -> SinkMessage:
    """The message; raise `RefusedError` if it is unreadable, to make it a dead letter."""
    try:
        return message.message
    except DataError as error:
        raise RefusedError(error.problem, hint=error.hint) from error
