"""The explanation of an event's score, as stored and shown: typed and versioned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepvad.codec import Count, Integer, Number

IntegerRows = tuple[tuple[Integer, ...], ...]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase for something unusual, and the frames that show it."""

    says: str
    first: Integer
    last: Integer


@dataclass(frozen=True, slots=True)
class PartShare:
    """A part of the body, or a view, and its share of the score."""

    name: str
    share: Number


@dataclass(frozen=True, slots=True)
class ScaleWeight:
    """A noise scale that decided the score, and its weight."""

    sigma: Number
    weight: Number


@dataclass(frozen=True, slots=True)
class MotionFrames:
    """The motion around the peak: tenths of pixels by frame, heat from 0 to 100 by joint."""

    first: Integer
    fps: Number
    peak: Integer
    size: Count
    bones: IntegerRows
    camera: IntegerRows
    observed: IntegerRows
    ghost: IntegerRows
    heat: IntegerRows


@dataclass(frozen=True, slots=True, kw_only=True)
class EventExplanation:
    """Explains the window of the peak, with the motion around it. Frames are those of the clip."""

    motion: MotionFrames
    track: Integer
    frame: Integer
    score: Number
    energy: Number
    confidence: Number
    scales: tuple[ScaleWeight, ...]
    ghost_energy: Number
    ghost_is_normal: bool
    words: tuple[Phrase, ...]
    parts: tuple[PartShare, ...]
    views: tuple[PartShare, ...] = ()
    """Shares of `pose`, `motion` and `place`; empty with a single view."""
    schema: Literal[1] = 1
    """Version of the layout."""

    @property
    def summary(self) -> str:
        """What is unusual, in one line."""
        return "; ".join(phrase.says for phrase in self.words) or "unusual motion"
