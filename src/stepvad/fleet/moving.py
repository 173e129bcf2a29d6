"""The header of messages whose camera moved to another shard in mid-connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOVED = "Stepvad-Moved"


class Moved(NamedTuple):
    """What the new owner of a camera has to know to go on where the former one stopped."""

    epoch: int
    """The connection that goes on."""
    seq: int
    """The first frame that the former owner did not get."""

    @property
    def headers(self) -> dict[str, str]:
        """For every message of the connection at its new place."""
        return {MOVED: f"{self.epoch} {self.seq}"}

    @classmethod
    def of(cls, headers: Mapping[str, str] | None) -> Moved | None:
        """Read it from a message; None if the camera did not move."""
        parts = (headers or {}).get(MOVED, "").split()
        if len(parts) != 2 or not all(p.isascii() and p.isdecimal() and len(p) < 19 for p in parts):
            return None
        return cls(int(parts[0]), int(parts[1]))
