"""What an operator looks for among stored events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ReviewState = Literal["to_review", "reviewed", "normal", "right"]
"""`to_review`: nobody has seen it; `reviewed`: somebody has; `normal`, `right`: judged so."""
MOST_COUNTED = 1000
"""Events that nobody has seen are counted up to this number."""
MOST_TERMS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Conditions on events; all that are given must hold."""

    zone: str | None = None
    words: str | None = None
    """Each of these words is in the description, the label, the camera or a zone."""
    min_score: float | None = None
    """Lowest top score."""
    min_times: float | None = None
    """Lowest top score in multiples of the threshold."""
    review: ReviewState | None = None

    @property
    def terms(self) -> list[str] | None:
        """The words in small letters; None if there are none."""
        return (self.words or "").lower().split()[:MOST_TERMS] or None

    @property
    def is_seen(self) -> bool | None:
        """Whether somebody must have seen the event; None if that does not matter."""
        return {"to_review": False, "reviewed": True}.get(self.review or "")

    @property
    def mark(self) -> str | None:
        """The judgement that the event must have."""
        return self.review if self.review in ("normal", "right") else None


EVERY = Search()
"""The search that finds every event."""
