"""Behind a proxy: its name, its word on who asks, and nobody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from stepvad.settings.file import Web
from stepvad.web.attempts import MOST_WRONG_EACH
from tests.web.sites import TOKEN, Site, site

NAME = "cameras.example.org"
PUBLIC = f"https://{NAME}"
PROXY = "10.0.0.1"
BEHIND = {"Host": NAME, "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Site]:
    """A site behind a proxy."""
    with site(tmp_path, web=Web(public_url=PUBLIC, trusted_proxies=[PROXY])) as made:
        yield made


def at(mill: Site, address: str = PROXY, **headers: str) -> TestClient:
    """Somebody at an address, or behind the proxy there."""
    return TestClient(
        mill.app(),
        base_url="http://127.0.0.1:8080",
        headers=headers,
        follow_redirects=False,
        client=(address, 50_000),
    )


def log_in(client: TestClient, origin: str = PUBLIC, **more: Any) -> Any:
    return client.post("/login", data={"token": TOKEN}, headers={"Origin": origin}, **more)


def test_a_browser_logs_in_through_the_proxy(mill: Site) -> None:
    client = at(mill, **BEHIND)
    answer = log_in(client)
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "Secure" in cookie
    held = {"Cookie": cookie.partition(";")[0]}
    assert client.get("/api/site", headers=held).status_code == 200
    with client.websocket_connect("/ws/live", headers=held | {"Origin": PUBLIC}) as socket:
        assert "cameras" in socket.receive_json()
    out = client.post("/logout", headers=held | {"Origin": PUBLIC})
    assert out.status_code == 303
    assert client.get("/api/site", headers=held).status_code == 401


def test_a_proxy_may_also_use_its_own_name_for_the_page(mill: Site) -> None:
    client = at(mill, **(BEHIND | {"Host": "127.0.0.1:8080"}))
    assert log_in(client).status_code == 303


@pytest.mark.parametrize("host", ["evil.example", f"{NAME}.evil.example", f"a.{NAME}"])
def test_other_names_are_still_refused(mill: Site, host: str) -> None:
    client = at(mill, **(BEHIND | {"Host": host}))
    assert client.get("/login").status_code == 400
    assert log_in(client).status_code == 400


@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"http://{NAME}:8443", f"https://{NAME}:444", "null"]
)
def test_other_origins_are_still_refused(mill: Site, origin: str) -> None:
    client = at(mill, **BEHIND)
    held = {"Cookie": log_in(client).headers["set-cookie"].partition(";")[0]}
    assert log_in(client, origin).status_code == 403
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("/ws/live", headers=held | {"Origin": origin}),
    ):
        pass


def test_headers_of_a_peer_that_is_no_proxy_are_ignored(mill: Site) -> None:
    client = at(mill, "192.0.2.9", **BEHIND)
    assert "Secure" not in log_in(client).headers["set-cookie"]
    client.cookies.clear()
    wrong = {"Authorization": "Bearer wrong"}
    said = [
        client.get("/api/site", headers=wrong | {"X-Forwarded-For": f"203.0.113.{n}"}).status_code
        for n in range(MOST_WRONG_EACH + 1)
    ]
    assert said == [401] * MOST_WRONG_EACH + [429]


def test_clients_behind_a_proxy_have_limits_of_their_own(mill: Site) -> None:
    client = at(mill, **BEHIND)
    wrong = {"Authorization": "Bearer wrong"}
    said = [client.get("/api/site", headers=wrong).status_code for _ in range(MOST_WRONG_EACH + 1)]
    assert said == [401] * MOST_WRONG_EACH + [429]
    elsewhere = wrong | {"X-Forwarded-For": "203.0.113.8"}
    assert client.get("/api/site", headers=elsewhere).status_code == 401
    # what a client writes itself stands before what the proxy adds
    forged = wrong | {"X-Forwarded-For": "198.51.100.1, 203.0.113.7"}
    assert client.get("/api/site", headers=forged).status_code == 429


def test_without_settings_nothing_forwarded_counts(tmp_path: Path) -> None:
    with site(tmp_path) as mill:
        client = at(mill, "127.0.0.1", **(BEHIND | {"Host": "127.0.0.1:8080"}))
        answer = log_in(client, "http://127.0.0.1:8080")
        assert "Secure" not in answer.headers["set-cookie"]
        assert log_in(client).status_code == 403
        assert at(mill, "127.0.0.1", **BEHIND).get("/login").status_code == 400
