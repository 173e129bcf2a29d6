"""Operator commands on a broker."""

from __future__ import annotations

from typing import NamedTuple

from stepvad.errors import ConfigError
from stepvad.fleet.broker.changes import Change
from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.broker.elections import until_led
from stepvad.fleet.broker.leadership import check_led
from stepvad.fleet.broker.nats import NatsBus
from stepvad.fleet.settings import BusSettings, FleetSettings
from stepvad.fleet.subjects import edge_stream_of, stream_of
from stepvad.fleet.tenants import Tenant


async def set_up(settings: FleetSettings) -> list[str]:
    """Make streams, buckets and tenants as the settings say; return what was changed."""
    async with connected_soon(settings.bus, "setup") as bus:
        done = await bus.change()
        for one in settings.tenants:
            done += await enrol(bus, one.tenant)
        await until_led(lambda: check_led(bus))
        return [str(one) for one in done]


async def enrol(bus: NatsBus, wanted: Tenant) -> list[Change]:
    """Make what a tenant needs and tell everybody."""
    known = (await until_led(bus.tenants)).get(wanted.name)
    if known is not None and known.partition != wanted.partition:
        raise ConfigError(
            f"tenant {wanted.key}: expected {known.partition.shards} shards, as it has, "
            f"got {wanted.partition.shards}",
            hint="the number of shards is fixed",
        )
    return await bus.enrol(wanted)


async def remove(settings: BusSettings, tenant: str) -> None:
    """Delete what the broker keeps of a tenant."""
    async with connected_soon(settings, "setup") as bus:
        await bus.remove(tenant)


class Usage(NamedTuple):
    """How much a tenant uses of what it may."""

    tenant: str
    sites: tuple[str, ...]
    cameras: int
    """That sent something while poses are kept."""
    most_cameras: int
    messages: int
    poses_mb: float
    most_poses_mb: float
    events_mb: float
    most_events_mb: float


async def usage(settings: FleetSettings) -> list[Usage]:
    """What each tenant uses."""
    async with connected_soon(settings.bus, "usage") as bus:
        return [await _usage(bus, one) for one in (await bus.tenants()).values()]


async def _usage(bus: NatsBus, tenant: Tenant) -> Usage:
    poses = await bus.stream_size(stream_of(tenant.partition))
    events = await bus.stream_size(edge_stream_of(tenant.name))
    limits, settings = tenant.limits, bus.settings
    return Usage(
        tenant=tenant.name,
        sites=tenant.sites,
        cameras=poses.subjects,
        most_cameras=limits.cameras,
        messages=poses.messages,
        poses_mb=poses.bytes / 1e6,
        most_poses_mb=limits.poses_mb if tenant.name else settings.poses_mb,
        events_mb=events.bytes / 1e6,
        most_events_mb=limits.events_mb if tenant.name else settings.events_mb,
    )


async def lags(settings: BusSettings) -> dict[str, int]:
    """Messages not yet delivered, by consumer of poses."""
    async with connected_soon(settings, "lag") as bus:
        return await bus.lags()
