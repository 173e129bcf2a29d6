"""Operator commands on a broker."""

from __future__ import annotations

from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.settings import BusSettings


async def set_up(settings: BusSettings) -> list[str]:
    """Make the streams and buckets as the settings say; return what was changed."""
    async with connected_soon(settings, "setup") as bus:
        return [str(one) for one in await bus.change()]


async def lags(settings: BusSettings) -> dict[str, int]:
    """Messages not yet delivered, by consumer of poses."""
    async with connected_soon(settings, "lag") as bus:
        return await bus.lags()
