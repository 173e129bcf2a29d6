"""Events from the bus into PostgreSQL: acknowledged once they are on the disk."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.fleet.broker.bus import Bus, Consumer, Delivery, UnavailableError
from stepvad.fleet.event_message import FleetChange, change_of
from stepvad.fleet.events.postgres import FleetEvents, NoDatabaseError
from stepvad.fleet.events.postgres_errors import is_data
from stepvad.fleet.subjects import Subjects, unescaped
from stepvad.fleet.tasks import end, rest
from stepvad.supervision.backoff import Backoff

if TYPE_CHECKING:
    from stepvad.fleet.settings import EventsSettings

logger = logging.getLogger(__name__)

READER = "stepvad-events"
"""Writers share this name on the bus, and the events among themselves."""
FETCH_S = 1.0
FIRST_S, LONGEST_S = 0.2, 5.0
"""Between two tries of what does not answer."""
LOOK_S, RETAIN_S = 15.0, 600.0


@dataclass(slots=True)
class WriterStats:
    """What a writer did and how things are."""

    written: int = 0
    """Changes of events that were stored, or known already."""
    claims: int = 0
    dead: int = 0
    """Messages that are no events."""
    retries: int = 0
    """How often the bus or the database did not answer."""
    deleted: int = 0
    """Events that were too old."""
    waiting: int = 0
    """Messages on the bus."""
    stored: int = 0
    """Events in the database, as PostgreSQL estimates."""
    open: int = 0
    stale: int = 0
    """Events that go on and of which nothing was heard for long."""
    last_write: float = 0.0
    database_up: bool = False


class FleetEventWriter:
    """Takes events from the bus for as long as it is told to."""

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

    async def run(self) -> None:
        """Until it is told to stop; what does not answer is waited for."""
        logger.info("events of the fleet are written to the database")
        looking = asyncio.create_task(self._look())
        try:
            await self._take()
        finally:
            await end(looking)

    async def _take(self) -> None:
        consumer: Consumer | None = None
        backoff = Backoff(FIRST_S, LONGEST_S)
        while not self._stopping.is_set():
            try:
                if consumer is None:
                    consumer = await self._bus.events(READER)
                deliveries = await consumer.fetch(self._settings.batch, FETCH_S)
                if deliveries:
                    await self._keep(deliveries)
                    await consumer.ack(deliveries)
                    self.counts.waiting = await consumer.lag()
                backoff.reset()
            except UnavailableError as error:
                if consumer is not None:
                    await consumer.close()
                    consumer = None
                await self._again(error, backoff)

    async def _keep(self, deliveries: Sequence[Delivery]) -> None:
        """Store the events of some messages; when it returns, all of them are done with."""
        changes: list[tuple[Delivery, FleetChange]] = []
        for delivery in deliveries:
            try:
                change = change_of(delivery, site=self._site_of(delivery.subject))
            except DataError as error:
                await self._bury(delivery, error)
                continue
            if change is None:
                self.counts.claims += 1
            else:
                changes.append((delivery, change))
        try:
            await self._write([change for _, change in changes])
        except Exception as error:
            if not is_data(error):
                raise
            for delivery, change in changes:  # one of them is to blame
                await self._write_one(delivery, change)

    async def _write_one(self, delivery: Delivery, change: FleetChange) -> None:
        try:
            await self._write([change])
        except Exception as error:
            if not is_data(error):
                raise
            await self._bury(delivery, error)

    async def _write(self, changes: Sequence[FleetChange]) -> None:
        """Store changes, however long the database is away; a stop gives up."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        while changes:
            try:
                await self._events.write(changes)
            except NoDatabaseError as error:
                self.counts.database_up = False
                await self._again(error, backoff)
                if self._stopping.is_set():
                    raise UnavailableError("events: told to stop; they come again") from None
            else:
                self.counts.written += len(changes)
                self.counts.last_write = time.time()
                self.counts.database_up = True
                return

    async def _bury(self, delivery: Delivery, error: Exception) -> None:
        """Set a message aside that is no event."""
        logger.warning("message %d on %s: %s", delivery.sequence, delivery.subject, error)
        await self._bus.publish(
            self._subjects.dead("event"),
            delivery.data,
            id=f"dead:events:{delivery.sequence}",
            headers={
                "reason": _one_line(error),
                "subject": delivery.subject,
                "tries": str(delivery.tries),
            },
        )
        self.counts.dead += 1

    def _site_of(self, subject: str) -> str | None:
        """The site that may speak on a subject; None for workers, who speak for all."""
        parts = subject.split(".")
        return unescaped(parts[-1]) if parts[-2:-1] == ["edge-events"] else None

    async def _look(self) -> None:
        """Count what is stored, and delete what is too old, now and then."""
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
        days = self._settings.retention_days
        done = await self._events.retain(events_days=days, forgotten_days=max(days, 30.0))
        self.counts.deleted += done
        if done:
            logger.info("%d events ended more than %g days ago and are deleted", done, days)

    async def _again(self, error: Exception, backoff: Backoff) -> None:
        """Wait before the next try; the first failure in a row is logged."""
        self.counts.retries += 1
        if not backoff.failures:
            logger.warning("%s; retrying", error)
        await rest(self._stopping, backoff.next_s())


async def checked(events: FleetEvents, stopping: asyncio.Event) -> bool:
    """Wait for the database and bring it up to date; False if told to stop before.

    Who may not make tables is content with those of this version.
    """
    backoff = Backoff(FIRST_S, LONGEST_S)
    while not stopping.is_set():
        try:
            try:
                await events.check()
            except ConfigError:
                await events.migrate()
        except NoDatabaseError as error:
            logger.warning("%s; retrying", error)
            await rest(stopping, backoff.next_s())
        else:
            return True
    return False


def _one_line(error: Exception) -> str:
    """What a header may hold."""
    return " ".join(str(error).split())[:200].encode("ascii", "replace").decode()
