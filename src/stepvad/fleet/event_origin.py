"""Who may have published an event: the tenant and the site that its subject names."""

from __future__ import annotations

from typing import NamedTuple

from stepvad.errors import DataError
from stepvad.fleet.subjects import unescaped
from stepvad.fleet.tenant_name import is_tenant


class Origin(NamedTuple):
    """The source of an event, which the broker has checked."""

    tenant: str = ""
    """Empty for the fleet itself."""
    site: str | None = None
    """The only site that may publish there; None for workers, which serve all sites."""


def origin_of(subject: str, prefix: str) -> Origin:
    """The origin of an event by its subject.

    Workers publish on `PREFIX.events.SHARD` and `PREFIX.events.TENANT.PARTITION.SHARD`, where the
    fleet itself is `_`, edges on
    `PREFIX.edge-events.SITE` and `PREFIX.tenant.TENANT.edge-events.SITE`.
    """
    first, *rest = subject.split(".")
    match rest if first == prefix else []:
        case ["events", _] | ["events", "_", _, _]:
            return Origin()
        case ["edge-events", site]:
            return Origin(site=unescaped(site))
        case ["events", tenant, _, _] if is_tenant(tenant):
            return Origin(tenant)
        case ["tenant", tenant, "edge-events", site] if is_tenant(tenant):
            return Origin(tenant, unescaped(site))
    raise DataError(f"event: expected the subject of a worker or an edge, got {subject!r:.120}")
