"""The guard of all routes: every route against every role, hosts, origins and bodies."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from stepvad.errors import ConfigError, DataError
from stepvad.site.accounts import Accounts
from stepvad.site.settings.page import NotifySettings
from stepvad.site.settings.sections import Sinks
from stepvad.site.status import LearningView
from stepvad.web import guard
from stepvad.web.guard import (
    MAX_BODY,
    MOST_AT_ONCE,
    MOST_EACH,
    PAGES,
    Rules,
    Turns,
    keys_of,
)
from stepvad.web.identity import Token
from tests.video.servers import SLOWER
from tests.web.sites import (
    BEARER,
    HERE,
    PEOPLE,
    TOKEN,
    Site,
    browser_of,
    happen,
    serve,
    site,
    visitor,
    with_people,
)

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
    ("GET", "/api/cameras/{name}/moment"): LOOK,
    ("GET", "/api/events/{id}/scene"): LOOK,
    ("GET", "/api/timelines"): LOOK,
    ("GET", "/api/stored"): LOOK,
    ("GET", "/api/sites"): LOOK,
    ("GET", "/api/sinks"): LOOK,
    ("GET", "/api/undelivered"): LOOK,
    ("GET", "/api/events"): LOOK,
    ("GET", "/api/events/{id}"): LOOK,
    ("GET", "/api/events/{id}/explanation"): LOOK,
    ("WEBSOCKET", "/ws/live"): LOOK,
    ("PUT", "/api/events/{id}/mark"): JUDGE,
    ("GET", "/api/events/{id}/mark-effect"): JUDGE,
    ("GET", "/api/exceptions"): LOOK,
    ("DELETE", "/api/exceptions/{id}"): JUDGE,
    ("PUT", "/api/events/{id}/review"): JUDGE,
    ("DELETE", "/api/events/{id}"): ADMINISTER,
    ("DELETE", "/api/events"): ADMINISTER,
    ("POST", "/api/undelivered/resend"): ADMINISTER,
    ("GET", "/settings"): ADMINISTER,
    ("GET", "/api/settings"): ADMINISTER,
    ("PUT", "/api/settings"): ADMINISTER,
    ("PATCH", "/api/settings"): ADMINISTER,
    ("POST", "/api/settings/effect"): ADMINISTER,
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
def with_users(mill: Site, tmp_path: Path) -> Iterator[FastAPI]:
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


def test_the_table_has_every_route(with_users: FastAPI) -> None:
    assert {key for route in with_users.routes for key in keys_of(route)} == {*MAY}


@pytest.mark.ci
@pytest.mark.parametrize("who", [*ANYONE, "token"])
def test_every_route_asks_for_its_role(with_users: FastAPI, mill: Site, who: str) -> None:
    client = visitor(with_users) if who in ("anonymous", "token") else browser_of(with_users, who)
    client.headers.update(BEARER if who == "token" else {})
    for number, (key, may) in enumerate(MAY.items()):
        event = happen(mill, number + 1)
        status = answer(client, key, event.id)
        if who in may or who == "token":
            wrong_form = key in (("POST", "/login"), ("POST", "/password"))
            refused = {403, 1008} if wrong_form else {401, 403, 1008}
            assert status not in refused, (who, key, status)
        elif who == "anonymous":
            is_page = key[1] in PAGES and key[0] == "GET"
            assert status == {"WEBSOCKET": 1008}.get(key[0], 303 if is_page else 401), (who, key)
        else:
            assert status == (1008 if key[0] == "WEBSOCKET" else 403), (who, key, status)


def test_what_is_refused_is_not_done(with_users: FastAPI, mill: Site) -> None:
    one = happen(mill, 1)
    looker = browser_of(with_users, "lena")
    asked = looker.put(f"/api/events/{one.id}/mark", json={"mark": "normal"})
    assert asked.status_code == 403
    assert asked.text == "You may look at this site. This is for those who may judge its events.\n"
    judge = browser_of(with_users, "jan")
    assert judge.delete(f"/api/events/{one.id}").status_code == 403
    assert judge.delete("/api/events?camera=yard").status_code == 403
    assert mill.store.event(one.id) is not None
    assert mill.store.marked() == {}
    assert judge.put(f"/api/events/{one.id}/mark", json={"mark": "normal"}).status_code == 200
    assert {*mill.store.marked()} == {one.id}


def test_unknown_paths_and_methods_need_the_highest_role(with_users: FastAPI) -> None:
    for path, method in (("/nothing", "GET"), ("/api/site", "POST"), ("/api/events/", "GET")):
        assert visitor(with_users).request(method, path).status_code == 401
        assert browser_of(with_users, "jan").request(method, path).status_code == 403
        assert browser_of(with_users, "ada").request(method, path).status_code in (404, 405, 307)


def test_a_route_without_a_rule_makes_no_app(with_users: FastAPI) -> None:
    @with_users.get("/api/secret")
    def secret() -> str:
        return "everything"

    with pytest.raises(LookupError, match=r"no rule for .*'GET', '/api/secret'"):
        Rules(with_users.routes)
    # and one that comes later is for administrators alone
    assert browser_of(with_users, "jan").get("/api/secret").status_code == 403


def test_the_page_is_told_who_it_is_for(with_users: FastAPI) -> None:
    for name, role in (("lena", "look"), ("jan", "judge"), ("ada", "administer")):
        told = browser_of(with_users, name).get("/api/me").json()
        assert told == {"name": name, "role": role, "known_by": "session"}
    told = visitor(with_users).get("/api/me", headers=BEARER).json()
    assert told == {"name": "token", "role": "administer", "known_by": "token"}


OPEN = {
    *(("GET", "/login"), ("POST", "/login"), ("GET", "/healthz")),
    *(("GET", "/first"), ("POST", "/first")),  # which ask for the key of a link
}


def every_route(mill: Site) -> Iterator[tuple[str, str]]:
    """Method and path of all that the app answers to."""
    for route in mill.app().routes:
        if isinstance(route, WebSocketRoute):
            yield "WEBSOCKET", route.path
        else:
            assert isinstance(route, Route), f"nobody knows how to ask {route}"
            for method in sorted(route.methods or ()):
                yield method, re.sub(r"{\w+}", "yard", route.path)


def log_in(client: TestClient, token: str = TOKEN) -> int:
    return client.post("/login", data={"token": token}, headers={"Origin": HERE}).status_code


def cookie_of(client: TestClient) -> str:
    """What a logged-in browser sends."""
    name = Token(TOKEN).cookie_name
    return f"{name}={client.cookies[name]}"


def test_no_route_answers_without_the_token(mill: Site, stranger: TestClient) -> None:
    routes = {*every_route(mill)}
    assert {("GET", "/api/events"), ("GET", "/metrics"), ("GET", "/openapi.json")} <= routes
    assert ("WEBSOCKET", "/ws/live") in routes
    for method, path in routes - OPEN:
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Cookie": f"{Token(TOKEN).cookie_name}={TOKEN}"},
        ):
            if method == "WEBSOCKET":
                with (
                    pytest.raises(WebSocketDisconnect),
                    stranger.websocket_connect(THERE + path, headers=headers),
                ):
                    pass
                continue
            answer = stranger.request(method, path, headers=headers)
            if method in ("GET", "HEAD") and path in PAGES:
                assert (answer.status_code, answer.headers["location"]) == (303, "/login")
            else:
                assert answer.status_code == 401, (method, path)
            assert len(answer.content) < 100


def test_paths_that_are_not_there_need_the_token_as_well(
    stranger: TestClient, client: TestClient
) -> None:
    assert stranger.get("/nothing").status_code == 401
    assert client.get("/nothing").status_code == 404
    for path in ("/login/", "/login/../api/events", "/LOGIN", "/healthz/x"):
        assert stranger.get(path).status_code == 401, path


def test_no_answer_has_the_path_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths stand in the words of whatever fails, and in the settings."""
    secret = "file:/home/mill/keys/mail.secret"
    with site(tmp_path) as plain, closing(Accounts(tmp_path / "accounts.db")) as accounts:
        people = NotifySettings(name="guards", to=["browsers", secret])
        settings = plain.settings.model_copy(update={"sinks": Sinks(notify=[people])})
        mill = replace(plain, settings=settings)
        path = tmp_path / "model.safetensors"
        words = f"{path}: expected a model, got none ('{path}')"
        monkeypatch.setattr(Site, "explain", Mock(side_effect=DataError(words)))
        app = mill.app(accounts=with_people(accounts))
        # everything that can say why it fails
        one = happen(mill, 1)
        mill.status.state("yard", "failed", words, 0.0)
        mill.status.sink("mqtt", 1, 1, words)
        mill.status.learning(LearningView(words="", hours=0.0, people=0, problem=words))
        (message,) = mill.store.outbox.pending("mqtt", 1)
        mill.store.outbox.refused(message, words)
        got = {}
        for who in PEOPLE:
            client = browser_of(app, who)
            for method, route in MAY:
                if method == "GET":
                    asked = route.replace("{id}", one.id).replace("{name}", "yard")
                    got[who, route] = client.get(asked, params={"at": 1}).text
            with client.websocket_connect(f"{THERE}/ws/live") as socket:
                got[who, "wall"] = str(socket.receive_json())
    told = ("/api/cameras", "/api/sinks", "/api/undelivered", "/api/learning", "wall")
    for place in (*told, "/api/events/{id}/explanation"):
        assert "model.safetensors: expected a model, got none" in got["lena", place], place
    assert "file:mail.secret" in got["lena", "/api/notifications"]
    for at, text in got.items():
        assert not re.search(rf"{tmp_path}|/home/|/tmp/", text), at


def test_a_browser_logs_in_and_out_and_its_cookie_is_worthless_then(stranger: TestClient) -> None:
    assert log_in(stranger) == 303
    cookie = {"Cookie": cookie_of(stranger)}
    assert stranger.get("/api/site").status_code == 200
    assert stranger.post("/logout", headers={"Origin": HERE}).status_code == 303
    assert stranger.get("/api/site").status_code == 401
    assert stranger.get("/api/site", headers=cookie).status_code == 401


def hear(socket: WebSocketTestSession, messages: int) -> None:
    for _ in range(messages):
        socket.receive_json()


def test_the_wall_closes_when_its_browser_logs_out(stranger: TestClient) -> None:
    log_in(stranger)
    origin = {"Origin": HERE}
    with stranger.websocket_connect(THERE + "/ws/live", headers=origin) as socket:
        assert "cameras" in socket.receive_json()
        assert stranger.post("/logout", headers=origin).status_code == 303
        with pytest.raises(WebSocketDisconnect) as closed:
            hear(socket, 10)
        assert closed.value.code == 1008


def test_the_cookie_is_not_the_token_and_is_kept_from_scripts(stranger: TestClient) -> None:
    answer = stranger.post("/login", data={"token": TOKEN}, headers={"Origin": HERE})
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert TOKEN not in cookie


def test_a_wrong_token_opens_nothing(stranger: TestClient) -> None:
    assert log_in(stranger, "wrong" * 10) == 401
    assert log_in(stranger, "") == 401
    assert log_in(stranger, "ümläut" * 10) == 401
    assert "set-cookie" not in stranger.get("/login").headers
    assert stranger.get("/api/site").status_code == 401


def test_the_login_form_needs_nothing_else(stranger: TestClient) -> None:
    page = stranger.get("/login")
    assert page.status_code == 200
    assert "src=" not in page.text
    assert "href=" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8080", "", "a b", "[::1"])
def test_names_of_others_are_refused_to_a_browser(stranger: TestClient, host: str) -> None:
    assert log_in(stranger) == 303
    headers = {"Host": host, "Cookie": cookie_of(stranger)}
    assert stranger.get("/api/site", headers=headers).status_code == 400
    assert stranger.get("/login", headers={"Host": host}).status_code == 400
    assert stranger.post("/login", data={"token": TOKEN}, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "192.168.3.4:80", "[::1]:8080"])
def test_the_own_name_and_addresses_are_answered(stranger: TestClient, host: str) -> None:
    assert log_in(stranger) == 303
    headers = {"Host": host, "Cookie": cookie_of(stranger)}
    assert stranger.get("/api/site", headers=headers).status_code == 200


def test_programs_with_the_token_may_use_any_name(client: TestClient) -> None:
    assert client.get("/metrics", headers={"Host": "stepvad:8080"}).status_code == 200
    assert client.get("/metrics", headers={"Host": "[::1"}).status_code == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", ""])
def test_other_pages_change_nothing(mill: Site, client: TestClient, origin: str) -> None:
    one = happen(mill, 1)
    for headers in ({"Origin": origin}, {"Origin": origin, **BEARER}):
        answer = client.put(f"/api/events/{one.id}/mark", json={"mark": "normal"}, headers=headers)
        assert answer.status_code == 403
        assert client.delete(f"/api/events/{one.id}", headers=headers).status_code == 403
    assert mill.store.marked() == {}
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect(THERE + "/ws/live", headers={"Origin": origin}),
    ):
        pass


def test_a_cookie_changes_nothing_without_an_origin(mill: Site, stranger: TestClient) -> None:
    one = happen(mill, 1)
    log_in(stranger)
    mark = f"/api/events/{one.id}/mark"
    assert stranger.put(mark, json={"mark": "normal"}).status_code == 403
    with pytest.raises(WebSocketDisconnect), stranger.websocket_connect(THERE + "/ws/live"):
        pass
    assert stranger.put(mark, json={"mark": "normal"}, headers={"Origin": HERE}).status_code == 200
    with stranger.websocket_connect(THERE + "/ws/live", headers={"Origin": HERE}) as socket:
        assert "cameras" in socket.receive_json()
    with stranger.websocket_connect(THERE + "/ws/live", headers={**BEARER}) as socket:
        assert "cameras" in socket.receive_json()


def test_every_answer_has_the_headers_that_protect(
    client: TestClient, stranger: TestClient
) -> None:
    for answer in (client.get("/"), client.get("/nothing"), stranger.get("/api/site")):
        headers = answer.headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == "no-store"


def test_large_bodies_are_refused(mill: Site, client: TestClient) -> None:
    one = happen(mill, 1)
    path = f"/api/events/{one.id}/mark"
    assert client.put(path, content=b"x" * (MAX_BODY + 1)).status_code == 413
    assert client.put(path, content=b"x" * MAX_BODY).status_code == 422
    pieces = (b"x" * 1024 for _ in range(10_000))
    assert client.put(path, content=pieces).status_code == 411


def test_large_bodies_are_refused_at_the_open_form_as_well(stranger: TestClient) -> None:
    assert stranger.post("/login", content=b"token=" + b"x" * MAX_BODY).status_code == 413


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"mark": 3}', b"\xff\xfe", b'{"mark": "normal", "x": 1}']
)
def test_malformed_bodies_are_refused(mill: Site, client: TestClient, body: bytes) -> None:
    one = happen(mill, 1)
    kind = {"Content-Type": "application/json"}
    answer = client.put(f"/api/events/{one.id}/mark", content=body, headers=kind)
    assert 400 <= answer.status_code < 500
    assert mill.store.marked() == {}


def test_a_login_with_too_many_fields_is_refused(stranger: TestClient) -> None:
    assert 400 <= stranger.post("/login", content=b"a=1&" * 1000).status_code < 500


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected at least 16 characters, got 5"):
        Token("short")


def test_two_sites_of_one_host_have_cookies_of_their_own() -> None:
    assert Token("a" * 20).cookie_name != Token("b" * 20).cookie_name


def test_few_requests_are_in_progress_of_a_user_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WAIT_S", 0.05)

    async def ask() -> None:
        turns = Turns()
        own = [await turns.take("lena") for _ in range(MOST_EACH + 1)]
        assert own[-1] is None
        others = [await turns.take(f"viewer{n}") for n in range(MOST_AT_ONCE)]
        ended = [one for one in (*own, *others) if one is not None]
        assert len(ended) == MOST_AT_ONCE
        for end in ended * 2:  # twice is once
            end()
        assert all([await turns.take(f"viewer{n}") for n in range(MOST_AT_ONCE)])
        assert await turns.take("ada") is None

    asyncio.run(ask())


def test_health_is_told_while_300_clients_pipeline_with_the_token(mill: Site) -> None:
    for n in range(30):
        happen(mill, n)
    server = serve(mill.app(), "127.0.0.1", 0)
    key = f"Authorization: Bearer {TOKEN}"
    asked = f"GET /api/events?limit=300 HTTP/1.1\r\nHost: 127.0.0.1\r\n{key}\r\n\r\n".encode()
    with ExitStack() as clients:
        for _ in range(300):
            one = clients.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(20 * asked)
        for path in ("healthz", "readyz", "api/site"):
            began = time.monotonic()
            # others than checks come from another address
            at = "127.0.0.2" if path == "api/site" else None
            with httpx.Client(transport=httpx.HTTPTransport(local_address=at)) as client:
                answer = client.get(f"{server.url}{path}", headers=BEARER, timeout=60)
            assert answer.status_code in (200, 503), path  # no camera is online here
            assert time.monotonic() - began < 5 * SLOWER, path
    server.stop()
