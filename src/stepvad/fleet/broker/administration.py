"""What an operator asks of a broker."""

from __future__ import annotations

from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.settings import BusSettings


async def set_up(settings: BusSettings) -> None:
    """Make the streams and buckets, and see that the settings fit them."""
    async with connected_soon(settings, "setup") as bus:
        await bus.setup()


async def lags(settings: BusSettings) -> dict[str, int]:
    """Messages that wait to be scored, by shard."""
    async with connected_soon(settings, "lag") as bus:
        return await bus.lags()
