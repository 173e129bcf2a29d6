"""Where cameras are: tenants, their partitions, and the shards of a partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from zlib import crc32

DEFAULT = "_"
"""How the default tenant, whose name is empty, is called in subjects and keys."""
SHARDS = 64
"""Shards of the first partition of a fleet."""


def shard_of(camera: str, shards: int) -> int:
    """The shard of a `site/camera` within a partition; it never changes."""
    return crc32(camera.encode()) % shards


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One stream of poses: a part of the cameras of one tenant."""

    tenant: str = ""
    """Empty for the default tenant, which owns every site that belongs to no other."""
    number: int = 0
    shards: int = SHARDS

    @property
    def is_first(self) -> bool:
        """Whether it is the first partition of the default tenant, which every fleet has."""
        return not self.tenant and self.number == 0

    def place(self, number: int) -> Place:
        """One of its shards."""
        return Place(self, number)

    def places(self) -> list[Place]:
        """All its shards."""
        return [Place(self, number) for number in range(self.shards)]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A shard of a partition: one worker at a time scores its cameras."""

    partition: Partition
    number: int

    def __str__(self) -> str:
        """A name unique in the fleet, such as `7`, `_.1.7` or `north.0.7`."""
        part = self.partition
        if part.is_first:
            return f"{self.number}"
        return f"{part.tenant or DEFAULT}.{part.number}.{self.number}"


def place_of(camera: str, partitions: Sequence[Partition]) -> Place:
    """The place of a `site/camera` by rendezvous hashing: a new partition moves only its share."""
    chosen = max(partitions, key=lambda part: _weight(camera, part.number))
    return chosen.place(shard_of(camera, chosen.shards))


def all_places(partitions: Iterable[Partition]) -> list[Place]:
    """Every shard of some partitions."""
    return [place for part in partitions for place in part.places()]


def _weight(camera: str, number: int) -> bytes:
    return blake2b(f"{number}:{camera}".encode(), digest_size=8).digest()
