"""Subject names on the bus, and the shard of each camera."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote
from zlib import crc32

POSES, EVENTS, DEAD = "POSES", "EVENTS", "DEAD"
"""The streams; a NATS account holds one fleet."""
SHARDS = 64
_OTHER = re.compile(rb"[^A-Za-z0-9_-]")


def escaped(name: str) -> str:
    """Escape a name for use in a subject: keep letters, digits, - and _, the rest as %XX."""
    return _OTHER.sub(lambda found: b"%%%02X" % found[0][0], name.encode()).decode()


def unescaped(part: str) -> str:
    """Reverse `escaped`."""
    return unquote(part, errors="replace")


def shard_of(camera: str, shards: int) -> int:
    """The shard of a `site/camera`; it never changes."""
    return crc32(camera.encode()) % shards


@dataclass(frozen=True, slots=True)
class Subjects:
    """Subjects and buckets of a fleet."""

    prefix: str = "stepvad"
    shards: int = SHARDS

    def poses(self, site: str, camera: str) -> str:
        """Frames of a camera."""
        shard = shard_of(f"{site}/{camera}", self.shards)
        return f"{self.prefix}.poses.{shard}.{escaped(site)}.{escaped(camera)}"

    def poses_of_site(self, site: str) -> str:
        """Frames of all cameras of a site; its edge may publish only these."""
        return f"{self.prefix}.poses.*.{escaped(site)}.*"

    def poses_of_shard(self, shard: int) -> str:
        """Frames of all cameras of a shard."""
        return f"{self.prefix}.poses.{shard}.>"

    def events(self, shard: int) -> str:
        """Events of the cameras of a shard."""
        return f"{self.prefix}.events.{shard}"

    def edge_events(self, site: str) -> str:
        """Events of a site that scores by itself."""
        return f"{self.prefix}.edge-events.{escaped(site)}"

    def dead(self, reason: str) -> str:
        """Unreadable messages."""
        return f"{self.prefix}.dead.{escaped(reason)}"

    def of_stream(self, stream: str) -> list[str]:
        """All subjects of a stream."""
        parts = {POSES: ("poses",), EVENTS: ("events", "edge-events"), DEAD: ("dead",)}
        return [f"{self.prefix}.{part}.>" for part in parts[stream]]

    @property
    def leases(self) -> str:
        """The key-value bucket of the leases of live workers."""
        return f"{self.prefix}-leases"

    @property
    def state(self) -> str:
        """The key-value bucket of checkpoints."""
        return f"{self.prefix}-state"
