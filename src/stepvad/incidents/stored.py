"""What is stored of events and what a deletion took away, on a site as in a fleet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One kind of thing that is stored."""

    what: str
    holds: str
    """What is in it, in words."""
    count: int
    first: float | None
    """Start of the oldest event that it belongs to, in unix seconds."""
    last: float | None
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that is stored, and the files that it is in."""

    kept: tuple[Kept, ...]
    files: dict[Path, int]
    """With their sizes in bytes."""
    cameras: dict[str, int]
    """Events of each camera."""


_EVENTS = "camera, times, scores, track numbers, a box, names of zones, words"
KINDS = {
    "events": _EVENTS,
    "poses": "joint coordinates of the people in an event, frame by frame",
    "explanations": "joint coordinates of the windows explained, what each joint contributes",
    "outbox": f"messages that wait for a sink: {_EVENTS}",
    "dead_letters": f"messages that a sink refused: {_EVENTS}",
}
"""The tables, and what is in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What a deletion did."""

    events: int
    poses: int
    """Events that lost their poses and explanations, those among the deleted left out."""
    kept_open: int
    """Events that were asked for and stay because they go on."""
