"""Operator commands on the event database of a fleet: migrate, write, delete, mark."""

from __future__ import annotations

import asyncio
import signal

from stepvad.files.secrets import secret
from stepvad.fleet.broker.connection import connected_until
from stepvad.fleet.events.postgres import Wanted, connect
from stepvad.fleet.events.writer import FleetEventWriter, checked
from stepvad.fleet.events.writer_metrics import serve
from stepvad.fleet.settings import FleetSettings
from stepvad.incidents.stored import Deleted


async def migrate(settings: FleetSettings) -> int:
    """Migrate the tables; return the number of steps."""
    async with connect(secret(settings.events.dsn)) as kept:
        return await kept.migrate()


async def delete(
    settings: FleetSettings, wanted: Wanted, *, include_open: bool = False, scrub: bool = False
) -> Deleted:
    """Delete events; `scrub` also purges them from the files of the table."""
    async with connect(secret(settings.events.dsn)) as kept:
        done = await kept.delete(wanted, include_open=include_open)
        if scrub:
            await kept.scrub()
    return done


async def mark(settings: FleetSettings, id: str, *, normal: bool) -> None:
    """Mark an event as normal, or remove the mark."""
    async with connect(secret(settings.events.dsn)) as kept:
        await kept.mark(id, normal)


async def write(settings: FleetSettings) -> None:
    """Store events from the bus until SIGTERM or Ctrl-C."""
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
        await writer.run()
