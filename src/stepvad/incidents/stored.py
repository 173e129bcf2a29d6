"""Inventory of stored events and results of deletions, for sites and fleets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One kind of stored data."""

    what: str
    holds: str
    """Description of its contents."""
    count: int
    first: float | None
    """Start of the oldest event it belongs to, in unix seconds."""
    last: float | None
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that is stored, and the files that hold it."""

    kept: tuple[Kept, ...]
    files: dict[Path, int]
    """Sizes in bytes."""
    cameras: dict[str, int]
    """Events of each camera."""

    @property
    def has_drawings(self) -> bool:
        """Whether something made of pixels is stored."""
        return any(one.what == DRAWINGS for one in self.kept)


_EVENTS = "camera, times, scores, track numbers, a box, names of zones, words"
KINDS = {
    "events": _EVENTS,
    "poses": "joint coordinates of everybody in view at an event, frame by frame",
    "explanations": "joint coordinates of the windows explained, what each joint contributes",
    "outbox": f"messages that wait for a sink: {_EVENTS}",
    "dead_letters": f"messages that a sink refused: {_EVENTS}",
}
"""The tables and their contents."""
DRAWINGS = "drawings of places"
"""What is kept beside them of cameras with `draw_place`; all else has nothing of pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Result of a deletion."""

    events: int
    poses: int
    """Events that lost their poses and explanations, not counting deleted ones."""
    kept_open: int
    """Requested events that were kept because they are still open."""
