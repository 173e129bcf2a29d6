"""API routes: cameras, events, explanations and stored data."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response

from stepvad.errors import DataError, StepvadError
from stepvad.explain.event import EventExplanation
from stepvad.incidents.record import Record
from stepvad.incidents.review import Mark, Review
from stepvad.incidents.search import EVERY, ReviewState, Search
from stepvad.incidents.stored import Deleted, Inventory
from stepvad.intake.place_drawings import PlaceDrawings
from stepvad.intake.status import CameraView, LiveStatus, SinkView
from stepvad.site.editor import SettingsEditor
from stepvad.site.replay import Moment, Replays
from stepvad.site.store.outbox import Outbox
from stepvad.web import answers
from stepvad.web.answers import JudgedEvent
from stepvad.web.learning_routes import Learning
from stepvad.web.shown import Deployment, Shown

MOST_EVENTS = 500
LATEST = 1e12
"""Largest Unix time accepted in a query."""

CameraPath = Annotated[str, Path(description="Name of a camera.", max_length=64)]
EventIdPath = Annotated[str, Path(description="Id of an event.", max_length=200)]
Time = Annotated[float | None, Query(description="Unix time in seconds.", ge=0, le=LATEST)]
CameraName = Annotated[
    str | None,
    Query(description="Of this camera only; of a fleet site/camera, or site/.", max_length=200),
]
NO_POSES = Moment(words="A fleet keeps no poses: there is nothing to play.")
NOT_THERE: dict[int | str, dict[str, Any]] = {
    404: {"model": answers.Problem, "description": "Not found."}
}


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A running site: its settings, its store and its live status."""

    settings: Deployment
    store: Shown
    status: LiveStatus
    explain: Callable[[str], EventExplanation]
    """Why an event has its score; a StepvadError if nobody can tell any more."""
    mark: Callable[[str, Mark | None, str], None]
    """Judge an event, or take the judgement back; the last argument says who does."""
    editor: SettingsEditor | None = None
    """Changes the settings file; None if there is none, as in the demo and in a fleet."""
    learner: Learning | None = None
    """Learns the model of the site; None if it has one."""
    replays: Replays | None = None
    """Scenes of events and moments; None in a fleet, which keeps no poses."""
    drawings: PlaceDrawings | None = None
    """Drawings of the places; None in a fleet, which has no cameras."""
    recorders: Mapping[str, str] = field(default_factory=dict)
    """Addresses of recordings by camera, with names in braces."""

    def camera(self, name: str) -> CameraView:
        """The camera with this name; 404 if there is none."""
        for camera in self.status.snapshot().cameras:
            if camera.name == name:
                return camera
        raise HTTPException(404, f"camera: expected one of the site, got {name!r}")

    def judged(self, record: Record, review: Review | None) -> JudgedEvent:
        """An event, and what was said of it."""
        return answers.judged(record, review, self.recorders.get(record.camera))

    def event(self, id: str) -> Record:
        """The event with this id; 404 if there is none."""
        found = self.store.event(id)
        if found is None:
            raise HTTPException(404, f"event: expected a stored one, got {id!r}")
        return found


def add_routes(app: FastAPI, site: Running, version: str) -> None:
    """Add all routes under /api."""
    _of_cameras(app, site, version)
    _of_events(app, site)
    _of_one_event(app, site)
    _of_scenes(app, site)
    _of_what_is_kept(app, site)
    _of_dead_letters(app, site)


def _of_cameras(app: FastAPI, site: Running, version: str) -> None:
    @app.get("/api/site", tags=["site"])
    def the_site() -> answers.SiteAnswer:
        """The site itself."""
        return answers.SiteAnswer(
            name=site.settings.name,
            version=version,
            uptime_s=site.status.snapshot().uptime_s,
            cameras=site.status.names() or [*site.store.stored().cameras],
        )

    @app.get("/api/cameras", tags=["cameras"])
    def cameras() -> tuple[CameraView, ...]:
        """All cameras: settings, health, counts and drift."""
        return site.status.snapshot().cameras

    @app.get("/api/cameras/{name}", tags=["cameras"], responses=NOT_THERE)
    def camera(name: CameraPath) -> CameraView:
        """One camera."""
        return site.camera(name)

    @app.get("/api/cameras/{name}/timeline", tags=["cameras"], responses=NOT_THERE)
    def timeline(name: CameraPath) -> answers.TimelineAnswer:
        """The scores of one camera over the last hour."""
        return _timeline(site, site.camera(name))

    @app.get("/api/timelines", tags=["cameras"])
    def timelines() -> list[answers.TimelineAnswer]:
        """The scores of all cameras over the last hour."""
        return [_timeline(site, camera) for camera in site.status.snapshot().cameras]


def _timeline(site: Running, camera: CameraView) -> answers.TimelineAnswer:
    points = [(second, round(score, 3)) for second, score in site.status.timeline(camera.name)]
    return answers.TimelineAnswer(camera=camera.name, threshold=camera.threshold, points=points)


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
        ReviewState | None,
        Query(description="Those that nobody has seen, that somebody has, or judged so."),
    ] = None,
) -> Search:
    """What is looked for, from the query."""
    return Search(zone=zone, words=words, min_score=min_score, min_times=min_times, review=review)


def _of_events(app: FastAPI, site: Running) -> None:
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
        search: Annotated[Search, Depends(searched)] = EVERY,
    ) -> answers.EventsAnswer:
        """Events, the newest first, some at a time."""
        if before is not None:
            site.event(before)
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
        return answers.EventsAnswer(
            events=[site.judged(one, reviews.get(one.id)) for one in shown],
            next=shown[-1].id if len(found) > limit else None,
            to_review=site.store.to_review(),
        )

    @app.delete("/api/events", tags=["events"])
    def delete_events(
        request: Request,
        camera: CameraName = None,
        since: Time = None,
        until: Time = None,
    ) -> Deleted:
        """Delete the events of a camera or a span of time that are over, with their poses."""
        if camera is None and since is None and until is None:
            raise HTTPException(422, "expected a camera, since or until, got none of them")
        done = site.store.delete(camera=camera, before=until, after=since)
        request.state.audit_subject = f"{done.events} events of {camera or 'all cameras'}"
        return done


def _of_one_event(app: FastAPI, site: Running) -> None:
    @app.get("/api/events/{id}", tags=["events"], responses=NOT_THERE)
    def event(id: EventIdPath) -> JudgedEvent:
        """One event."""
        return site.judged(site.event(id), site.store.reviews([id]).get(id))

    @app.get("/api/events/{id}/explanation", tags=["events"], responses=NOT_THERE)
    def explanation(id: EventIdPath) -> EventExplanation:
        """Why an event has its score, made from its poses when it is asked for."""
        site.event(id)
        try:
            return site.explain(id)
        except StepvadError as error:
            raise missing(error) from error.__cause__

    @app.put("/api/events/{id}/mark", tags=["events"], responses=NOT_THERE)
    def mark(id: EventIdPath, mark: answers.MarkRequest, request: Request) -> JudgedEvent:
        """Say that an event was normal, or a right alert, or take that back."""
        request.state.audit_subject = f"{id}: {mark.mark or 'taken back'}"
        site.event(id)
        try:
            site.mark(id, mark.mark, user_of(request))
        except StepvadError as error:
            raise missing(error) from error.__cause__
        return event(id)

    @app.put("/api/events/{id}/review", tags=["events"], responses=NOT_THERE)
    def review(id: EventIdPath, request: Request) -> JudgedEvent:
        """Note that somebody has seen an event."""
        site.event(id)
        try:
            site.store.see(id, time.time(), user_of(request))
        except StepvadError as error:
            raise missing(error) from error.__cause__
        return event(id)

    @app.delete("/api/events/{id}", tags=["events"], status_code=204, responses=NOT_THERE)
    def delete_event(id: EventIdPath) -> Response:
        """Delete an event that is over, with its poses and its explanation."""
        if site.event(id).is_open:
            raise HTTPException(409, f"event {id}: expected one that is over, got an open one")
        site.store.delete(ids=[id])
        return Response(status_code=204)


def _of_scenes(app: FastAPI, site: Running) -> None:
    @app.get("/api/events/{id}/scene", tags=["events"], responses=NOT_THERE)
    def scene(id: EventIdPath) -> Moment:
        """Everybody in view around the peak of an event."""
        site.event(id)
        return NO_POSES if site.replays is None else site.replays.event(id)

    @app.get("/api/cameras/{name}/moment", tags=["cameras"], responses=NOT_THERE)
    def moment(
        name: CameraPath,
        at: Annotated[float, Query(description="Unix time in seconds.", ge=0, le=1e12)],
    ) -> Moment:
        """The event at a time, or the people then as far as they are in memory or recorded."""
        site.camera(name)
        return NO_POSES if site.replays is None else site.replays.moment(name, at)


def user_of(request: Request) -> str:
    """The name of the user who asks; empty if the page does not know."""
    return str(getattr(getattr(request.state, "user", None), "name", ""))


def missing(error: StepvadError) -> Exception:
    """Convert missing data to 404; pass other errors on, such as a store that is unavailable."""
    is_missing = type(error) is DataError and error.__cause__ is None
    return HTTPException(404, str(error)) if is_missing else error


def _of_what_is_kept(app: FastAPI, site: Running) -> None:
    @app.get("/api/stored", tags=["site"])
    def stored() -> Inventory:
        """What the site keeps: how many of what, from when to when, in how many bytes."""
        found = site.store.stored()
        return replace(found, files={FilePath(path.name): n for path, n in found.files.items()})

    @app.get("/api/sinks", tags=["site"])
    def sinks() -> tuple[SinkView, ...]:
        """Where events go, how many wait, and what went wrong."""
        return site.status.snapshot().sinks


def _of_dead_letters(app: FastAPI, site: Running) -> None:
    outbox = getattr(site.store, "outbox", None)  # a fleet has none

    @app.get("/api/undelivered", tags=["site"])
    def undelivered() -> answers.Undelivered:
        """Messages that a sink refused for good."""
        dead_letters = outbox.dead_letters() if isinstance(outbox, Outbox) else []
        return answers.Undelivered(
            refused=len(dead_letters),
            messages=[
                answers.UndeliveredMessage.model_validate(one) for one in dead_letters[:MOST_EVENTS]
            ],
        )

    @app.post("/api/undelivered/resend", tags=["site"])
    def resend(chosen: answers.Resend) -> answers.Resent:
        """Queue refused messages again, in their place among those that wait."""
        count = 0
        if isinstance(outbox, Outbox):
            count = outbox.resend(sink=chosen.sink, seqs=chosen.ids)
        return answers.Resent(messages=count)
