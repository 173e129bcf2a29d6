"""Write events from the bus to PostgreSQL and acknowledge them once committed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.fleet.broker.bus import Bus, Consumer, Delivery, UnavailableError
from stepvad.fleet.event_loop import end, rest, unless
from stepvad.fleet.event_message import FleetChange, change_of
from stepvad.fleet.events.postgres import RETAINED, FleetEvents, NoDatabaseError
from stepvad.fleet.events.postgres_errors import is_data
from stepvad.fleet.subjects import EDGES, EVENTS, Subjects
from stepvad.retries import Backoff
from stepvad.site.stages import Heartbeat

if TYPE_CHECKING:
    from stepvad.fleet.settings import EventsSettings

logger = logging.getLogger(__name__)


READER = "stepvad-events"
"""Consumer name shared by all writers, which split the events among them."""
FETCH_S = 1.0
FIRST_S, LONGEST_S = 0.2, 5.0
"""First and longest back-off while the bus or the database is unreachable."""
LOOK_S, RETAIN_S = 15.0, 600.0
HUNG_S = 300.0
"""A writer that does nothing for this long hangs: its own waits are shorter, and are retried."""


@dataclass(slots=True)
class WriterStats:
    """Counters and gauges of a writer."""

    written: int = 0
    """Event changes stored or already known."""
    claims: int = 0
    dead: int = 0
    """Messages that are not valid events."""
    retries: int = 0
    """How often the bus or the database was unreachable."""
    deleted: int = 0
    """Events deleted by retention."""
    waiting: int = 0
    """Messages pending on the bus."""
    stored: int = 0
    """PostgreSQL's estimate of the events in the database."""
    open: int = 0
    stale: int = 0
    """Open events without a recent update."""
    last_write: float = 0.0
    database_up: bool = False
    heartbeat: Heartbeat = field(default_factory=lambda: Heartbeat(HUNG_S))
    """Beats with every fetch, which comes every second even without events, and every write."""


class FleetEventWriter:
    """Consumes events from the bus until stopped."""

    def __init__(
        self,
        bus: Bus,
        events: FleetEvents,
        settings: EventsSettings,
        subjects: Subjects,
        stopping: asyncio.Event,
    ) -> None:
        self.counts = WriterStats()
        self._bus, self._events = bus, events
        self._settings, self._subjects = settings, subjects
        self._stopping = stopping
        self._is_warned = False
        self._waiting: dict[str, int] = {}
        """Messages pending, by stream."""

    async def run(self) -> None:
        """Write events until stopped; retry while the bus or the database is unreachable."""
        logger.info("events of the fleet are written to the database")
        tasks = [asyncio.create_task(self._take(stream)) for stream in (EVENTS, EDGES)]
        polling = asyncio.create_task(self._look())
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            await end(polling, *tasks)

    async def _take(self, stream: str) -> None:
        """Take events until stopped from one stream: the workers', or that of sites that score."""
        consumer: Consumer | None = None
        backoff = Backoff(FIRST_S, LONGEST_S)
        while not self._stopping.is_set():
            self.counts.heartbeat.beat()
            try:
                if consumer is None:
                    consumer = await self._bus.events(READER, stream)
                deliveries = await consumer.fetch(self._settings.batch, FETCH_S)
                if deliveries:
                    await self._keep(deliveries)
                    await consumer.ack(deliveries)
                    self._waiting[stream] = await consumer.lag()
                    self.counts.waiting = sum(self._waiting.values())
                backoff.reset()
            except UnavailableError as error:
                if consumer is not None:
                    await consumer.close()
                    consumer = None
                await self._again(error, backoff)

    async def _keep(self, deliveries: Sequence[Delivery]) -> None:
        """Store the events of messages."""
        changes = await self._read(deliveries)
        try:
            await self._write([change for _, change in changes])
        except Exception as error:
            if not is_data(error):
                raise
            for delivery, change in changes:  # isolate the faulty one
                await self._write_one(delivery, change)

    async def _read(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, FleetChange]]:
        changes: list[tuple[Delivery, FleetChange]] = []
        for delivery in deliveries:
            try:
                change = change_of(delivery, site=self._subjects.site_of(delivery.subject))
            except DataError as error:
                await self._bury(delivery, error)
                continue
            if change is None:
                self.counts.claims += 1
            else:
                changes.append((delivery, change))
        return changes

    async def _write_one(self, delivery: Delivery, change: FleetChange) -> None:
        try:
            await self._write([change])
        except Exception as error:
            if not is_data(error):
                raise
            await self._bury(delivery, error)

    async def _write(self, changes: Sequence[FleetChange]) -> None:
        """Store changes, retrying while the database is unreachable; give up on stop."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        while changes:
            self.counts.heartbeat.beat()
            try:
                await self._events.write(changes)
            except NoDatabaseError as error:
                self.counts.database_up = False
                await self._again(error, backoff)
                if self._stopping.is_set():
                    raise UnavailableError("events: stopping; they will be redelivered") from None
            else:
                self.counts.written += len(changes)
                self.counts.last_write = time.time()
                self.counts.database_up = True
                return

    async def _bury(self, delivery: Delivery, error: Exception) -> None:
        """Move an invalid message to the dead-letter subject."""
        logger.warning("message %d on %s: %s", delivery.sequence, delivery.subject, error)
        await self._bus.publish(
            self._subjects.dead("event"),
            delivery.data,
            id=f"dead:{delivery.subject}:{delivery.sequence}",
            headers={
                "reason": _one_line(error),
                "subject": delivery.subject,
                "tries": str(delivery.tries),
            },
        )
        self.counts.dead += 1

    async def _look(self) -> None:
        """Periodically count stored events and delete expired ones."""
        retained = -RETAIN_S
        while True:
            try:
                counts, stale_s = self.counts, self._settings.stale_s
                found = await self._events.going_on(stale_s=stale_s)
                counts.stored, counts.open, counts.stale = found
                counts.database_up = True
                if time.monotonic() - retained > RETAIN_S:
                    retained = time.monotonic()
                    await self._retain()
            except StepvadError as error:
                logger.debug("events could not be counted: %s", error)
            except Exception:
                logger.exception("events could not be counted")
            await asyncio.sleep(LOOK_S)

    async def _retain(self) -> None:
        asked = self._settings.retention_days
        kept = await self._events.retention()
        if asked is not None and kept is not None and asked < kept and not self._is_warned:
            self._is_warned = True
            logger.warning(
                "retention_days: the owner keeps events for %g days, which %g here cannot shorten; "
                "run stepvad fleet events SETTINGS --migrate as the owner",
                *(kept, asked),
            )
        done = more = await self._events.retain(asked)
        while more == RETAINED:
            done += (more := await self._events.retain(asked))
        self.counts.deleted += done
        if done:
            logger.info("retention deleted %d events", done)

    async def _again(self, error: Exception, backoff: Backoff) -> None:
        """Back off before the next attempt; log the first failure in a row."""
        self.counts.retries += 1
        if not backoff.failures:
            logger.warning("%s; retrying", error)
        await rest(self._stopping, backoff.next_s())


async def checked(events: FleetEvents, stopping: asyncio.Event) -> bool:
    """Wait for the database and migrate it if needed; False if stopped before or meanwhile.

    A role without the right to create tables works if the tables are up to date.
    """
    backoff = Backoff(FIRST_S, LONGEST_S)
    while not stopping.is_set():
        try:
            return await unless(stopping, _check_or_migrate(events))
        except NoDatabaseError as error:
            logger.warning("%s; retrying", error)
            await rest(stopping, backoff.next_s())
    return False


async def _check_or_migrate(events: FleetEvents) -> None:
    try:
        await events.check()
    except ConfigError:
        await events.migrate()


def _one_line(error: Exception) -> str:
    """The error as a valid header value: one ASCII line."""
    return " ".join(str(error).split())[:200].encode("ascii", "replace").decode()


COUNTED = {
    "written": ("stepvad_fleet_changes_written", "Changes of events stored, or known already."),
    "claims": ("stepvad_fleet_claims", "Messages by which workers took shards."),
    "dead": ("stepvad_fleet_events_unreadable", "Messages that are no events."),
    "retries": ("stepvad_fleet_events_retries", "How often bus or database did not answer."),
    "deleted": ("stepvad_fleet_events_expired", "Events deleted because they were too old."),
}
MEASURED = {
    "waiting": ("stepvad_fleet_events_waiting", "Messages on the bus that wait to be stored."),
    "stored": ("stepvad_fleet_events_stored", "Events in the database, about."),
    "open": ("stepvad_fleet_events_open", "Events that go on."),
    "stale": ("stepvad_fleet_events_stale", "Events that go on, and silent for long."),
    "last_write": ("stepvad_fleet_last_write_seconds", "Unix time of the last transaction."),
    "database_up": ("stepvad_fleet_database_up", "Whether the database answers."),
}


class WriterMetrics(Collector):
    """Collector that reads the counters on each scrape."""

    def __init__(self, counts: WriterStats) -> None:
        self.counts = counts

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        for key, (name, words) in COUNTED.items():
            yield CounterMetricFamily(name, words, value=getattr(self.counts, key))
        for key, (name, words) in MEASURED.items():
            yield GaugeMetricFamily(name, words, value=float(getattr(self.counts, key)))


def serve(counts: WriterStats, address: str) -> None:
    """Serve the metrics at HOST:PORT."""
    registry = CollectorRegistry()
    registry.register(WriterMetrics(counts))
    host, _, port = address.rpartition(":")
    try:
        start_http_server(int(port), host, registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"events.metrics: expected to listen at {address}, got: {error}"
        ) from None
