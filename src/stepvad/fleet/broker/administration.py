"""Operator commands on a broker."""

from __future__ import annotations

from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.settings import BusSettings


async def set_up(settings: BusSettings) -> None:
    """Create the streams and buckets, and check the settings against them.

    Streams of an earlier version are brought up to date.
    """
    from stepvad.fleet.broker.batches import allow_batches

    async with connected_soon(settings, "setup") as bus:
        await bus.setup()
        await allow_batches(bus.client.jetstream())


async def lags(settings: BusSettings) -> dict[str, int]:
    """Messages not yet delivered, by consumer of poses."""
    async with connected_soon(settings, "lag") as bus:
        return await bus.lags()
