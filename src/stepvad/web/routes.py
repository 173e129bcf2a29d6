"""API routes: cameras, events, explanations and stored data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path as FilePath
from typing import Annotated, Any, Protocol

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from stepvad.errors import DataError
from stepvad.events import record as records
from stepvad.explain.event import EventExplanation
from stepvad.files import hide_directories
from stepvad.site import status as live
from stepvad.site.learning.learner import Learner
from stepvad.site.learning.versions import LearnedFacts
from stepvad.site.marks import ExceptionFacts, MarkEffect, MarkFollower
from stepvad.site.recorder import Moment
from stepvad.site.settings.live import SettingsEditor
from stepvad.site.settings.page import Web
from stepvad.site.store.outbox import Outbox

MOST_EVENTS = 500
SEARCH_S = 3.0
"""Longest time of a search."""
LATEST = 1e12
"""Largest Unix time accepted in a query."""
CameraPath = Annotated[str, Path(description="Name of a camera.", max_length=64)]
EventIdPath = Annotated[str, Path(description="Id of an event.", max_length=200)]
Time = Annotated[float | None, Query(description="Unix time in seconds.", ge=0, le=LATEST)]
CameraName = Annotated[
    str | None,
    Query(description="Of this camera only; of a fleet site/camera, or site/.", max_length=200),
]


class Problem(BaseModel):
    """Why there is no answer."""

    detail: Any


NO_POSES = Moment(words="No poses are kept here: there is nothing to play.")
AT_ITS_SITE = "Its site does what the mark says; no mark moves a limit."
NOT_THERE: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "Not found."}}


@dataclass(frozen=True, slots=True, eq=False)
class PageContext:
    """Data and callbacks of a running site that its page needs."""

    settings: Deployment
    store: EventStore
    status: live.LiveStatus
    explain: Callable[[str], EventExplanation]
    """Why an event has its score; a StepvadError if nobody can tell any more."""
    mark: Callable[[str, records.Mark | None, str], None]
    """Judge an event, or take the judgement back; the last argument says who does."""
    marks: MarkFollower | None = None
    """Says what marks do; None in a fleet, whose sites know."""
    editor: SettingsEditor | None = None
    """Changes the settings file; None if there is none, as in the demo and in a fleet."""
    learner: Learner | None = None
    """Learns the model of the site; None if it has one."""
    replays: Replays | None = None
    """Scenes of events and moments."""
    sites: Callable[[], Sequence[SiteView]] | None = None
    """The sites of a fleet; None at a site."""

    @property
    def in_force(self) -> Deployment:
        """The settings as they are now: some change while a site runs."""
        return self.settings if self.editor is None else self.editor.running

    def camera(self, name: str) -> live.CameraView:
        """The camera with this name; 404 if there is none."""
        for camera in self.status.snapshot().cameras:
            if camera.name == name:
                return camera
        raise HTTPException(404, f"camera: expected one of the site, got {name!r}")

    def judged(self, record: records.Record, review: records.Review | None) -> JudgedEvent:
        """An event with its review and the address of its recording."""
        stored = {one.name: getattr(record, one.name) for one in fields(record) if one.init}
        cameras = getattr(self.in_force, "cameras", ())  # a fleet has none
        recorder = next((one.recorder for one in cameras if one.name == record.camera), None)
        return JudgedEvent(
            **stored,
            mark=None if review is None else review.mark,
            reviewed=None if review is None else review.at,
            reviewed_by="" if review is None else review.by,
            recording=None if recorder is None else records.recording_url(recorder, record),
        )

    def event(self, id: str) -> records.Record:
        """The event with this id; 404 if there is none."""
        found = self.store.event(id)
        if found is None:
            raise HTTPException(404, f"event: expected a stored one, got {id!r}")
        return found


class Deployment(Protocol):
    """The subject of a page: a site or a fleet."""

    @property
    def name(self) -> str:
        """Name of the site or fleet."""

    @property
    def web(self) -> Web:
        """The settings of its page."""


class Replays(Protocol):
    """Scenes of events and moments."""

    def event(self, id: str) -> Moment:
        """Everybody in view around the peak of an event."""

    def moment(self, camera: str, at: float) -> Moment:
        """The event at that time, or whoever was in view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteView:
    """A site of a fleet, as it said last."""

    site: str
    group: str
    """The sites that run the same model and settings."""
    version: str
    """Of stepvad."""
    at: float
    """Unix time at which it said so."""
    is_away: bool
    """Whether it has said nothing for minutes."""
    cameras: dict[str, int]
    """Number of cameras by state."""
    model: str
    """Digest of its model; empty without one from the fleet."""
    refused: str
    """Why it does not run what its group should; empty if it does."""
    learning: str
    budget: str
    """The alerts of its cameras and their budget."""
    troubles: tuple[str, ...]


class EventStore(Protocol):
    """Stored events; in a fleet, cameras are `site/camera`, and `site/` matches a whole site."""

    def event(self, id: str) -> records.Record | None:
        """The event with this id."""

    def events(
        self,
        *,
        camera: str | None = None,
        since: float | None = None,
        until: float | None = None,
        open: bool | None = None,
        limit: int | None = 100,
        before_id: str | None = None,
        search: records.Search = records.EVERY,
    ) -> list[records.Record]:
        """Events, the newest first."""

    def to_review(self) -> int:
        """Number of events that nobody has seen, 1000 at most."""

    def reviews(self, ids: Sequence[str] | None = None) -> Mapping[str, records.Review]:
        """What was said of events that somebody has seen; of all, or of those with these ids."""

    def see(self, id: str, now: float, by: str = "") -> None:
        """Note that somebody has seen an event."""

    def delete(
        self,
        *,
        camera: str | None = None,
        before: float | None = None,
        after: float | None = None,
        ids: Sequence[str] | None = None,
    ) -> records.Deleted:
        """Delete events that have ended."""

    def stored(self) -> records.Inventory:
        """Inventory of the store: counts, sizes and time ranges."""


def add_routes(app: FastAPI, site: PageContext, version: str) -> None:
    """Add all routes under /api."""
    _add_site(app, site, version)
    _add_cameras(app, site)
    _add_events(app, site)
    _add_one_event(app, site)
    _add_marks(app, site)
    _add_dead_letters(app, site)


def searched(
    zone: Annotated[str | None, Query(description="In this zone.", max_length=64)] = None,
    words: Annotated[
        str | None,
        Query(
            description="Each of these words is in the description, the camera or a zone.",
            max_length=200,
        ),
    ] = None,
    min_score: Annotated[float | None, Query(description="Lowest top score.", ge=0)] = None,
    min_times: Annotated[
        float | None, Query(description="Lowest top score, in multiples of the threshold.", ge=0)
    ] = None,
    review: Annotated[
        records.ReviewState | None,
        Query(description="Those that nobody has seen, that somebody has, or judged so."),
    ] = None,
) -> records.Search:
    """The search that a query asks for."""
    return records.Search(
        zone=zone,
        words=words,
        min_score=min_score,
        min_times=min_times,
        review=review,
        within_s=SEARCH_S,
    )


def user_of(request: Request) -> str:
    """The name of the user who asks; empty if the page does not know."""
    return str(getattr(getattr(request.state, "user", None), "name", ""))


@contextmanager
def missing_is_404() -> Iterator[None]:
    """Answer 404 if data is missing; other errors pass, such as a store that is unavailable."""
    try:
        yield
    except DataError as error:
        if type(error) is not DataError or error.__cause__ is not None:
            raise
        raise HTTPException(404, hide_directories(str(error))) from None


class Strict(BaseModel):
    """A body with these fields and no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SiteAnswer(Strict):
    """The site itself."""

    name: str
    version: str
    uptime_s: float
    cameras: list[str]
    troubles: tuple[live.Trouble, ...]


class TimelineAnswer(Strict):
    """The largest score of each second of the last hour, where there was one."""

    camera: str
    threshold: float | None
    points: list[tuple[int, float]] = Field(description="Unix second and score.")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedEvent(records.Record):
    """An event, what people said of it, and where it was recorded."""

    mark: records.Mark | None
    """None if nobody judged it."""
    reviewed: float | None
    """Unix time at which somebody saw or judged it."""
    reviewed_by: str
    """Who that was; empty if unknown."""
    recording: str | None
    """Address of its clip in a video recorder."""


for answer in (  # their docstrings of fields go into the OpenAPI document
    *(live.CameraView, live.SinkView, records.Inventory, JudgedEvent, EventExplanation),
    *(Moment, records.WeekOfAlerts, LearnedFacts, SiteView, MarkEffect, ExceptionFacts),
):
    setattr(answer, "__pydantic_config__", ConfigDict(use_attribute_docstrings=True))  # noqa: B010
    # made once: else every route of every app would make it anew
    setattr(answer, "__pydantic_core_schema__", TypeAdapter(answer).core_schema)  # noqa: B010


class EventsAnswer(Strict):
    """Some events, the newest first."""

    events: list[JudgedEvent]
    next: str | None = Field(description="What to give as `before` to go on; None at the end.")
    to_review: int = Field(
        description="Events that nobody has seen, of all that are stored; 1000 at most."
    )


class MarkRequest(Strict):
    """What an event was; None takes the judgement back."""

    mark: records.Mark | None


class UndeliveredMessage(BaseModel):
    """A message that did not reach its sink."""

    model_config = ConfigDict(from_attributes=True, frozen=True)

    id: int = Field(validation_alias="seq")
    sink: str
    event_id: str
    kind: str
    created: float
    error: Annotated[str | None, AfterValidator(lambda text: text and hide_directories(text))] = (
        Field(description="Why, the last time.")
    )


class Undelivered(Strict):
    """Messages that a sink refused for good, the oldest first, and how many there are."""

    refused: int
    messages: list[UndeliveredMessage]


class Resent(Strict):
    """How many messages are queued again."""

    messages: int


def _add_site(app: FastAPI, site: PageContext, version: str) -> None:
    @app.get("/api/site", tags=["site"])
    def the_site() -> SiteAnswer:
        """The site itself, and what is wrong with it."""
        now = site.status.snapshot()
        return SiteAnswer(
            name=site.settings.name,
            version=version,
            uptime_s=now.uptime_s,
            troubles=now.troubles,
            cameras=site.status.names() or [*site.store.stored().cameras],
        )

    @app.get("/api/sites", tags=["site"])
    def sites() -> tuple[SiteView, ...]:
        """The sites of a fleet, by name; none at a site."""
        return () if site.sites is None else tuple(site.sites())

    @app.get("/api/stored", tags=["site"])
    def stored() -> records.Inventory:
        """What the site keeps: how many of what, from when to when, in how many bytes."""
        found = site.store.stored()
        return replace(found, files={FilePath(path.name): n for path, n in found.files.items()})

    @app.get("/api/sinks", tags=["site"])
    def sinks() -> tuple[live.SinkView, ...]:
        """Where events go, how many wait, and what went wrong."""
        return site.status.snapshot().sinks


def _add_cameras(app: FastAPI, site: PageContext) -> None:
    @app.get("/api/cameras", tags=["cameras"])
    def cameras() -> tuple[live.CameraView, ...]:
        """All cameras: settings, health, counts and drift."""
        return site.status.snapshot().cameras

    @app.get("/api/cameras/{name}", tags=["cameras"], responses=NOT_THERE)
    def camera(name: CameraPath) -> live.CameraView:
        """One camera."""
        return site.camera(name)

    @app.get("/api/timelines", tags=["cameras"])
    def timelines() -> list[TimelineAnswer]:
        """The scores of all cameras over the last hour."""
        return [
            TimelineAnswer(
                camera=one.name,
                threshold=one.threshold,
                points=[(at, round(score, 3)) for at, score in site.status.timeline(one.name)],
            )
            for one in site.status.snapshot().cameras
        ]

    @app.get("/api/cameras/{name}/moment", tags=["cameras"], responses=NOT_THERE)
    def moment(
        name: CameraPath,
        at: Annotated[float, Query(description="Unix time in seconds.", ge=0, le=1e12)],
    ) -> Moment:
        """The event at a time, or the people then as far as they are in memory or recorded."""
        site.camera(name)
        return NO_POSES if site.replays is None else site.replays.moment(name, at)


def _add_events(app: FastAPI, site: PageContext) -> None:
    @app.get("/api/events", tags=["events"], responses=NOT_THERE)
    def events(
        camera: CameraName = None,
        since: Time = None,
        until: Time = None,
        open: Annotated[bool | None, Query(description="Those that go on, or that do not.")] = None,
        before: Annotated[
            str | None, Query(description="`next` of the answer before.", max_length=200)
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 50,
        search: Annotated[records.Search, Depends(searched)] = records.EVERY,
    ) -> EventsAnswer:
        """Events, the newest first, some at a time."""
        if before is not None:
            site.event(before)
        # one more than asked for tells whether there is a next page
        found = site.store.events(
            camera=camera,
            since=since,
            until=until,
            open=open,
            limit=limit + 1,
            before_id=before,
            search=search,
        )
        shown = found[:limit]
        reviews = site.store.reviews([record.id for record in shown])
        return EventsAnswer(
            events=[site.judged(one, reviews.get(one.id)) for one in shown],
            next=shown[-1].id if len(found) > limit else None,
            to_review=site.store.to_review(),
        )

    @app.delete("/api/events", tags=["events"])
    def delete_events(
        request: Request, camera: CameraName = None, since: Time = None, until: Time = None
    ) -> records.Deleted:
        """Delete the events of a camera or a span of time that are over, with their poses."""
        if camera is None and since is None and until is None:
            raise HTTPException(422, "expected a camera, since or until, got none of them")
        done = site.store.delete(camera=camera, before=until, after=since)
        request.state.audit_subject = f"{done.events} events of {camera or 'all cameras'}"
        return done

    @app.get("/api/events/{id}/scene", tags=["events"], responses=NOT_THERE)
    def scene(id: EventIdPath) -> Moment:
        """Everybody in view around the peak of an event."""
        site.event(id)
        return NO_POSES if site.replays is None else site.replays.event(id)


def _add_one_event(app: FastAPI, site: PageContext) -> None:
    @app.get("/api/events/{id}", tags=["events"], responses=NOT_THERE)
    def event(id: EventIdPath) -> JudgedEvent:
        """One event."""
        return site.judged(site.event(id), site.store.reviews([id]).get(id))

    @app.get("/api/events/{id}/explanation", tags=["events"], responses=NOT_THERE)
    def explanation(id: EventIdPath) -> EventExplanation:
        """Why an event has its score, made from its poses when it is asked for."""
        site.event(id)
        with missing_is_404():
            return site.explain(id)

    @app.put("/api/events/{id}/review", tags=["events"], responses=NOT_THERE)
    def review(id: EventIdPath, request: Request) -> JudgedEvent:
        """Note that somebody has seen an event."""
        site.event(id)
        with missing_is_404():
            site.store.see(id, time.time(), user_of(request))
        return event(id)

    @app.delete("/api/events/{id}", tags=["events"], status_code=204, responses=NOT_THERE)
    def delete_event(id: EventIdPath) -> Response:
        """Delete an event that is over, with its poses and its explanation."""
        if site.event(id).is_open:
            raise HTTPException(409, f"event {id}: expected one that is over, got an open one")
        site.store.delete(ids=[id])
        return Response(status_code=204)


def _add_marks(app: FastAPI, site: PageContext) -> None:
    @app.put("/api/events/{id}/mark", tags=["events"], responses=NOT_THERE)
    def mark(id: EventIdPath, mark: MarkRequest, request: Request) -> JudgedEvent:
        """Say that an event was normal, or a right alert, or take that back."""
        request.state.audit_subject = f"{id}: {mark.mark or 'taken back'}"
        site.event(id)
        with missing_is_404():
            site.mark(id, mark.mark, user_of(request))
        return site.judged(site.event(id), site.store.reviews([id]).get(id))

    @app.get("/api/events/{id}/mark-effect", tags=["events"], responses=NOT_THERE)
    def effect(id: EventIdPath, mark: records.Mark | None = None) -> MarkEffect:
        """What a mark on an event would do, or taking it back."""
        site.event(id)
        if site.marks is None:
            return MarkEffect(mark=mark, words=AT_ITS_SITE, said="")
        with missing_is_404():
            return site.marks.effect(id, mark)

    @app.get("/api/exceptions", tags=["events"])
    def exceptions() -> list[ExceptionFacts]:
        """Motion that is passed over at its place, because somebody marked it as normal."""
        return [] if site.marks is None else site.marks.exceptions()

    @app.delete("/api/exceptions/{id}", tags=["events"], status_code=204, responses=NOT_THERE)
    def delete_exception(id: EventIdPath, request: Request) -> Response:
        """Raise motion like that of an event again: take the mark on it back."""
        if all(one.event != id for one in exceptions()):
            raise HTTPException(404, f"exception: expected the event of one, got {id!r}")
        site.mark(id, None, user_of(request))
        return Response(status_code=204)


def _add_dead_letters(app: FastAPI, site: PageContext) -> None:
    outbox = getattr(site.store, "outbox", None)  # a fleet has none

    @app.get("/api/undelivered", tags=["site"])
    def undelivered() -> Undelivered:
        """Messages that a sink refused for good."""
        dead_letters = outbox.dead_letters() if isinstance(outbox, Outbox) else []
        return Undelivered(
            refused=len(dead_letters),
            messages=[UndeliveredMessage.model_validate(one) for one in dead_letters[:MOST_EVENTS]],
        )

    @app.post("/api/undelivered/resend", tags=["site"])
    def resend() -> Resent:
        """Queue refused messages again, in their place among those that wait."""
        return Resent(messages=outbox.resend() if isinstance(outbox, Outbox) else 0)
