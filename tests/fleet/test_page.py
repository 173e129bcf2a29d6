"""The page of a fleet: events of all sites, what sites answer, and how they are."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi.testclient import TestClient
from nats.aio.msg import Msg

from stepvad.codec import encode, from_plain, to_plain
from stepvad.events.record import Review
from stepvad.explain.event import EventExplanation
from stepvad.fleet import registry, streams
from stepvad.fleet.connection import Connection, ConnectionThread
from stepvad.fleet.event_store import EventStore
from stepvad.fleet.page import AWAY_S, MOST_MARKS, Sites, add_mark
from stepvad.fleet.registry import FalseAlerts, Rollout, Run, RunningRun, Status
from stepvad.fleet.settings import FleetSettings
from stepvad.formats import tracks
from stepvad.site.status import LiveStatus
from stepvad.web import PageContext, create_app
from tests.fleet.served import Put
from tests.fleet.servers import Broker, broker_settings
from tests.fleet.test_event_store import FAR, GATE, N1, N2, S3, YARD
from tests.video.servers import wait_until
from tests.web.sites import BEARER, EXPLANATION, HERE, TOKEN, crowd


@dataclass
class StandIn:
    """A site that answers; `asked` is what it heard."""

    connection: ConnectionThread
    name: str = "north"
    asked: list[str] = field(default_factory=list)
    score: float = 6.5
    error: str | None = None
    poses: bytes = b""

    def start(self) -> None:
        async def answer(message: Msg) -> None:
            told = json.loads(message.data)
            self.asked.append(told["what"])
            await message.respond(json.dumps(self._answer(told["what"])).encode())

        self.connection.ask(lambda broker: broker.answer(streams.ask(self.name), answer), 5)

    def _answer(self, what: str) -> dict[str, Any]:
        if self.error is not None:
            return {"error": self.error}
        if what == "look":
            return {"looked": True}
        if what == "poses":
            return {"poses": base64.b64encode(self.poses).decode()}
        return {"explanation": EXPLANATION | {"score": self.score}}


@dataclass
class Centre:
    """A page in this process, with its broker and its database."""

    server: Broker
    connection: ConnectionThread
    store: EventStore
    sites: Sites
    client: TestClient

    def do(self, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        return self.connection.ask(work, 10)

    def marks(self, site: str) -> dict[str, Any]:
        last = self.do(lambda one: one.last(streams.MARKS, streams.marks(site)))
        return {} if last is None else dict(json.loads(last.data))

    def says(self, **status: Any) -> None:
        data = encode(Status(**({"group": "sites"} | status)))
        subject = streams.status(status["site"])
        self.do(lambda one: one.publish(subject, data))


@pytest.fixture
def centre(fleet: Broker, put: Put, dsn: str) -> Iterator[Centre]:
    put("north", YARD, GATE)
    put("south", FAR)
    with (
        closing(ConnectionThread(broker_settings([fleet]), "page")) as connection,
        closing(EventStore(dsn)) as store,
    ):
        sites = Sites(connection, store)
        context = PageContext(
            *(FleetSettings(), store, LiveStatus(), sites.explain, sites.mark),
            replays=sites,
            sites=sites.views,
        )
        client = TestClient(create_app(context, TOKEN, ended=store), base_url=HERE, headers=BEARER)
        yield Centre(fleet, connection, store, sites, client)


@pytest.fixture
def north(centre: Centre) -> Iterator[StandIn]:
    with closing(ConnectionThread(broker_settings([centre.server]), "north")) as connection:
        made = StandIn(connection)
        made.start()
        yield made


def test_events_of_all_sites_are_listed_by_site_and_camera(centre: Centre) -> None:
    def ids(**query: str) -> list[str]:
        answer = centre.client.get("/api/events", params=query)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["events"]]

    assert ids() == [S3, N2, N1]
    assert ids(camera="north/") == [N2, N1]
    assert ids(camera="south/yard") == [S3]
    first = centre.client.get("/api/events", params={"limit": 2}).json()
    assert ids(before=first["next"]) == [N1]
    assert centre.client.get("/api/events", params={"before": "nobody"}).status_code == 404
    site = centre.client.get("/api/site").json()
    assert (site["name"], site["cameras"]) == ("fleet", ["north/gate", "north/yard", "south/yard"])
    assert centre.client.get("/api/stored").json()["kept"][0]["count"] == 3
    assert centre.client.get("/readyz").status_code == 200
    assert centre.client.get("/api/precision").status_code == 200


def test_a_mark_is_stored_and_waits_for_its_site(centre: Centre, north: StandIn) -> None:
    answer = centre.client.put(f"/api/events/{N2}/mark", json={"mark": "normal"})
    assert answer.json()["mark"] == "normal"
    entry = centre.marks("north")[GATE.id]
    assert (entry["mark"], entry["by"]) == ("normal", "token")
    assert abs(entry["at"] - time.time()) < 60
    assert entry["at"] == pytest.approx(answer.json()["reviewed"])
    wait_until(lambda: north.asked == ["look"])
    centre.client.put(f"/api/events/{N2}/mark", json={"mark": None})
    assert centre.marks("north")[GATE.id]["mark"] is None
    assert centre.marks("south") == {}
    assert centre.client.put("/api/events/north:x/mark", json={"mark": None}).status_code == 404


def test_many_who_mark_at_once_lose_no_mark_and_the_oldest_make_room(centre: Centre) -> None:
    old = {f"old-{n}": {"mark": "normal", "at": float(n), "by": "eva"} for n in range(MOST_MARKS)}
    subject = streams.marks("north")
    centre.do(lambda one: one.publish(subject, encode(old)))
    entry = Review("right", 1e9, "x" * 64)

    async def all_at_once(broker: Connection) -> None:

        ids = [f"{'n' * 100}{n}" for n in range(12)]
        await asyncio.gather(*(add_mark(broker, "north", id, entry) for id in ids))

    centre.do(all_at_once)
    marks = centre.marks("north")
    assert len(marks) == MOST_MARKS
    assert sum(name.startswith("nnn") for name in marks) == 12
    assert "old-11" not in marks
    assert "old-12" in marks


def test_an_explanation_is_asked_for_and_kept_once_its_event_has_ended(
    centre: Centre, north: StandIn
) -> None:
    path = f"/api/events/{N1}/explanation"
    assert centre.client.get(path).json()["words"][0]["says"] == "left arm raised"
    centre.client.get(path)
    assert north.asked == ["explain"] * 2  # it goes on
    path, north.score = f"/api/events/{N2}/explanation", 3.0
    centre.client.get(path)
    centre.client.get(path)
    assert north.asked == ["explain"] * 4  # an earlier moment
    north.score = 6.5
    told = centre.client.get(path).json()
    assert centre.client.get(path).json() == told
    assert len(north.asked) == 5
    assert told == to_plain(from_plain(EventExplanation, EXPLANATION, ""))


def test_a_site_that_is_away_is_an_answer_in_words(centre: Centre, north: StandIn) -> None:
    answer = centre.client.get(f"/api/events/{S3}/explanation")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "The site south is away; ask again when it is back."
    scene = centre.client.get(f"/api/events/{S3}/scene").json()
    assert (scene["scene"], scene["words"]) == (None, answer.json()["detail"])
    north.error = "it is no longer kept"
    answer = centre.client.get(f"/api/events/{N2}/explanation")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "site north: it is no longer kept",
    )
    # marks wait until the site is back
    assert centre.client.put(f"/api/events/{S3}/mark", json={"mark": "right"}).status_code == 200
    assert centre.marks("south")[FAR.id]["mark"] == "right"


def test_poses_are_played_and_not_kept(centre: Centre, north: StandIn) -> None:
    north.poses = tracks.to_bytes(crowd())
    scene = centre.client.get(f"/api/events/{N2}/scene").json()["scene"]
    assert scene["camera"] == "north/gate"
    assert scene["at"] == EXPLANATION["frame"] - scene["first"]
    assert [person["track"] for person in scene["people"]] == [1, 2]
    assert sorted(north.asked) == ["explain", "poses"]


def test_a_broker_that_is_away_leaves_the_events_on_the_page(centre: Centre) -> None:
    centre.server.kill()
    assert len(centre.client.get("/api/events").json()["events"]) == 3
    assert centre.client.get("/api/sites").status_code == 503
    assert centre.client.get(f"/api/events/{N2}/explanation").status_code == 503
    marked = centre.client.put(f"/api/events/{N2}/mark", json={"mark": "right"})
    assert marked.status_code == 503


def test_sites_are_listed_as_they_said_last(
    centre: Centre, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepvad.fleet.page.FRESH_S", 0.0)
    assert centre.client.get("/api/sites").json() == []
    centre.says(site="south", cameras={"online": 3, "offline": 1}, version="0.1", refused="no room")
    centre.says(site="north", troubles=("a",), run=RunningRun(model="ab" * 32))
    centre.says(site="north", troubles=("the disk is full",), run=RunningRun(model="ab" * 32))
    centre.do(lambda one: one.publish(streams.status("west"), b'{"group": 7}'))
    # a site speaks for itself alone
    east = encode(Status(site="north", group="sites"))
    centre.do(lambda one: one.publish(streams.status("east"), east))
    told = centre.client.get("/api/sites").json()
    assert [one["site"] for one in told] == ["east", "north", "south", "west"]
    _, north, south, west = told
    assert (north["troubles"], north["model"]) == (["the disk is full"], "ab" * 32)
    assert (south["cameras"], south["refused"]) == ({"online": 3, "offline": 1}, "no room")
    assert "no status that can be read" in west["troubles"][0]
    assert not any(one["is_away"] for one in told)
    late = time.time() + AWAY_S + 1
    monkeypatch.setattr("stepvad.fleet.page.time.time", lambda: late)
    assert all(one["is_away"] for one in centre.client.get("/api/sites").json())


def test_a_thousand_sites_are_read_in_a_moment(centre: Centre) -> None:
    async def say(broker: Connection) -> None:
        for first in range(0, 1000, 100):
            await asyncio.gather(
                *(
                    broker.publish(streams.status(f"s{n}"), encode(Status(site=f"s{n}", group="g")))
                    for n in range(first, first + 100)
                )
            )

    centre.connection.ask(say, 60)
    assert len(centre.client.get("/api/sites").json()) == 1000


def test_what_some_sites_try_is_withdrawn_if_false_alerts_rise(centre: Centre) -> None:
    tried = Run(settings="[retention]\nevents_days = 9\n")
    worse = FalseAlerts(days=1.0, false=9, before_days=10.0, before_false=2)
    stage = registry.staged(Rollout(), tried, 50)
    centre.do(lambda one: registry.change(one, "sites", lambda _: stage, "eva"))
    centre.says(site="north", run=RunningRun(digest=tried.digest))
    centre.sites.stop_rollouts()
    assert centre.do(lambda one: registry.read(one, "sites"))[0].next is not None
    centre.says(site="south", group="a.b")  # what a site says of itself may be anything
    centre.says(site="north", run=RunningRun(digest=tried.digest), alerts=worse)
    centre.sites.stop_rollouts()
    value, revision = centre.do(lambda one: registry.read(one, "sites"))
    assert value.next is None
    assert "north: 9 false alerts" in value.stopped
    centre.sites.stop_rollouts()
    assert centre.do(lambda one: registry.read(one, "sites"))[1] == revision
