"""Every route against every role: what is not in the table here fails, and so does a new route."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from stepvad.accounts.accounts import Accounts
from stepvad.web.roles import Rules, keys_of
from tests.web.people import browser_of, visitor, with_people
from tests.web.sites import BEARER, HERE, Site, happen

THERE = HERE.replace("http", "ws")
ANYONE = ("anonymous", "lena", "jan", "ada")
LOOK, JUDGE, ADMINISTER = ANYONE[1:], ANYONE[2:], ANYONE[3:]
MAY: dict[tuple[str, str], tuple[str, ...]] = {
    ("GET", "/login"): ANYONE,
    ("POST", "/login"): ANYONE,
    ("GET", "/first"): ANYONE,
    ("POST", "/first"): ANYONE,
    ("GET", "/healthz"): ANYONE,
    ("GET", "/"): LOOK,
    ("GET", "/static/{name}"): LOOK,
    ("GET", "/password"): LOOK,
    ("POST", "/password"): LOOK,
    ("GET", "/readyz"): LOOK,
    ("GET", "/metrics"): LOOK,
    ("GET", "/openapi.json"): LOOK,
    ("GET", "/api/me"): LOOK,
    ("GET", "/api/site"): LOOK,
    ("GET", "/api/cameras"): LOOK,
    ("GET", "/api/cameras/{name}"): LOOK,
    ("GET", "/api/cameras/{name}/timeline"): LOOK,
    ("GET", "/api/cameras/{name}/moment"): LOOK,
    ("GET", "/api/cameras/{name}/place"): LOOK,
    ("DELETE", "/api/cameras/{name}/place"): ADMINISTER,
    ("GET", "/api/events/{id}/scene"): LOOK,
    ("GET", "/api/timelines"): LOOK,
    ("GET", "/api/stored"): LOOK,
    ("GET", "/api/sinks"): LOOK,
    ("GET", "/api/undelivered"): LOOK,
    ("GET", "/api/events"): LOOK,
    ("GET", "/api/events/{id}"): LOOK,
    ("GET", "/api/events/{id}/explanation"): LOOK,
    ("WEBSOCKET", "/ws/live"): LOOK,
    ("PUT", "/api/events/{id}/mark"): JUDGE,
    ("PUT", "/api/events/{id}/review"): JUDGE,
    ("DELETE", "/api/events/{id}"): ADMINISTER,
    ("DELETE", "/api/events"): ADMINISTER,
    ("POST", "/api/undelivered/resend"): ADMINISTER,
    ("GET", "/settings"): ADMINISTER,
    ("GET", "/api/settings"): ADMINISTER,
    ("PUT", "/api/settings"): ADMINISTER,
    ("PATCH", "/api/settings"): ADMINISTER,
    ("POST", "/api/settings/check"): ADMINISTER,
    ("POST", "/api/settings/try-camera"): ADMINISTER,
    ("POST", "/api/settings/test-sink"): ADMINISTER,
    ("GET", "/api/learning"): LOOK,
    ("GET", "/api/precision"): LOOK,
    ("POST", "/api/learning/fit"): ADMINISTER,
    ("POST", "/api/learning/use"): ADMINISTER,
    ("GET", "/notifications"): LOOK,
    ("GET", "/sw.js"): LOOK,
    ("GET", "/api/notifications"): LOOK,
    ("PUT", "/api/notifications/subscriptions"): LOOK,
    ("DELETE", "/api/notifications/subscriptions"): LOOK,
    ("POST", "/api/notifications/test"): ADMINISTER,
    ("GET", "/users"): ADMINISTER,
    ("GET", "/api/users"): ADMINISTER,
    ("POST", "/api/users"): ADMINISTER,
    ("PUT", "/api/users/{name}/role"): ADMINISTER,
    ("POST", "/api/users/{name}/link"): ADMINISTER,
    ("DELETE", "/api/users/{name}"): ADMINISTER,
    ("GET", "/api/audit"): ADMINISTER,
    ("POST", "/logout"): LOOK,  # last: it ends the session
}
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("PUT", "/api/events/{id}/mark"): {"mark": "normal"},
    ("POST", "/api/undelivered/resend"): {},
    ("POST", "/api/users"): {"name": "zoe", "role": "look"},
    ("PUT", "/api/users/{name}/role"): {"role": "look"},
}


@pytest.fixture
def app(mill: Site, tmp_path: Path) -> Iterator[FastAPI]:
    accounts = with_people(Accounts(tmp_path / "accounts.db"))
    yield mill.app(accounts=accounts)
    accounts.close()


def answer(client: TestClient, key: tuple[str, str], event: str) -> int:
    """The status that a client gets at a route; 1008 from a closed websocket."""
    method, path = key
    path = path.replace("{id}", event).replace("{name}", "yard")
    if method == "WEBSOCKET":
        try:
            with client.websocket_connect(f"{THERE}{path}") as socket:
                assert "cameras" in socket.receive_json()
        except WebSocketDisconnect as closed:
            return closed.code
        return 200
    query = "?camera=yard" if key == ("DELETE", "/api/events") else ""
    asked = client.request(method, path + query, json=BODIES.get(key))
    if key == ("POST", "/password"):  # whoever may change it gives the old one
        return 200 if "not your password" in asked.text else asked.status_code
    return asked.status_code


def test_the_table_has_every_route(app: FastAPI) -> None:
    assert {key for route in app.routes for key in keys_of(route)} == {*MAY}


@pytest.mark.parametrize("who", [*ANYONE, "token"])
def test_every_route_asks_for_its_role(app: FastAPI, mill: Site, who: str) -> None:
    client = visitor(app) if who in ("anonymous", "token") else browser_of(app, who)
    client.headers.update(BEARER if who == "token" else {})
    for number, (key, may) in enumerate(MAY.items()):
        event = happen(mill, number + 1)
        status = answer(client, key, event.id)
        if who in may or who == "token":
            wrong_form = key in (("POST", "/login"), ("POST", "/password"))
            refused = {403, 1008} if wrong_form else {401, 403, 1008}
            assert status not in refused, (who, key, status)
        elif who == "anonymous":
            is_page = key[1] in ("/", "/settings", "/users", "/password") and key[0] == "GET"
            assert status == {"WEBSOCKET": 1008}.get(key[0], 303 if is_page else 401), (who, key)
        else:
            assert status == (1008 if key[0] == "WEBSOCKET" else 403), (who, key, status)


def test_what_is_refused_is_not_done(app: FastAPI, mill: Site) -> None:
    one = happen(mill, 1)
    looker = browser_of(app, "lena")
    asked = looker.put(f"/api/events/{one.id}/mark", json={"mark": "normal"})
    assert (asked.status_code, asked.text) == (403, "expected the role judge, got look\n")
    judge = browser_of(app, "jan")
    assert judge.delete(f"/api/events/{one.id}").status_code == 403
    assert judge.delete("/api/events?camera=yard").status_code == 403
    assert mill.store.event(one.id) is not None
    assert mill.store.marked() == {}
    assert judge.put(f"/api/events/{one.id}/mark", json={"mark": "normal"}).status_code == 200
    assert {*mill.store.marked()} == {one.id}


def test_unknown_paths_and_methods_need_the_highest_role(app: FastAPI) -> None:
    for path, method in (("/nothing", "GET"), ("/api/site", "POST"), ("/api/events/", "GET")):
        assert visitor(app).request(method, path).status_code == 401
        assert browser_of(app, "jan").request(method, path).status_code == 403
        assert browser_of(app, "ada").request(method, path).status_code in (404, 405, 307)


def test_a_route_without_a_rule_makes_no_app(app: FastAPI) -> None:
    @app.get("/api/secret")
    def secret() -> str:
        return "everything"

    with pytest.raises(LookupError, match=r"no rule for .*'GET', '/api/secret'"):
        Rules(app.routes)
    # and one that comes later is for administrators alone
    assert browser_of(app, "jan").get("/api/secret").status_code == 403


def test_the_page_is_told_who_it_is_for(app: FastAPI) -> None:
    for name, role in (("lena", "look"), ("jan", "judge"), ("ada", "administer")):
        told = browser_of(app, name).get("/api/me").json()
        assert told == {"name": name, "role": role, "known_by": "session"}
    told = visitor(app).get("/api/me", headers=BEARER).json()
    assert told == {"name": "token", "role": "administer", "known_by": "token"}
