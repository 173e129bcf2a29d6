"""The explanation of an event's score, as stored and shown: typed and versioned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stepvad.errors import DataError

SCHEMA = 1
"""Version of the format; explanations stored without a version have the same."""

Rows = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase for something unusual, and the frames that show it."""

    says: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PartShare:
    """A part of the body and its share of the score."""

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
    bones: Rows
    camera: Rows
    observed: Rows
    ghost: Rows
    heat: Rows


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
    schema: int = SCHEMA

    @property
    def summary(self) -> str:
        """What is unusual, in one line."""
        return "; ".join(phrase.says for phrase in self.words) or "unusual motion"

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        facts: dict[str, Any] = _plain(asdict(self))
        return facts

    @classmethod
    def from_json(cls, facts: object) -> EventExplanation:
        """Parse the output of `to_json`; raises for another version."""
        if not isinstance(facts, Mapping):
            raise _unreadable(f"a {type(facts).__name__}")
        schema = facts.get("schema", SCHEMA)
        if schema != SCHEMA:
            raise DataError(
                f"explanation: expected version {SCHEMA}, got {schema!r}",
                hint="install the version of stepvad that wrote it, or a newer one",
            )
        try:
            return cls(
                motion=_motion(facts["motion"]),
                track=int(facts["track"]),
                frame=int(facts["frame"]),
                score=_number(facts["score"]),
                energy=_number(facts["energy"]),
                confidence=_number(facts["confidence"]),
                ghost_energy=_number(facts["ghost_energy"]),
                scales=tuple(
                    ScaleWeight(_number(one["sigma"]), _number(one["weight"]))
                    for one in facts["scales"]
                ),
                ghost_is_normal=bool(facts["ghost_is_normal"]),
                words=tuple(
                    Phrase(str(one["says"]), int(one["first"]), int(one["last"]))
                    for one in facts["words"]
                ),
                parts=tuple(
                    PartShare(str(one["name"]), _number(one["share"])) for one in facts["parts"]
                ),
            )
        except KeyError as error:
            raise _unreadable(f"one without {error}") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise _unreadable(str(error)) from error


_ROWS = ("bones", "camera", "observed", "ghost", "heat")


def _motion(facts: Mapping[str, Any]) -> MotionFrames:
    rows = {name: tuple(tuple(map(int, row)) for row in facts[name]) for name in _ROWS}
    first, peak, size = (int(facts[name]) for name in ("first", "peak", "size"))
    return MotionFrames(first=first, fps=_number(facts["fps"]), peak=peak, size=size, **rows)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"a number that is {number}")
    return number


def _plain(value: Any) -> Any:
    """The same value with lists for tuples, as in JSON."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _unreadable(got: str) -> DataError:
    return DataError(
        f"explanation: expected the fields of an explanation, got {got}",
        hint="it was damaged; the event and its poses are not",
    )
