"""Subject, stream and bucket names on the bus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote
from zlib import crc32

from stepvad.errors import DataError

POSES, EVENTS, EDGES, DEAD = "POSES", "EVENTS", "EDGES", "DEAD"
"""The streams; a NATS account holds one fleet."""
SHARDS = 64
_OTHER = re.compile(rb"[^A-Za-z0-9_-]")


def escaped(name: str) -> str:
    """Escape a name for use in a subject: keep letters, digits, - and _, the rest as %XX."""
    return _OTHER.sub(lambda found: b"%%%02X" % found[0][0], name.encode()).decode()


@dataclass(frozen=True, slots=True)
class Subjects:
    """Subjects and buckets of a fleet."""

    prefix: str = "stepvad"
    shards: int = SHARDS

    def shard(self, site: str, camera: str) -> int:
        """The shard of a camera; it never changes."""
        return crc32(f"{site}/{camera}".encode()) % self.shards

    def poses(self, site: str, camera: str) -> str:
        """Frames of a camera."""
        shard = self.shard(site, camera)
        return f"{self.prefix}.poses.{shard}.{escaped(site)}.{escaped(camera)}"

    def poses_of_shard(self, shard: int) -> str:
        """Frames of all cameras of a shard."""
        return f"{self.prefix}.poses.{shard}.>"

    def events(self, shard: int) -> str:
        """Events of the cameras of a shard."""
        return f"{self.prefix}.events.{shard}"

    def edge_events(self, site: str) -> str:
        """Events of a site that scores by itself."""
        return f"{self.prefix}.edge-events.{escaped(site)}"

    def site_of(self, subject: str) -> str | None:
        """The only site that may publish events there; None for workers, which serve all sites."""
        match subject.split("."):
            case [self.prefix, "events", _]:
                return None
            case [self.prefix, "edge-events", site]:
                return unquote(site, errors="replace")
        raise DataError(f"event: expected the subject of a worker or an edge, got {subject!r:.120}")

    def dead(self, reason: str) -> str:
        """Unreadable messages."""
        return f"{self.prefix}.dead.{escaped(reason)}"

    def of_stream(self, stream: str) -> str:
        """All subjects of a stream."""
        part = {POSES: "poses", EVENTS: "events", EDGES: "edge-events", DEAD: "dead"}[stream]
        return f"{self.prefix}.{part}.>"

    @property
    def leases(self) -> str:
        """The key-value bucket of the leases of live workers."""
        return f"{self.prefix}-leases"

    @property
    def state(self) -> str:
        """The key-value bucket of checkpoints."""
        return f"{self.prefix}-state"
