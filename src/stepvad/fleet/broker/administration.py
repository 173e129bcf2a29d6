"""Operator commands on a broker."""

from __future__ import annotations

from collections.abc import Iterable

from stepvad.errors import ConfigError
from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.broker.nats import NatsBus
from stepvad.fleet.leases import VERSION, Lease
from stepvad.fleet.settings import BusSettings, FleetSettings
from stepvad.fleet.tenants import Tenant, default_tenant


async def set_up(settings: FleetSettings) -> None:
    """Create the streams and buckets, enrol the tenants, and check the settings against them."""
    async with connected_soon(settings.bus, "setup") as bus:
        await bus.setup()
        first = default_tenant(settings.bus.subjects.first)
        await enrol(bus, first.with_partitions(settings.bus.partitions))
        for one in settings.tenants:
            await enrol(bus, one.tenant)


async def enrol(bus: NatsBus, wanted: Tenant) -> None:
    """Create what a tenant needs and tell everybody; partitions can be added, not taken away."""
    known = (await bus.tenants()).get(wanted.name)
    if known is not None:
        _check_kept(known, wanted)
    if len(wanted.partitions) > 1 and known != wanted:
        _check_versions((await bus.leases()).values())
    await bus.enrol(wanted)


async def remove(settings: BusSettings, tenant: str) -> None:
    """Delete what the broker keeps of a tenant."""
    async with connected_soon(settings, "setup") as bus:
        await bus.remove(tenant)


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
            hint="partitions can be added, not changed or taken away",
        )


def _check_versions(leases: Iterable[bytes]) -> None:
    """Reject a second partition while a worker runs that does not know how cameras move."""
    if any(Lease.unpack(value).version < VERSION for value in leases):
        raise ConfigError(
            "partitions: expected workers that know them, got one of an older version",
            hint="upgrade all workers first",
        )
