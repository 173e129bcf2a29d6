"""Where cameras are: tenants, each with its stream of poses, divided into shards."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

DEFAULT = "_"
"""How the default tenant, whose name is empty, is called in subjects and keys."""
SHARDS = 64
"""Shards of the first partition of a fleet."""


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

    def place_of(self, camera: str) -> Place:
        """The shard of a `site/camera`; it never changes."""
        return self.place(crc32(camera.encode()) % self.shards)

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
