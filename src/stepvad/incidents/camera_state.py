"""Serialisable state of a camera's events, from which another process can resume."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from stepvad.codec import LARGEST, Integer, Number
from stepvad.incidents.events import EventDetectorState, Time
from stepvad.incidents.record import Record


@dataclass(frozen=True, slots=True)
class PeakState:
    """The window of a high score: track, slot, energies by scale, confidence, box, share seen."""

    track: Integer
    slot: Integer
    E: tuple[Number, ...]
    c: Number
    box: tuple[Number, Number, Number, Number] | None
    seen: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class CameraEventsState:
    """State of `CameraEvents`, without the kept poses and the windows in progress."""

    epoch: Annotated[int, Meta(ge=-1, le=LARGEST - 1)]
    wall0: Time
    reported_s: Time
    is_reported: bool
    open: Record | None
    detector: EventDetectorState
    peaks: tuple[PeakState, ...]
