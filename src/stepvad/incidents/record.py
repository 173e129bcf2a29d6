"""An event as it is stored and sent."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from stepvad.codec import Integer
from stepvad.errors import DataError
from stepvad.incidents.events import ChangeKind

Severity = Literal["alert", "detection"]
EndedBy = Literal["calm", "camera lost", "stopped", "interrupted"]
Box = tuple[float, float, float, float]

_NUMBERS = ("score", "top_score", "start_time", "confidence", "seen", "threshold")
_COUNTS = ("track_id", "epoch", "frame_seq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One event of one camera in its current state. Times are unix seconds, boxes pixels."""

    id: str
    camera: str
    label: str = "anomaly"
    score: float
    """The latest score of the event."""
    top_score: float
    start_time: float
    end_time: float | None = None
    """None while the event is open."""
    box: Box | None = None
    """Left, top, right and bottom of the person at the top score."""
    zones: tuple[str, ...] = ()
    severity: Severity = "alert"
    model_id: str
    model_sha256: str
    track_id: Integer
    """The person with the top score."""
    tracks: tuple[Integer, ...] = ()
    """All people involved, in the order in which they joined."""
    epoch: Integer
    """Number of the connection; track numbers and frames restart with each."""
    frame_seq: Integer
    """The first frame, counted from the start of the connection."""
    confidence: float
    """Confidence of the poses, from 0 to 1."""
    seen: float = 1.0
    """Share of the poses behind the top score that were seen, not interpolated."""
    doubt: str | None = field(init=False, default=None)
    """That share in words; None if all were seen."""
    threshold: float
    scales: tuple[float, ...] = ()
    """Standardised energy at each noise scale, at the top score."""
    why: str | None = None
    """Description of what is unusual."""
    ended_by: EndedBy | None = None
    camera_fps: float | None = None
    """Frames per second that the camera was watched at; None if not stated."""
    model_fps: float | None = None
    """Frames per second that the model was fitted at; None if it does not state it."""
    schema: Literal[1] = 1
    """Version of the layout."""

    def __post_init__(self) -> None:
        """Convert array values to plain ones and reject invalid events."""
        for names, kind in ((_NUMBERS, float), (_COUNTS, int)):
            for name in names:
                object.__setattr__(self, name, kind(getattr(self, name)))
        object.__setattr__(self, "zones", tuple(map(str, self.zones)))
        object.__setattr__(self, "tracks", tuple(map(int, self.tracks)))
        object.__setattr__(self, "scales", tuple(map(float, self.scales)))
        for name in ("end_time", "camera_fps", "model_fps"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))
        if self.box is not None:
            object.__setattr__(self, "box", tuple(map(float, self.box)))
        self._check()
        object.__setattr__(self, "doubt", interpolated(self.seen))

    def _check(self) -> None:
        for name in ("id", "camera", "label"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value):
                raise DataError(f"event: expected a text as {name}, got {value!r}")
        numbers = [getattr(self, name) for name in _NUMBERS]
        numbers += [*self.scales, *(self.box or ()), self.end_time or 0.0]
        if not all(map(math.isfinite, numbers)):
            raise DataError(f"event {self.id}: expected finite numbers, got NaN or infinity")
        if self.box is not None and len(self.box) != 4:
            raise DataError(f"event {self.id}: expected a box of 4 numbers, got {len(self.box)}")
        for name in ("camera_fps", "model_fps"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise DataError(f"event {self.id}: expected a rate above 0 as {name}, got {value}")
        if self.severity not in get_args(Severity):
            raise DataError(
                f"event {self.id}: expected severity alert or detection, got {self.severity!r}"
            )
        if self.ended_by is not None and self.ended_by not in get_args(EndedBy):
            raise DataError(
                f"event {self.id}: expected ended_by as one of {', '.join(get_args(EndedBy))}, "
                f"got {self.ended_by!r}"
            )
        if (self.end_time is None) != (self.ended_by is None):
            raise DataError(
                f"event {self.id}: expected both end_time and ended_by or neither, got one"
            )

    @property
    def is_open(self) -> bool:
        """Whether the event has not ended."""
        return self.end_time is None

    def ended(self, by: EndedBy, time: float) -> Record:
        """The same event, ended; it never ends before it starts."""
        return replace(self, end_time=max(time, self.start_time), ended_by=by)


def interpolated(seen: float) -> str | None:
    """The share of interpolated poses in words; None if it rounds to nothing."""
    percent = round(100 * (1 - seen))
    return f"{percent} % of the poses were interpolated" if percent > 0 else None


def camera_key(camera: str) -> str:
    """A short digest that identifies a camera where its name is not allowed."""
    return hashlib.sha256(camera.encode()).hexdigest()[:12]


def event_id(camera: str, epoch: int, track: int, frame: int) -> str:
    """A reproducible id of the event that this person started in this frame."""
    return f"{camera_key(camera)}-{int(epoch)}-{int(track)}-{int(frame)}"


@dataclass(frozen=True, slots=True)
class SinkMessage:
    """A message about a change, in the format of Frigate's events.

    Its version is the `schema` of the events in it.
    """

    type: ChangeKind
    before: Record
    after: Record


def message(kind: ChangeKind, before: Record | None, after: Record) -> SinkMessage:
    """Build the message for a change; a new event is its own `before`."""
    return SinkMessage(kind, after if before is None else before, after)
