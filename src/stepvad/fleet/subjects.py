"""Subject, stream and bucket names on the bus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from stepvad.fleet.places import DEFAULT, SHARDS, Partition, Place

POSES, EVENTS, DEAD, EDGES = "POSES", "EVENTS", "DEAD", "EDGES"
"""The streams; a NATS account holds one fleet. Those of a tenant have its name as well."""
_OTHER = re.compile(rb"[^A-Za-z0-9_-]")


def escaped(name: str) -> str:
    """Escape a name for use in a subject: keep letters, digits, - and _, the rest as %XX."""
    return _OTHER.sub(lambda found: b"%%%02X" % found[0][0], name.encode()).decode()


def unescaped(part: str) -> str:
    """Reverse `escaped`."""
    return unquote(part, errors="replace")


def stream_of(partition: Partition) -> str:
    """The stream with the poses of a partition."""
    return POSES if partition.is_first else f"{POSES}-{partition.tenant}-{partition.number}"


def edge_stream_of(tenant: str) -> str:
    """The stream with the events that the sites of a tenant score by themselves."""
    return f"{EDGES}-{tenant}" if tenant else EVENTS


@dataclass(frozen=True, slots=True)
class Subjects:
    """Subjects and buckets of a fleet."""

    prefix: str = "stepvad"
    shards: int = SHARDS

    @property
    def first(self) -> Partition:
        """The partition that every fleet has."""
        return Partition(shards=self.shards)

    def place(self, number: int) -> Place:
        """A shard of the first partition."""
        return self.first.place(number)

    def poses(self, site: str, camera: str, place: Place | None = None) -> str:
        """Frames of a camera, at its place in the first partition unless another is given."""
        at = place or self.first.place_of(f"{site}/{camera}")
        return f"{self._poses(at.partition)}.{at.number}.{escaped(site)}.{escaped(camera)}"

    def poses_of_site(self, site: str, tenant: str = "") -> str:
        """Frames of all cameras of a site; its edge may publish only these."""
        partition = f"{self.of_tenant(tenant)}.poses.*" if tenant else f"{self.prefix}.poses"
        return f"{partition}.*.{escaped(site)}.*"

    def poses_of_shard(self, place: Place) -> str:
        """Frames of all cameras of a shard."""
        return f"{self._poses(place.partition)}.{place.number}.>"

    def poses_of(self, partition: Partition) -> str:
        """Frames of all cameras of a partition."""
        return f"{self._poses(partition)}.>"

    def events(self, place: Place) -> str:
        """Events of the cameras of a shard."""
        return f"{self.prefix}.events.{place}"

    def edge_events(self, site: str, tenant: str = "") -> str:
        """Events of a site that scores by itself."""
        of = self.of_tenant(tenant) if tenant else self.prefix
        return f"{of}.edge-events.{escaped(site)}"

    def dead(self, reason: str) -> str:
        """Unreadable messages."""
        return f"{self.prefix}.dead.{escaped(reason)}"

    def of_tenant(self, tenant: str) -> str:
        """First part of the subjects that belong to a tenant alone."""
        return f"{self.prefix}.tenant.{tenant or DEFAULT}"

    def of_stream(self, stream: str) -> list[str]:
        """All subjects of a stream that every fleet has."""
        parts = {POSES: ("poses",), EVENTS: ("events", "edge-events"), DEAD: ("dead",)}
        return [f"{self.prefix}.{part}.>" for part in parts[stream]]

    def _poses(self, partition: Partition) -> str:
        if partition.is_first:
            return f"{self.prefix}.poses"
        return f"{self.of_tenant(partition.tenant)}.poses.{partition.number}"

    @property
    def leases(self) -> str:
        """The key-value bucket of the leases of live workers."""
        return f"{self.prefix}-leases"

    @property
    def state(self) -> str:
        """The key-value bucket of checkpoints."""
        return f"{self.prefix}-state"

    @property
    def directory(self) -> str:
        """The key-value bucket that says which partitions each tenant has."""
        return f"{self.prefix}-directory"
