"""Operator commands on a broker."""

from __future__ import annotations

from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.broker.elections import until_led
from stepvad.fleet.broker.leadership import check_led
from stepvad.fleet.settings import FleetSettings


async def set_up(settings: FleetSettings) -> list[str]:
    """Make streams and buckets as the settings say; return what was changed."""
    async with connected_soon(settings.bus, "setup") as bus:
        done = await bus.change()
        await until_led(lambda: check_led(bus))
        return done
