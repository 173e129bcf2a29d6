"""The page of a site, showing the events of a fleet."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from stepvad.errors import ConfigError
from stepvad.fleet.events.postgres import FleetEvents, connect
from stepvad.fleet.events.reader import EventReader
from stepvad.fleet.settings import FleetSettings
from stepvad.site.status import LiveStatus
from stepvad.web import PageContext, create_app
from tests.browser import CHROMIUM, log_in
from tests.fleet.fleets import Role
from tests.fleet.results import change, event, over
from tests.fleet.servers import PostgresServer
from tests.video.servers import free_port, wait_until
from tests.web.sites import BEARER, HERE, TOKEN, serve

OPEN = {
    *(("GET", "/login"), ("POST", "/login"), ("GET", "/healthz")),
    *(("GET", "/first"), ("POST", "/first")),
}
YARD, GATE = event(1, why="Left arm raised"), over(event(2, "north/gate", why="an arm raised"))
FAR = over(event(3, "south/yard", why="left arm raised"))


@pytest.fixture
def shelf(dsn: str) -> Iterator[EventReader]:
    asyncio.run(_fill(dsn))
    made = EventReader(dsn)
    yield made
    made.close()


async def _fill(dsn: str) -> None:
    async with connect(dsn) as events:
        await events.migrate()
        await events.write([change("new", YARD), change("end", GATE), change("end", FAR)])


@pytest.fixture
def app(shelf: EventReader) -> FastAPI:
    return app_of(shelf)


def app_of(shelf: EventReader) -> FastAPI:
    return create_app(
        PageContext(FleetSettings(), shelf, LiveStatus(), shelf.explanation, shelf.mark), TOKEN
    )


@pytest.fixture
def client(app: FastAPI) -> TestClient:
    return TestClient(app, base_url=HERE, headers=BEARER, follow_redirects=False)


def ids(client: TestClient, **query: str | float) -> list[str]:
    answer = client.get("/api/events", params=query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["events"]]


def test_events_are_listed_by_site_and_camera(client: TestClient) -> None:
    assert ids(client) == [FAR.id, GATE.id, YARD.id]
    assert ids(client, camera="north/") == [GATE.id, YARD.id]
    assert ids(client, camera="south/yard") == [FAR.id]
    assert ids(client, camera="yard") == []
    assert ids(client, open="true") == [YARD.id]
    assert ids(client, since=GATE.start_time, limit=1) == [FAR.id]
    answer = client.get("/api/events", params={"limit": 2}).json()
    assert ids(client, before=answer["next"]) == [YARD.id]
    assert client.get("/api/events", params={"before": "nobody"}).status_code == 404


def test_events_are_searched_as_those_of_a_site(client: TestClient) -> None:
    assert ids(client, zone="gate") == [FAR.id, GATE.id, YARD.id]
    assert ids(client, zone="gat") == []
    assert ids(client, words="ARM south") == [FAR.id]
    assert ids(client, words="arm nothing") == []
    assert ids(client, words="north/gate") == [GATE.id]
    assert ids(client, min_score=YARD.top_score) == [FAR.id, GATE.id, YARD.id]
    assert ids(client, min_score=YARD.top_score + 0.1) == []
    times = YARD.top_score / YARD.threshold
    assert ids(client, min_times=times - 0.01, limit=2) == [FAR.id, GATE.id]
    assert ids(client, min_times=times + 0.01) == []
    client.put(f"/api/events/{GATE.id}/review")
    client.put(f"/api/events/{FAR.id}/mark", json={"mark": "normal"})
    assert ids(client, review="to_review") == [YARD.id]
    assert ids(client, review="reviewed") == [FAR.id, GATE.id]
    assert ids(client, review="reviewed", limit=1, before=FAR.id) == [GATE.id]
    assert ids(client, review="normal") == [FAR.id]
    assert ids(client, review="right") == []
    assert client.get("/api/events").json()["to_review"] == 1


def test_the_fleet_tells_its_cameras_and_what_is_stored(client: TestClient) -> None:
    site = client.get("/api/site").json()
    assert (site["name"], site["cameras"]) == ("fleet", ["north/gate", "north/yard", "south/yard"])
    stored = client.get("/api/stored").json()
    assert stored["kept"][0]["count"] == 3
    assert client.get("/api/cameras").json() == []
    assert client.get("/readyz").status_code == 200
    assert "stepvad_uptime_seconds" in client.get("/metrics").text


def test_an_event_is_shown_marked_and_deleted(client: TestClient) -> None:
    assert client.get(f"/api/events/{GATE.id}").json()["camera"] == "north/gate"
    assert client.get("/api/events/nobody").status_code == 404
    mark = client.put(f"/api/events/{GATE.id}/mark", json={"mark": "normal"})
    assert mark.json()["mark"] == "normal"
    client.put(f"/api/events/{GATE.id}/mark", json={"mark": None})
    assert client.get(f"/api/events/{GATE.id}").json()["mark"] is None
    missing = client.get(f"/api/events/{GATE.id}/explanation")
    assert missing.status_code == 404
    assert "a fleet keeps no poses" in missing.json()["detail"]
    assert client.delete(f"/api/events/{YARD.id}").status_code == 409
    assert client.delete(f"/api/events/{GATE.id}").status_code == 204
    answer = client.delete("/api/events", params={"camera": "south/"})
    assert answer.json() == {"events": 1, "poses": 0, "kept_open": 0}
    assert ids(client) == [YARD.id]


def test_no_route_answers_without_the_token(app: FastAPI) -> None:
    stranger = TestClient(app, base_url=HERE, follow_redirects=False)
    asked = 0
    for route in app.routes:
        if isinstance(route, WebSocketRoute):
            with (
                pytest.raises(WebSocketDisconnect),
                stranger.websocket_connect(HERE.replace("http", "ws") + route.path),
            ):
                pass
            continue
        assert isinstance(route, Route)
        for method in route.methods or ():
            if (method, route.path) in OPEN:
                continue
            answer = stranger.request(method, route.path.replace("{", "").replace("}", ""))
            assert answer.status_code in (401, 303), (method, route.path)
            asked += 1
    assert asked > 15


def test_a_page_that_may_only_read_says_that_it_may_not_delete(
    shelf: EventReader, dsn: str, postgres: PostgresServer
) -> None:
    async def grant() -> None:
        async with connect(dsn) as events:
            await _role(events)
            await events.migrate()

    asyncio.run(grant())
    reader = EventReader(dsn.replace("//admin@", "//stepvad_reader@"))
    try:
        client = TestClient(app_of(reader), base_url=HERE, headers=BEARER)
        assert ids(client)
        assert client.put(f"/api/events/{GATE.id}/mark", json={"mark": "normal"}).status_code == 200
        refused = client.delete(f"/api/events/{GATE.id}")
        assert (refused.status_code, refused.json()["detail"]) == (403, "this page may not do that")
    finally:
        reader.close()


async def _role(events: FleetEvents) -> None:
    words = "SELECT FROM pg_roles WHERE rolname = 'stepvad_reader'"
    async with events._connection() as connection:
        await connection.execute(
            f"DO $$BEGIN IF NOT EXISTS ({words}) THEN CREATE ROLE stepvad_reader LOGIN; "
            "END IF; END$$"
        )


def test_a_database_that_is_away_is_said_to_be(client: TestClient) -> None:
    away = EventReader(f"postgresql://admin@127.0.0.1:{free_port()}/postgres")
    try:
        client = TestClient(app_of(away), base_url=HERE, headers=BEARER)
        assert client.get("/api/events").status_code == 503
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200
    finally:
        away.close()


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"events\.dsn"):
        EventReader("mysql://a@b/c")


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    server = serve(app, "127.0.0.1", 0)
    yield server.url
    server.stop()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_the_events_of_a_fleet_and_no_wall(url: str, blank: Page) -> None:
    log_in(blank, url, TOKEN)
    rows, camera = blank.locator("#list li"), blank.locator("#filters [name=camera]")
    expect(rows).to_have_count(3)
    expect(camera.locator("option")).to_have_count(6)
    expect(blank.locator("#cameras")).to_be_hidden()
    expect(blank.locator("#stored")).to_contain_text("events: 3")
    for words in ("Beside calibration", "on disk", "Cameras"):
        assert words not in blank.locator("body").inner_text()
    blank.locator("#filters summary").click()
    camera.select_option("north/")
    expect(rows).to_have_count(2)


@pytest.mark.slow
def test_the_page_is_served_with_a_token_from_a_file(dsn: str, tmp_path: Path) -> None:
    asyncio.run(_fill(dsn))
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    port = free_port()
    settings = tmp_path / "fleet.toml"
    settings.write_text(f'[events]\ndsn = "env:DSN"\n[web]\nport = {port}\ntoken = "file:token"\n')
    with Role("events", settings, "--serve", DSN=dsn) as role:
        wait_until(lambda: "the page is at" in role.log.read_text() or role.process is None)
        address = f"http://127.0.0.1:{port}/api/events"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address)
        asked = urllib.request.Request(address, headers=BEARER)
        with urllib.request.urlopen(asked) as answer:
            assert len(json.load(answer)["events"]) == 3
        assert role.process is not None
        role.process.send_signal(signal.SIGINT)
        assert role.process.wait(20) == 0, role.log.read_text()
