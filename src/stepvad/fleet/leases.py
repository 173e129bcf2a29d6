"""What a worker's lease says: which shards it holds, and which version it runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from stepvad.fleet.places import Place

VERSION = 2
"""Of the protocol between workers: since 2 they know partitions and cameras that move."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The shards of a live worker, as their places are called."""

    names: frozenset[str] = frozenset()
    version: int = VERSION

    @classmethod
    def of(cls, places: Iterable[Place]) -> Lease:
        """Our own."""
        return cls(frozenset(map(str, places)))

    def pack(self) -> bytes:
        """Serialise; workers of version 1 read the numbers in the first partition alone."""
        first = sorted(int(name) for name in self.names if name.isdecimal())
        more = sorted(name for name in self.names if not name.isdecimal())
        return json.dumps({"version": self.version, "shards": first, "places": more}).encode()

    @classmethod
    def unpack(cls, value: bytes) -> Lease:
        """Parse the lease of a worker of any version."""
        facts = json.loads(value)
        names = (*facts["shards"], *facts.get("places", ()))
        return cls(frozenset(map(str, names)), int(facts.get("version", 1)))
