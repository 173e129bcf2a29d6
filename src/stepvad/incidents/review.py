"""What people said of an event: seen, normal after all, or a right alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepvad.codec import Fields

Mark = Literal["normal", "right"]
"""`normal`: a false alert, learn from it. `right`: a true alert, never learn from it."""

VERSION = 1
"""Version of the layout of a mark that is sent."""


@dataclass(frozen=True, slots=True)
class MarkMessage:
    """A mark as it is sent to a site: the id of an event, and what it was."""

    id: str
    mark: Mark | None
    """None takes a mark back."""

    @classmethod
    def from_json(cls, facts: object) -> MarkMessage:
        """Parse `{"id": ..., "mark": "normal" | "right" | null}`; raises `DataError`."""
        own = Fields.of("mark", facts)
        own.version(VERSION)
        match own.value("mark"):
            case "normal" | "right" | None as mark:
                return cls(own.text("id"), mark)
        raise own.unlike("mark", "normal, right or null")


@dataclass(frozen=True, slots=True)
class Review:
    """Somebody has seen an event, and perhaps judged it."""

    mark: Mark | None
    """None: seen, not judged."""
    at: float
    """Unix time of the latest judgement, or of the first look."""
    by: str = ""
    """Name of the user; empty if unknown."""
