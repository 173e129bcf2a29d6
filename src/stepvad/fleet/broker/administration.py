"""Operator commands on a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stepvad.errors import ConfigError
from stepvad.fleet.broker.changes import Change
from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.broker.elections import until_led
from stepvad.fleet.broker.leadership import check_led
from stepvad.fleet.broker.nats import NatsBus
from stepvad.fleet.leases import VERSION, Lease
from stepvad.fleet.settings import BusSettings, FleetSettings
from stepvad.fleet.subjects import edge_stream_of, stream_of
from stepvad.fleet.tenants import Tenant, default_tenant


async def set_up(settings: FleetSettings) -> list[str]:
    """Make streams, buckets and tenants as the settings say; return what was changed."""
    async with connected_soon(settings.bus, "setup") as bus:
        done = await bus.change()
        first = default_tenant(settings.bus.subjects.first)
        done += await enrol(bus, first.with_partitions(settings.bus.partitions))
        for one in settings.tenants:
            done += await enrol(bus, one.tenant)
        await until_led(lambda: check_led(bus))
        return [str(one) for one in done]


async def enrol(bus: NatsBus, wanted: Tenant) -> list[Change]:
    """Make what a tenant needs and tell everybody; partitions can be added, not taken away."""
    known = (await until_led(bus.tenants)).get(wanted.name)
    if known is not None:
        _check_kept(known, wanted)
    if len(wanted.partitions) > 1 and known != wanted:
        _check_versions((await until_led(bus.leases)).values())
    return await bus.enrol(wanted)


async def remove(settings: BusSettings, tenant: str) -> None:
    """Delete what the broker keeps of a tenant."""
    async with connected_soon(settings, "setup") as bus:
        await bus.remove(tenant)


class Usage(NamedTuple):
    """How much a tenant uses of what it may."""

    tenant: str
    sites: tuple[str, ...]
    partitions: int
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
    poses = [await bus.stream_size(stream_of(part)) for part in tenant.partitions]
    events = await bus.stream_size(edge_stream_of(tenant.name))
    limits, settings = tenant.limits, bus.settings
    return Usage(
        tenant=tenant.name,
        sites=tenant.sites,
        partitions=len(poses),
        cameras=sum(one.subjects for one in poses),
        most_cameras=limits.cameras,
        messages=sum(one.messages for one in poses),
        poses_mb=sum(one.bytes for one in poses) / 1e6,
        most_poses_mb=(limits.poses_mb if tenant.name else settings.poses_mb) * len(poses),
        events_mb=events.bytes / 1e6,
        most_events_mb=limits.events_mb if tenant.name else settings.events_mb,
    )


async def lags(settings: BusSettings) -> dict[str, int]:
    """Messages not yet delivered, by consumer of poses."""
    async with connected_soon(settings, "lag") as bus:
        return await bus.lags()


def _check_kept(known: Tenant, wanted: Tenant) -> None:
    have, want = known.partitions, wanted.partitions
    if want[: len(have)] != have:
        said = ", ".join(f"{part.shards} shards" for part in have)
        raise ConfigError(
            f"tenant {wanted.key}: expected the partitions that it has ({said}) and maybe more, "
            f"got {', '.join(f'{part.shards} shards' for part in want)}",
            hint="partitions can be added, not changed or removed",
        )


def _check_versions(leases: Iterable[bytes]) -> None:
    """Reject a second partition while a worker runs that does not know how cameras move."""
    if any(Lease.unpack(value).version < VERSION for value in leases):
        raise ConfigError(
            "partitions: expected workers that support them, got one of an older version",
            hint="upgrade all workers first",
        )
