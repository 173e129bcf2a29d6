"""Operator commands on the event database of a fleet: migrate, write, delete, mark."""

from __future__ import annotations

import asyncio
import signal

from stepvad.events.marks import Marks
from stepvad.events.record import Deleted, Mark
from stepvad.events.threshold import Marked
from stepvad.files import secret
from stepvad.fleet.broker.administration import connected_until
from stepvad.fleet.events.postgres import Wanted, connect
from stepvad.fleet.events.writer import FleetEventWriter, checked, serve
from stepvad.fleet.settings import FleetSettings
from stepvad.site.stages import watchdog


async def migrate(settings: FleetSettings) -> int:
    """Migrate the tables and store the retention of the settings; return the number of steps."""
    async with connect(secret(settings.events.dsn)) as kept:
        steps = await kept.migrate()
        if settings.events.retention_days is not None:
            await kept.set_retention(settings.events.retention_days)
    return steps


async def delete(
    settings: FleetSettings, wanted: Wanted, *, include_open: bool = False, scrub: bool = False
) -> Deleted:
    """Delete events; `scrub` also purges them from the files of the table."""
    async with connect(secret(settings.events.dsn)) as kept:
        done = await kept.delete(wanted, include_open=include_open)
        if scrub:
            await kept.scrub()
    return done


async def mark(settings: FleetSettings, id: str, mark: Mark | None, by: str = "") -> None:
    """Judge an event, or take the judgement back."""
    async with connect(secret(settings.events.dsn)) as kept:
        await kept.mark(id, mark, by)


async def marks_of(settings: FleetSettings, model_sha256: str) -> Marks:
    """Marks on events that this model found; a fleet stores no poses with its events."""
    async with connect(secret(settings.events.dsn)) as kept:
        found = await kept.events(Wanted(), limit=None)
        reviews = await kept.reviews()
    own = {one.id: one for one in found if one.model_sha256 == model_sha256}
    normal = [id for id, review in reviews.items() if review.mark == "normal" and id in own]
    return Marks(
        normal={id: Marked(camera=own[id].camera, peak=own[id].top_score) for id in normal},
        not_normal=[id for id in own if id not in normal],
    )


async def write(settings: FleetSettings) -> None:
    """Store events from the bus until SIGTERM or Ctrl-C; a writer that hangs ends the process."""
    told = settings.events
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with (
        connect(secret(told.dsn)) as kept,
        connected_until(settings.bus, "stepvad-events", stopping) as bus,
    ):
        if bus is None or not await checked(kept, stopping):
            return
        writer = FleetEventWriter(bus, kept, told, settings.bus.subjects, stopping)
        if told.metrics is not None:
            serve(writer.counts, told.metrics)
        with watchdog("the writer of events", writer.counts.heartbeat):
            await writer.run()
