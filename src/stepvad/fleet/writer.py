"""The writer: takes changes of events from the stream to PostgreSQL; what is stored is purged."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

# Loaded by the fleet alone, where a broker is spoken to.
from nats.aio.msg import Msg  # noqa: TID253
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from stepvad.errors import ConfigError
from stepvad.files import secret
from stepvad.fleet import database
from stepvad.fleet.connection import UnavailableError, connected
from stepvad.fleet.connection import translated as broker_errors
from stepvad.fleet.streams import EVENTS, Reader
from stepvad.retries import Backoff
from stepvad.site.stages import Loop, Repeats

if TYPE_CHECKING:
    import asyncpg

    from stepvad.fleet.settings import FleetSettings

logger = logging.getLogger(__name__)

IDLE_S, RETAIN_S = 1.0, 600.0
FIRST_S, LONGEST_S = 0.2, 5.0
"""First and longest wait before the next attempt while the broker or the database is away."""
HUNG_S = 300.0
"""A writer that does nothing for so long hangs: its own waits are shorter."""
LOCK = 0x57524954
"""Key of the advisory lock of the one that writes."""

COUNTED = {
    "stored": "Changes and marks stored.",
    "known": "Changes and marks that were older than what is stored.",
    "expired": "Changes that came after the month of their event was dropped.",
    "refused": "Messages that are no changes of events.",
    "retries": "Failures of the broker or the database.",
}
TOLD = {"expired": "", "refused": " Table stepvad.refused says why."}
_PUT = "SELECT * FROM stepvad.put($1::text[], $2::text[])"


class WriterMetrics:
    """What a writer has done, for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.counts = {
            name: Counter(f"stepvad_fleet_events_{name}", words, registry=self.registry)
            for name, words in COUNTED.items()
        }
        waiting = "Messages on the broker that wait to be stored."
        self.waiting = Gauge("stepvad_fleet_events_waiting", waiting, registry=self.registry)
        lag = "Age of the oldest message that waits to be stored."
        gauge = Gauge("stepvad_fleet_events_lag_seconds", lag, registry=self.registry)
        gauge.set_function(lambda: 0.0 if self.oldest is None else time.time() - self.oldest)
        self.oldest: float | None = None
        """Time of the oldest message that is not stored; None if none waits."""

    def serve(self, address: str) -> None:
        """Serve the metrics at HOST:PORT."""
        host, _, port = address.rpartition(":")
        try:
            start_http_server(int(port), host, self.registry)
        except (OSError, OverflowError) as error:
            words = f"events.metrics: expected to listen at {address}, got: {error}"
            raise ConfigError(words) from None


class EventWriter:
    """Reads a batch, stores and commits it, purges it, and repeats; it keeps nothing itself.

    What is in the stream is not stored yet. A second copy waits for a lock of the database; were
    both to write, each would purge only what it has stored itself.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self.stage = Loop("writer", self._step, HUNG_S)
        self._settings, self._stopping = settings, self.stage.stopping
        self.metrics = WriterMetrics()
        if settings.events.metrics is not None:
            self.metrics.serve(settings.events.metrics)
        self._repeats = Repeats()
        self._retain_at = 0.0

    def _step(self, loop: Loop) -> bool:
        asyncio.run(self.run())
        return False

    async def run(self) -> None:
        """Write until stopped; start anew whenever the broker or the database was away."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        while not self._stopping.is_set():
            try:
                await self._write(backoff)
            except (UnavailableError, database.NoDatabaseError) as error:
                self.metrics.counts["retries"].inc()
                self._repeats.log(logger.warning, error.problem, "%s; retrying", error)
                await asyncio.to_thread(self._stopping.wait, backoff.next_s())

    async def _write(self, backoff: Backoff) -> None:
        """Write until stopped, by one connection to the broker and one to the database."""
        dsn = secret(self._settings.events.dsn)
        async with (
            database.connected(dsn) as events,
            connected(self._settings.broker, "writer") as broker,
        ):
            await database.check_version(events)
            if not await self._locked(events):
                return
            reader = Reader(broker, EVENTS, "writer")
            await reader.open()
            logger.info("the writer stores events")
            while not self._stopping.is_set():
                self.stage.heartbeat.beat()
                await self._retain(events)
                messages = await reader.read()
                if broker.client.stats["reconnects"]:  # its streams may be others now
                    raise UnavailableError("broker: expected one connection, got a reconnect")
                await self._store(events, messages)
                if messages:
                    with broker_errors():
                        await broker.js.purge_stream(EVENTS, seq=reader.last + 1)
                backoff.reset()

    async def _locked(self, events: asyncpg.Connection[Any]) -> bool:
        """Wait until no other writer works; false if stopped before."""
        while not self._stopping.is_set():
            self.stage.heartbeat.beat()
            with database.translated():
                if await events.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
                    return True
            words = "another writer stores the events; waiting for it to stop"
            self._repeats.log(logger.info, "lock", words)
            await asyncio.to_thread(self._stopping.wait, IDLE_S)
        return False

    async def _store(self, events: asyncpg.Connection[Any], messages: Sequence[Msg]) -> None:
        """Store messages, if there are any; committed when it returns."""
        if messages:
            first = messages[0].metadata
            self.metrics.oldest = first.timestamp.timestamp()
            self.metrics.waiting.set(first.num_pending + 1)
        subjects = [text(message.subject.encode()) for message in messages]
        bodies = [text(message.data) for message in messages]
        with database.translated():  # without messages, too: the lock is gone with its connection
            done = await events.fetchrow(_PUT, subjects, bodies)
        self.metrics.oldest = None
        self.metrics.waiting.set(messages[-1].metadata.num_pending if messages else 0)
        for kind, n in done.items():
            self.metrics.counts[kind].inc(n)
            if n and kind in TOLD:
                self._repeats.log(logger.warning, kind, f"{n}: {COUNTED[kind]}{TOLD[kind]}")

    async def _retain(self, events: asyncpg.Connection[Any]) -> None:
        """Make partitions of months to come, and drop those that are over, now and then."""
        if time.monotonic() < self._retain_at:
            return
        self._retain_at = time.monotonic() + RETAIN_S
        try:
            with database.translated():
                made, dropped = await events.fetchrow("SELECT * FROM stepvad.retain()")
        except database.NoDatabaseError as error:  # such as tables that a backup has locked
            logger.warning("months could not be made or dropped: %s", error)
            return
        if made or dropped:
            logger.info("months: made %d, dropped %d that were kept long enough", made, dropped)


def text(data: bytes) -> str:
    r"""Data as text that the database takes; what is no text becomes \x.., which is no JSON."""
    return data.decode(errors="backslashreplace").replace("\0", r"\x00")
