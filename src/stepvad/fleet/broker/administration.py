"""The first connection to a broker, leaders of its streams, and its setup."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stepvad.fleet.broker.arrangement import configs
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connect
from stepvad.fleet.broker.nats_errors import until_led
from stepvad.fleet.event_loop import end
from stepvad.fleet.settings import BusSettings, FleetSettings

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


async def led(bus: NatsBus) -> dict[str, bool]:
    """Whether each stream and bucket of a fleet has a leader; empty without a connection."""
    if not bus.client.is_connected:
        return {}
    names = [config.name or "" for config in configs(bus.settings)]
    found = await asyncio.gather(*(_has_leader(bus, name) for name in names))
    return dict(zip(names, found, strict=True))


async def check_led(bus: NatsBus) -> None:
    """Reject a fleet in which a stream has no leader."""
    found = await led(bus)
    if without := [name for name, is_led in found.items() if not is_led]:
        raise UnavailableError(
            f"bus: expected a leader for every stream, got none for {', '.join(without)}",
            hint="start the missing brokers; if all run, delete that stream of poses and retry",
        )


async def _has_leader(bus: NatsBus, stream: str) -> bool:
    """A broker alone is its own leader; a stream that does not answer has none."""
    try:
        facts = await bus.stream_facts(stream)
    except UnavailableError:
        return False
    return "cluster" not in facts or bool(facts["cluster"].get("leader"))


async def set_up(settings: FleetSettings) -> list[str]:
    """Make streams and buckets as the settings say; return what was changed."""
    async with connected_soon(settings.bus, "setup") as bus:
        done = await bus.change()
        await until_led(lambda: check_led(bus))
        return done
