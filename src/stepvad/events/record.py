"""An event as it is stored, sent, searched, judged and written as a table."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TextIO
from urllib.parse import quote

from msgspec import Meta

from stepvad.codec import Count, Integer, Number, Positive, to_plain
from stepvad.errors import DataError, StepvadError
from stepvad.events.rules import ChangeKind

Severity = Literal["alert", "detection"]
EndedBy = Literal["calm", "camera lost", "stopped", "interrupted"]
Box = tuple[Number, Number, Number, Number]
Name = Annotated[str, Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One event of one camera in its current state. Times are unix seconds, boxes pixels."""

    id: Name
    camera: Name
    label: Name = "anomaly"
    score: Number
    """The latest score of the event."""
    top_score: Number
    start_time: Number
    end_time: Number | None = None
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
    confidence: Number
    """Confidence of the poses, from 0 to 1."""
    seen: Number = 1.0
    """Share of the poses behind the top score that were seen, not interpolated."""
    doubt: str | None = field(init=False, default=None)
    """That share in words; None if all were seen."""
    threshold: Number
    scales: tuple[Number, ...] = ()
    """Standardised energy at each noise scale, at the top score."""
    why: str | None = None
    """Description of what is unusual."""
    strangest: str | None = None
    """Time for which its camera had no event as strange, in words; None for less than a day."""
    ended_by: EndedBy | None = None
    camera_fps: Positive | None = None
    """Frames per second that the camera was watched at; None if not stated."""
    model_fps: Positive | None = None
    """Frames per second that the model was fitted at; None if it does not state it."""
    version: Count = 0
    """Rises with every change, over all events of a site; with the id it names a message."""
    schema: Literal[1] = 1
    """Version of the layout."""

    def __post_init__(self) -> None:
        """Derive the doubt in words, so that the same ones are stored, sent and shown."""
        if (self.end_time is None) != (self.ended_by is None):
            raise DataError(
                f"event {self.id}: expected both end_time and ended_by or neither, got one"
            )
        percent = round(100 * (1 - self.seen))
        doubt = f"{percent} % of the poses were interpolated" if percent > 0 else None
        object.__setattr__(self, "doubt", doubt)

    @property
    def is_open(self) -> bool:
        """True until the event has ended."""
        return self.end_time is None

    def ended(self, by: EndedBy, time: float) -> Record:
        """The same event, ended; it never ends before it starts."""
        return replace(self, end_time=max(time, self.start_time), ended_by=by)


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
    stored: bool = True
    """False if the site could not store the change yet; it is sent once all the same."""


def message(kind: ChangeKind, before: Record | None, after: Record) -> SinkMessage:
    """Build the message for a change; a new event is its own `before`."""
    return SinkMessage(kind, after if before is None else before, after)


Mark = Literal["normal", "right"]
"""`normal`: motion to pass over. `right`: a true alert, never to be learned or passed over."""


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
    within_s: float = math.inf
    """Longest time that a site searches."""

    @property
    def terms(self) -> list[str] | None:
        """The words in small letters; None if there are none."""
        return (self.words or "").lower().split()[:MOST_TERMS] or None

    @property
    def is_seen(self) -> bool | None:
        """True if somebody must have seen the event; None if that does not matter."""
        return {"to_review": False, "reviewed": True}.get(self.review or "")

    @property
    def mark(self) -> str | None:
        """The judgement that the event must have."""
        return self.review if self.review in ("normal", "right") else None


EVERY = Search()
"""The search that finds every event."""

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


_EVENTS = "camera, times, scores, track numbers, a box, names of zones, words"
KINDS = {
    "events": _EVENTS,
    "poses": "joint coordinates of everybody in view at an event, frame by frame",
    "explanations": "joint coordinates of the windows explained, what each joint contributes",
    "outbox": f"messages that wait for a sink, or that it refused: {_EVENTS}",
}
"""The tables and their contents; nothing in them is made of pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """Result of a deletion."""

    events: int
    poses: int
    """Events that lost their poses and explanations, not counting deleted ones."""
    kept_open: int
    """Requested events that were kept because they are still open."""


class DeliveryError(StepvadError):
    """A failed delivery that may succeed on retry, after `after_s` at the earliest."""

    def __init__(self, problem: str, *, hint: str = "", after_s: float = 0.0) -> None:
        super().__init__(problem, hint=hint)
        self.after_s = after_s


class RefusedError(DeliveryError):
    """A message that this sink will never accept."""


class Sink(Protocol):
    """Sends messages, one at a time."""

    @property
    def name(self) -> str:
        """Unique among sinks and stable across restarts."""
        ...

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Return when the message has arrived; else raise `DeliveryError` or `RefusedError`."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


@dataclass(frozen=True, slots=True)
class WeekOfAlerts:
    """The alerts of one camera in one week."""

    camera: str
    week: str
    """Its Monday, as YYYY-MM-DD in the machine's time zone."""
    alerts: int
    right: int
    normal: int
    unjudged: int
    precision: float | None
    """Share of right alerts among those that were judged; None if none was."""


def by_week(events: Iterable[Record], reviews: Mapping[str, Review]) -> list[WeekOfAlerts]:
    """Count alerts by camera and week, the latest week first."""
    marks: dict[tuple[str, str], list[Mark | None]] = {}
    for event in events:
        review = reviews.get(event.id)
        key = monday_of(event.start_time), event.camera
        marks.setdefault(key, []).append(review.mark if review else None)
    by_camera = sorted(marks, key=lambda key: key[1])
    weeks = []
    for week, camera in sorted(by_camera, key=lambda key: key[0], reverse=True):
        own = marks[week, camera]
        right, normal, unjudged = (own.count(one) for one in ("right", "normal", None))
        precision = right / (right + normal) if right + normal else None
        weeks.append(WeekOfAlerts(camera, week, len(own), right, normal, unjudged, precision))
    return weeks


def monday_of(unix: float) -> str:
    """The Monday of the week of a time."""
    day = datetime.fromtimestamp(unix).date()
    return str(day - timedelta(days=day.weekday()))


BEFORE_S, AFTER_S = 10.0, 10.0
"""Seconds of the recording before the start and after the end of an event."""
OPEN_S = 60.0
"""Length of the clip of an event that goes on."""


def recording_url(template: str, record: Record) -> str:
    """The address of the recording of an event, with a margin before and after it."""
    ended = record.start_time + OPEN_S if record.end_time is None else record.end_time
    start, end = int(record.start_time - BEFORE_S), int(ended + AFTER_S) + 1
    values = {
        "camera": record.camera,
        "id": record.id,
        "start": str(start),
        "end": str(end),
        "start_iso": _iso(start),
        "end_iso": _iso(end),
    }
    return template.format_map({name: quote(value, safe="") for name, value in values.items()})


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


TableFormat = Literal["jsonl", "csv"]

REVIEWED = ("mark", "marked", "reviewed", "reviewed_by")
"""What was said of an event; `marked` is the time at which it was judged."""


def event_facts(record: Record, review: Review | None) -> dict[str, Any]:
    """All fields of an event, and what was said of it."""
    said: tuple[object, ...] = (None, None, None, None)
    if review is not None:
        said = review.mark, review.at if review.mark else None, review.at, review.by
    return to_plain(record) | dict(zip(REVIEWED, said, strict=True))


def write_events(events: Iterable[dict[str, Any]], format: TableFormat, file: TextIO) -> None:
    """Write the fields of events, one event per line."""
    if format == "jsonl":
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in events)
        return
    names = [field.name for field in fields(Record)]
    writer = csv.DictWriter(file, [*names, *REVIEWED], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in one.items()} for one in events)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    # a spreadsheet would run such a text as a formula: quote it
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value
