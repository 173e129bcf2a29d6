"""Tenants of a fleet: their sites and limits, as kept in the broker's directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field, ValidationError

from stepvad.codec import Fields, JsonObject
from stepvad.errors import DataError
from stepvad.fleet.places import DEFAULT, Partition
from stepvad.site.settings.page import Section

VERSION = 1
"""Layout version of an entry of the directory."""
PARTITION_SHARDS = 16
"""Shards of a tenant's stream of poses."""


class Limits(Section):
    """What the broker takes of a tenant; beyond it the tenant's own messages are refused."""

    cameras: int = Field(100, ge=1, description="Maximum cameras over all its sites.")
    messages_s: float = Field(
        30.0,
        gt=0,
        description="Maximum messages per second of one camera, averaged over poses_s.",
    )
    message_kb: float = Field(256.0, ge=1, le=1000, description="Largest message.")
    poses_mb: float = Field(128.0, gt=0, description="Size limit of poses.")
    events_mb: float = Field(
        64.0, gt=0, description="Size limit of events from sites that score locally, until stored."
    )
    connections: int = Field(16, ge=1, description="Maximum connections to one broker.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """An owner of sites; nobody else can read, forge, suppress, evict or starve its cameras."""

    name: str
    sites: tuple[str, ...] = ()
    partition: Partition = field(default_factory=Partition)
    limits: Limits = field(default_factory=Limits)

    @property
    def key(self) -> str:
        """Its key in the directory."""
        return self.name or DEFAULT

    def pack(self) -> bytes:
        """Serialise for the directory."""
        facts: JsonObject = {
            "version": VERSION,
            "sites": list(self.sites),
            "shards": self.partition.shards,
            "limits": self.limits.model_dump(),
        }
        return json.dumps(facts).encode()

    @classmethod
    def unpack(cls, key: str, value: bytes) -> Tenant:
        """Parse an entry of the directory; raise `DataError` if it is newer or damaged."""
        try:
            own = Fields.wrap(f"tenant {key}", json.loads(value))
            own.version(VERSION)
            limits = Limits.model_validate(_known(own.fields("limits")))
        except (ValueError, ValidationError) as error:
            raise DataError(f"tenant {key}: expected an entry, got: {error!s:.200}") from None
        name = "" if key == DEFAULT else key
        return cls(
            name=name,
            sites=own.texts("sites"),
            partition=Partition(name, 0, own.whole("shards", least=1)),
            limits=limits,
        )


def default_tenant(first: Partition) -> Tenant:
    """The default tenant, which has no entry in the directory."""
    return Tenant(name="", partition=first)


def partitions_of(tenants: Mapping[str, Tenant]) -> list[Partition]:
    """All partitions of a fleet."""
    return [tenant.partition for tenant in tenants.values()]


def _known(own: Fields) -> dict[str, object]:
    """The limits that this version knows."""
    return {name: value for name, value in own.values.items() if name in Limits.model_fields}
