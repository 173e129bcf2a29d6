"""Serialisable state of a camera's events, from which another process can resume."""

from __future__ import annotations

from dataclasses import dataclass

from stepvad.codec import LOWEST, Fields, JsonObject
from stepvad.errors import DataError
from stepvad.incidents.events import LATEST_S, EventDetectorState
from stepvad.incidents.record import Box, Record


@dataclass(frozen=True, slots=True)
class PeakState:
    """The window of a high score: track, slot, energies by scale, confidence, box, share seen."""

    track: int
    slot: int
    E: tuple[float, ...]
    c: float
    box: Box | None
    seen: float = 1.0

    @classmethod
    def from_json(cls, facts: object, seen: float) -> PeakState:
        """Parse a peak from the list of its values; the share of seen poses is stored apart."""
        if not (isinstance(facts, list | tuple) and len(facts) == 5):
            raise DataError("peak: expected track, slot, energies, confidence and box, got others")
        own = Fields("peak", dict(zip(("track", "slot", "E", "c", "box"), facts, strict=True)))
        return cls(
            track=own.whole("track", least=LOWEST),
            slot=own.whole("slot", least=LOWEST),
            E=own.numbers("E"),
            c=own.number("c"),
            box=None if own.value("box") is None else _box(own),
            seen=seen,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraEventsState:
    """State of `CameraEvents`, without the kept poses and the windows in progress."""

    epoch: int
    wall0: float
    reported_s: float
    is_reported: bool
    open: Record | None
    detector: EventDetectorState
    peaks: tuple[PeakState, ...]

    def to_json(self) -> JsonObject:
        """Plain values."""
        return {
            "epoch": self.epoch,
            "wall0": self.wall0,
            "told": self.reported_s,
            "is_told": self.is_reported,
            "open": None if self.open is None else self.open.to_json(),
            "watch": self.detector.to_json(),
            "peaks": [[one.track, one.slot, list(one.E), one.c, one.box] for one in self.peaks],
            "peaks_seen": [one.seen for one in self.peaks],
        }

    @classmethod
    def from_json(cls, facts: object) -> CameraEventsState:
        """Parse the output of `to_json`."""
        own = Fields.of("events of a camera", facts)
        opened, peaks = own.value("open"), own.items("peaks")
        seen = own.numbers("peaks_seen") if "peaks_seen" in own else (1.0,) * len(peaks)
        if len(seen) != len(peaks):
            raise own.unlike("peaks_seen", f"{len(peaks)} numbers")
        return cls(
            epoch=own.whole("epoch", least=-1),
            wall0=own.number("wall0", most=LATEST_S),
            reported_s=own.number("told", most=LATEST_S),
            is_reported=own.flag("is_told"),
            open=None if opened is None else Record.from_json(opened),
            detector=EventDetectorState.from_json(own.value("watch")),
            peaks=tuple(map(PeakState.from_json, peaks, seen)),
        )


def _box(own: Fields) -> Box:
    match own.numbers("box"):
        case left, top, right, bottom:
            return left, top, right, bottom
    raise own.unlike("box", "4 numbers")
