"""Response models of the API, as they appear in the OpenAPI document."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stepvad.codec import to_plain
from stepvad.incidents.precision import WeekOfAlerts
from stepvad.incidents.record import EndedBy, Record, Severity
from stepvad.incidents.recording import recording_url
from stepvad.incidents.review import Mark, Review
from stepvad.incidents.stored import Inventory
from stepvad.intake.status import CameraView, SinkView
from stepvad.site.learning.versions import LearnedFacts
from stepvad.site.replay import Moment

for told in (CameraView, SinkView, Inventory, WeekOfAlerts, LearnedFacts, Moment):
    # what the dataclasses say of their fields stands in the OpenAPI document, too
    setattr(told, "__pydantic_config__", ConfigDict(use_attribute_docstrings=True))  # noqa: B010


class Strict(BaseModel):
    """A body with these fields and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SiteAnswer(Strict):
    """The site itself."""

    name: str
    version: str
    uptime_s: float
    cameras: list[str]


class TimelineAnswer(Strict):
    """The largest score of each second of the last hour, where there was one."""

    camera: str
    threshold: float | None
    points: list[tuple[int, float]] = Field(description="Unix second and score.")


class EventAnswer(Strict):
    """One event; times are unix seconds, the box is in pixels."""

    id: str
    camera: str
    label: str
    score: float
    top_score: float
    start_time: float
    end_time: float | None
    box: tuple[float, float, float, float] | None
    zones: list[str]
    severity: Severity
    model_id: str
    model_sha256: str
    track_id: int
    tracks: list[int]
    epoch: int
    frame_seq: int
    confidence: float
    seen: float = Field(description="Share of the poses at the top score that were seen.")
    doubt: str | None = Field(description="What the top score rests on besides seen poses.")
    threshold: float
    scales: list[float]
    why: str | None
    ended_by: EndedBy | None
    camera_fps: float | None
    model_fps: float | None
    record_schema: int = Field(alias="schema")
    mark: Mark | None = Field(description="normal or right, if somebody judged it.")
    normal: bool = Field(description="Whether somebody said that this was normal.")
    reviewed: float | None = Field(description="Unix time at which somebody saw or judged it.")
    reviewed_by: str = Field(description="Who that was, if known.")
    recording: str | None = Field(description="Address of its clip in a video recorder.")

    @classmethod
    def of(cls, record: Record, review: Review | None, recorder: str | None = None) -> EventAnswer:
        """A stored event, what was said of it, and where it was recorded, by this template."""
        mark = None if review is None else review.mark
        said = {
            "mark": mark,
            "normal": mark == "normal",
            "reviewed": None if review is None else review.at,
            "reviewed_by": "" if review is None else review.by,
            "recording": None if recorder is None else recording_url(recorder, record),
        }
        return cls.model_validate({**to_plain(record), **said})


class EventsAnswer(Strict):
    """Some events, the newest first."""

    events: list[EventAnswer]
    next: str | None = Field(description="What to give as `before` to go on; None at the end.")
    to_review: int = Field(
        description="Events that nobody has seen, of all that are stored; 1000 at most."
    )


class MarkRequest(Strict):
    """What an event was: `mark`, or in the older form whether it was normal."""

    mark: Mark | None = None
    normal: bool | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = self.model_fields_set
        if len(given) != 1 or (given == {"normal"} and self.normal is None):
            raise ValueError("expected mark, or normal as true or false")
        return self

    @property
    def judged(self) -> Mark | None:
        """The judgement; None takes it back."""
        return "normal" if self.normal else self.mark


class Word(Strict):
    """Something unusual, and in which frames."""

    says: str
    first: int
    last: int


class PartAnswer(Strict):
    """A part of the body and its share of the score."""

    name: str
    share: float


class ScaleAnswer(Strict):
    """A noise scale that decided, and how much it counted."""

    sigma: float
    weight: float


class MotionAnswer(Strict):
    """The motion around the peak: tenths of pixels by frame, heat from 0 to 100 by joint."""

    first: int
    fps: float
    peak: int
    size: int
    bones: list[list[int]]
    camera: list[list[int]]
    observed: list[list[int]]
    ghost: list[list[int]]
    heat: list[list[int]]


class ExplanationAnswer(BaseModel):
    """Why an event has its score: words, shares of the body, and motion to be played."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    motion: MotionAnswer
    track: int
    frame: int
    score: float
    energy: float
    confidence: float
    scales: list[ScaleAnswer]
    ghost_energy: float
    ghost_is_normal: bool
    words: list[Word]
    parts: list[PartAnswer]
    views: list[PartAnswer] = Field(
        default=[], description="Shares of pose, motion and place; empty with a single view."
    )


class UndeliveredMessage(BaseModel):
    """A message that did not reach its sink."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    id: int = Field(validation_alias="seq")
    sink: str
    event_id: str
    kind: str
    created: float
    error: str | None = Field(description="Why, the last time.")


class Undelivered(Strict):
    """Messages that a sink refused for good, the oldest first, and how many there are."""

    refused: int
    messages: list[UndeliveredMessage]


class Resend(Strict):
    """Which refused messages to queue again; all of them if neither is given."""

    sink: str | None = Field(None, max_length=200)
    ids: list[int] | None = Field(None, max_length=1000)


class Resent(Strict):
    """How many messages are queued again."""

    messages: int


class Problem(BaseModel):
    """Why there is no answer."""

    detail: Any
