"""The centre of a fleet in one process: its writer, and its page, which asks the sites."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Literal

from fastapi import HTTPException

from stepvad.codec import decode, encode
from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.events.record import Mark, Review
from stepvad.explain.event import EventExplanation
from stepvad.files import secret
from stepvad.fleet import registry, streams
from stepvad.fleet.connection import ChangedError, Connection, ConnectionThread, UnavailableError
from stepvad.fleet.database import NoDatabaseError
from stepvad.fleet.event_store import EventStore, site_and_id
from stepvad.fleet.registry import Rollout, Status
from stepvad.fleet.settings import FleetSettings
from stepvad.fleet.writer import EventWriter
from stepvad.formats import tracks
from stepvad.site.recorder import Moment, event_scene
from stepvad.site.service import Service
from stepvad.site.settings.page import NAME
from stepvad.site.stages import Loop, Repeats, Stage, Supervisor, watch_over
from stepvad.site.status import LiveStatus
from stepvad.web import PageContext, bind, create_app
from stepvad.web.app import open_accounts, tell_first_link
from stepvad.web.routes import SiteView

logger = logging.getLogger(__name__)
Part = Literal["writer", "page"]

ASK_S, BROKER_S, STATUSES_S = 2.0, 5.0, 20.0
"""Longest wait for the answer of a site, of the brokers, and for the statuses of all sites."""
SILENT_S = 5.0
"""A site that did not answer is not asked again for so long: whoever looks need not wait."""
AWAY_S = 180.0
"""A site that has said nothing for so long is away; it speaks every minute."""
FRESH_S = 5.0
"""Statuses are read again after this time, however many look."""
MOST_MARKS, TRIES = 500, 20
"""Marks of a site that are kept for it, and attempts while other people mark, too."""
OLD = 0.02
"""An explanation whose score differs by more from that of its event is of an earlier moment."""
LOOK_S, STOP_S = 60.0, 10.0
"""Interval of looks at what sites try, and the longest time to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a site answers; its error, if there is one, in words."""

    explanation: EventExplanation | None = None
    poses: bytes | None = None
    error: str | None = None


class Sites:
    """The sites of a fleet, as its page asks them and tells them; threads may share it."""

    def __init__(self, connection: ConnectionThread, store: EventStore) -> None:
        self._connection, self._store = connection, store
        self._read: tuple[float, Sequence[SiteView]] | None = None
        self._silent_until: dict[str, float] = {}
        self._lines = Repeats()

    def explain(self, id: str) -> EventExplanation:
        """Why an event has its score: as it was kept, or as its site says now."""
        kept = self._store.explanation(id)
        if kept is not None:
            return kept
        told = self._ask(id, "explain").explanation
        record = self._store.event(id)
        if told is None or record is None:
            raise DataError(f"event {id}: expected an explanation, got none")
        if not record.is_open and abs(told.score - record.top_score) <= OLD * record.top_score:
            self._store.keep_explanation(id, told)
        return told

    def mark(self, id: str, mark: Mark | None, by: str) -> None:
        """Judge an event here and at its site, which hears of it at its next look."""
        at = self._store.mark(id, mark, by)
        (site, own), entry = site_and_id(id), Review(mark, at, by)
        self._connection.ask(lambda broker: add_mark(broker, site, own, entry), BROKER_S)
        self._connection.thread.start(self._have_looked(site))

    async def _have_looked(self, site: str) -> None:
        with suppress(StepvadError):  # it looks every minute anyway
            broker = await self._connection.connection()
            await broker.request(streams.ask(site), encode({"what": "look"}))

    def event(self, id: str) -> Moment:
        """Everybody in view around the peak of an event, from the poses that its site has."""
        record, told = self._store.event(id), None
        if record is None:
            return Moment(event=id, words="This event is not stored any more.")
        try:
            poses = self._ask(id, "poses").poses
            with suppress(HTTPException, StepvadError):
                told = self.explain(id)
            clip = tracks.from_bytes(poses or b"")
        except HTTPException as error:
            return Moment(event=id, words=str(error.detail))
        except StepvadError as error:
            return Moment(event=id, words=f"There is nothing to play: {error.problem}.")
        frame = None if told is None else told.frame
        return Moment(event=id, scene=event_scene(record, clip, frame))

    def moment(self, camera: str, at: float) -> Moment:
        """Nothing: the scenes of cameras stay at their sites."""
        return Moment(words="The page of the site shows what its cameras saw.")

    def _ask(self, id: str, what: Literal["explain", "poses"]) -> Answer:
        """What the site of a stored event answers; 503 if it is away."""
        if self._store.event(id) is None:  # its site is part of a subject
            raise DataError(f"event {id}: expected the id of a stored event, got an unknown id")
        site, own = site_and_id(id)
        away = HTTPException(503, f"The site {site} is away; ask again when it is back.")
        if time.monotonic() < self._silent_until.get(site, 0.0):
            raise away
        subject, question = streams.ask(site), encode({"what": what, "id": own})
        try:
            data = self._connection.ask(
                lambda broker: broker.request(subject, question, ASK_S), 2 * ASK_S
            )
        except UnavailableError:
            self._silent_until[site] = time.monotonic() + SILENT_S
            raise away from None
        answer = decode(Answer, data, f"site {site}")
        if answer.error is not None:
            raise DataError(f"site {site}: {answer.error[:300]}")
        return answer

    def views(self) -> Sequence[SiteView]:
        """All sites by name, with what each said last."""
        if self._read is None or time.monotonic() - self._read[0] > FRESH_S:
            told = self._connection.ask(registry.statuses, STATUSES_S)
            views = [_view(status, at) for status, at in sorted(told, key=lambda one: one[0].site)]
            self._read = time.monotonic(), views
        return self._read[1]

    def stop_rollouts(self) -> None:
        """Withdraw what some sites try if it alerts more often without reason than before."""
        try:
            self._connection.ask(_stop_rollouts, 2 * STATUSES_S)
        except StepvadError as error:
            self._lines.log(logger.warning, error.problem, "roll-outs not looked at: %s", error)


async def add_mark(broker: Connection, site: str, id: str, entry: Review) -> None:
    """Add a mark to those that wait for a site; the oldest make room."""
    subject = streams.marks(site)
    for _ in range(TRIES):
        last = await broker.last(streams.MARKS, subject)
        marks = {} if last is None else json.loads(last.data)
        marks.pop(id, None)
        newest = [*marks.items(), (id, entry)][-MOST_MARKS:]
        revision = 0 if last is None else last.revision
        try:
            await broker.publish(subject, encode(dict(newest)), expect=revision)
            return
        except ChangedError:  # somebody else was faster, or a replica is behind
            await asyncio.sleep(0.02)
    raise UnavailableError("broker: expected to store a mark, got others that came first")


def _view(told: Status, at: float) -> SiteView:
    return SiteView(
        site=told.site,
        group=told.group,
        version=told.version,
        at=at,
        is_away=time.time() - at > AWAY_S,
        cameras=told.cameras,
        model=told.run.model or "",
        refused=told.refused or "",
        learning=told.learning,
        budget=told.budget,
        troubles=told.troubles,
    )


async def _stop_rollouts(broker: Connection) -> None:
    statuses = [status for status, _ in await registry.statuses(broker)]
    # a group is part of a subject, and a site may say anything
    for group in {one.group for one in statuses if re.fullmatch(NAME, one.group)}:
        own = [one for one in statuses if one.group == group]

        def withdrawn(now: Rollout, group: str = group, own: Sequence[Status] = own) -> Rollout:
            reason = registry.to_stop(now, own)
            if reason is None:
                return now
            logger.warning("group %s: withdrawing what some sites try: %s", group, reason)
            return registry.back(now, reason)

        await registry.change(broker, group, withdrawn, "stepvad")


def serve(settings: FleetSettings, only: Part | None, running: Service) -> list[str]:
    """Run the writer and the page, or one of them, until stopped; what did not stop in time."""
    supervisor = Supervisor()
    run: list[Stage] = []
    with ExitStack() as opened:
        if only != "page":
            run.append(EventWriter(settings).stage)
        if only != "writer":
            run += _page(settings, supervisor, opened)
        for stage in run:
            supervisor.start(stage)
        watch_over(supervisor, running.stop, running.beat)
        return supervisor.stop(run, STOP_S)


def _page(settings: FleetSettings, supervisor: Supervisor, opened: ExitStack) -> Sequence[Stage]:
    """The page, which listens already, and what looks at the roll-outs."""
    web = settings.web
    if web.token is None:
        raise ConfigError(
            "web.token: expected env:NAME or file:PATH, got none",
            hint="create a token of at least 16 characters and name where it is stored",
        )
    store = opened.enter_context(closing(EventStore(secret(settings.events.dsn))))
    connection = opened.enter_context(closing(ConnectionThread(settings.broker, "page")))
    with suppress(NoDatabaseError):  # it may come later; other settings or tables do not
        store.to_review()
    sites = Sites(connection, store)
    context = PageContext(
        *(settings, store, LiveStatus(), sites.explain, sites.mark),
        replays=sites,
        sites=sites.views,
    )
    accounts = opened.enter_context(closing(open_accounts(web, None)))
    app = create_app(
        context, secret(web.token), health=supervisor.health, accounts=accounts, ended=store
    )
    page = bind(app, web.host, web.port, certificate=web.certificate, key=web.key)
    tell_first_link(accounts, web, page.url)
    logger.info("the page is at %s", page.url)

    def look(loop: Loop) -> bool:
        if not loop.stopping.wait(LOOK_S):
            sites.stop_rollouts()
        return False

    return page, Loop("rollouts", look, 4 * LOOK_S)
