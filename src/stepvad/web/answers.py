"""Response models of the API, as they appear in the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from stepvad.explain.event import EventExplanation
from stepvad.incidents.precision import WeekOfAlerts
from stepvad.incidents.record import Record
from stepvad.incidents.recording import recording_url
from stepvad.incidents.review import Mark, Review
from stepvad.incidents.stored import Inventory
from stepvad.intake.status import CameraView, SinkView
from stepvad.site.learning.versions import LearnedFacts
from stepvad.site.replay import Moment


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent(Record):
    """An event, what people said of it, and where it was recorded."""

    mark: Mark | None
    """None if nobody judged it."""
    reviewed: float | None
    """Unix time at which somebody saw or judged it."""
    reviewed_by: str
    """Who that was; empty if unknown."""
    recording: str | None
    """Address of its clip in a video recorder."""


for told in (
    *(CameraView, SinkView, Inventory, JudgedEvent, EventExplanation),
    *(Moment, WeekOfAlerts, LearnedFacts),
):  # what the dataclasses say of their fields stands in the OpenAPI document, too
    setattr(told, "__pydantic_config__", ConfigDict(use_attribute_docstrings=True))  # noqa: B010
    # made once: else every route of every app would make it anew
    setattr(told, "__pydantic_core_schema__", TypeAdapter(told).core_schema)  # noqa: B010


def judged(record: Record, review: Review | None, recorder: str | None) -> JudgedEvent:
    """An event with what was said of it; `recorder`: template of addresses of recordings."""
    stored = {one.name: getattr(record, one.name) for one in fields(record) if one.init}
    return JudgedEvent(
        **stored,
        mark=None if review is None else review.mark,
        reviewed=None if review is None else review.at,
        reviewed_by="" if review is None else review.by,
        recording=None if recorder is None else recording_url(recorder, record),
    )


class EventsAnswer(Strict):
    """Some events, the newest first."""

    events: list[JudgedEvent]
    next: str | None = Field(description="What to give as `before` to go on; None at the end.")
    to_review: int = Field(
        description="Events that nobody has seen, of all that are stored; 1000 at most."
    )


class MarkRequest(Strict):
    """What an event was; None takes the judgement back."""

    mark: Mark | None


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
