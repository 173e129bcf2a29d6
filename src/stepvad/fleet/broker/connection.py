"""The first connection to a broker: commands time out, services wait until stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connect
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.tasks import end

WITHIN_S = 5.0
"""Connection timeout of interactive commands."""


@asynccontextmanager
async def connected_soon(
    settings: BusSettings, name: str, within_s: float = WITHIN_S
) -> AsyncIterator[NatsBus]:
    """Connect for the duration of a block; raise `UnavailableError` on timeout."""
    try:
        async with asyncio.timeout(within_s):
            bus = await connect(settings, name)
    except TimeoutError:
        raise UnavailableError(
            f"bus: expected a connection to {', '.join(settings.servers)}, "
            f"got none within {within_s:g} s",
            hint="is the broker running, and are address, user and certificates right?",
        ) from None
    try:
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def connected_until(
    settings: BusSettings, name: str, stop: asyncio.Event
) -> AsyncIterator[NatsBus | None]:
    """Connect for the duration of a block; yield None if stopped before connecting."""
    connecting = asyncio.create_task(connect(settings, name))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({connecting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        yield connecting.result() if connecting.done() else None
    finally:
        await end(connecting, stopped)
        if not connecting.cancelled() and connecting.exception() is None:
            await connecting.result().close()
