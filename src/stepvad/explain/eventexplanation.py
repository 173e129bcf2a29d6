"""The explanation of an event's score, as stored and shown: typed and versioned."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stepvad.codec import LOWEST, Fields, JsonObject
from stepvad.errors import DataError

SCHEMA = 1
"""Version of the format; explanations stored without a version have the same."""

IntegerRows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase for something unusual, and the frames that show it."""

    says: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartShare:
    """A part of the body, or a view, and its share of the score."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class ScaleWeight:
    """A noise scale that decided the score, and its weight."""

    sigma: float
    weight: float


@dataclass(frozen=True, slots=True)
class MotionFrames:
    """The motion around the peak: tenths of pixels by frame, heat from 0 to 100 by joint."""

    first: int
    fps: float
    peak: int
    size: int
    bones: IntegerRows
    camera: IntegerRows
    observed: IntegerRows
    ghost: IntegerRows
    heat: IntegerRows


@dataclass(frozen=True, slots=True, kw_only=True)
class EventExplanation:
    """Explains the window of the peak, with the motion around it. Frames are those of the clip."""

    motion: MotionFrames
    track: int
    frame: int
    score: float
    energy: float
    confidence: float
    scales: tuple[ScaleWeight, ...]
    ghost_energy: float
    ghost_is_normal: bool
    words: tuple[Phrase, ...]
    parts: tuple[PartShare, ...]
    views: tuple[PartShare, ...] = ()
    """Shares of `pose`, `motion` and `place`; empty, and not stored, with a single view."""
    schema: int = SCHEMA

    @property
    def summary(self) -> str:
        """What is unusual, in one line."""
        return "; ".join(phrase.says for phrase in self.words) or "unusual motion"

    def to_json(self) -> JsonObject:
        """Plain values for JSON."""
        facts: JsonObject = _plain(asdict(self))
        if not self.views:
            del facts["views"]
        return facts

    @classmethod
    def from_json(cls, facts: object) -> EventExplanation:
        """The explanation that `to_json` made these values of; of a newer version, an error."""
        try:
            own = Fields.of("explanation", facts)
        except DataError as error:
            raise _unreadable(error) from None
        own.version(SCHEMA, "schema")
        try:
            return _explanation(own)
        except DataError as error:
            raise _unreadable(error) from None


def _explanation(own: Fields) -> EventExplanation:
    scales, words, parts = (
        [Fields.of(name, one) for one in own.items(name)] for name in ("scales", "words", "parts")
    )
    views = [Fields.of("views", one) for one in own.items("views")] if "views" in own else []
    return EventExplanation(
        motion=_motion(own.fields("motion")),
        track=own.whole("track", least=LOWEST),
        frame=own.whole("frame", least=LOWEST),
        score=own.number("score"),
        energy=own.number("energy"),
        confidence=own.number("confidence"),
        ghost_energy=own.number("ghost_energy"),
        scales=tuple(ScaleWeight(one.number("sigma"), one.number("weight")) for one in scales),
        ghost_is_normal=own.flag("ghost_is_normal"),
        words=tuple(
            Phrase(
                one.text("says"),
                one.whole("first", least=LOWEST),
                one.whole("last", least=LOWEST),
            )
            for one in words
        ),
        parts=tuple(PartShare(one.text("name"), one.number("share")) for one in parts),
        views=tuple(PartShare(one.text("name"), one.number("share")) for one in views),
    )


def _motion(own: Fields) -> MotionFrames:
    return MotionFrames(
        first=own.whole("first", least=LOWEST),
        fps=own.number("fps"),
        peak=own.whole("peak", least=LOWEST),
        size=own.whole("size"),
        bones=_rows(own, "bones"),
        camera=_rows(own, "camera"),
        observed=_rows(own, "observed"),
        ghost=_rows(own, "ghost"),
        heat=_rows(own, "heat"),
    )


def _rows(own: Fields, name: str) -> IntegerRows:
    return tuple(
        Fields(own.what, {name: row}).wholes(name, least=LOWEST) for row in own.items(name)
    )


def _plain(value: Any) -> Any:
    """The same value with lists for tuples, as in JSON."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _unreadable(error: DataError) -> DataError:
    return DataError(
        f"explanation: expected the fields of an explanation, got: {error.problem}",
        hint="it was damaged; the event and its poses are not",
    )
