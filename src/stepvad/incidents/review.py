"""What people said of an event: seen, normal after all, or a right alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mark = Literal["normal", "right"]
"""`normal`: a false alert, learn from it. `right`: a true alert, never learn from it."""


@dataclass(frozen=True, slots=True)
class MarkMessage:
    """A mark as it is sent to a site, as JSON: the id of an event, and what it was."""

    id: str
    mark: Mark | None
    """None takes a mark back."""
    version: Literal[1] = 1


@dataclass(frozen=True, slots=True)
class Review:
    """Somebody has seen an event, and perhaps judged it."""

    mark: Mark | None
    """None: seen, not judged."""
    at: float
    """Unix time of the latest judgement, or of the first look."""
    by: str = ""
    """Name of the user; empty if unknown."""
