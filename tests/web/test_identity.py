"""Who sends a request: sessions, wrong tokens, and the word of a proxy."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from stepvad.site.accounts import Accounts
from stepvad.site.settings.page import Web
from stepvad.web import app as app_module
from stepvad.web.identity import SESSION_S, TOKEN_OWNER, Owner, Sessions
from tests.disks import small_disk
from tests.web.sites import BEARER, HERE, TOKEN, Site, happen, site, with_people

SESSION_TOKEN = "a-token-of-this-test-0123456789"
NOW = 1_700_000_000.0


def sessions_of(accounts: Accounts, token: str = SESSION_TOKEN) -> Sessions:
    """The sessions of a process that serves the page."""
    return Sessions(token, accounts)


@pytest.fixture
def ended() -> Iterator[Accounts]:
    """Where log-outs are stored."""
    with closing(Accounts()) as made:
        yield made


def test_a_log_in_holds_until_it_is_ended(ended: Accounts) -> None:
    sessions = sessions_of(ended)
    first, second = sessions.start(), sessions.start()
    assert first != second
    assert sessions.owner(first)
    sessions.end(first)
    sessions.end("nobody")
    assert sessions.owner(first) is None
    assert sessions.owner(second)
    assert sessions.owner("") is None


def test_a_log_in_ends_by_time(ended: Accounts) -> None:
    now = NOW
    sessions = Sessions(SESSION_TOKEN, ended, clock=lambda: now)
    id = sessions.start()
    now += SESSION_S - 1
    assert sessions.owner(id)
    now += 1
    assert sessions.owner(id) is None


def test_every_process_with_the_token_knows_a_log_in_and_a_log_out(tmp_path: Path) -> None:
    anna = Owner("anna", "ab12")
    with (
        closing(Accounts(tmp_path / "accounts.db")) as accounts,
        closing(Accounts(tmp_path / "accounts.db")) as others,
    ):
        here, there = sessions_of(accounts), sessions_of(others)
        ids = here.start(anna), here.start()
        for known in (here, there):
            assert [known.owner(id) for id in ids] == [anna, TOKEN_OWNER]
        there.end(ids[0])
        # also one that starts later
        for known in (here, there, sessions_of(accounts)):
            assert [known.owner(id) for id in ids] == [None, TOKEN_OWNER]


def test_a_cookie_that_was_changed_or_made_with_another_token_opens_nothing(
    ended: Accounts,
) -> None:
    sessions = sessions_of(ended)
    id = sessions.start(Owner("anna", "ab12"))
    body, _, signature = id.partition(".")
    session = json.loads(base64.urlsafe_b64decode(body))
    forged = base64.urlsafe_b64encode(json.dumps(["token", *session[1:]]).encode()).decode()
    for other in (f"{forged}.{signature}", body, f"{body}.", f".{signature}", f"{id}0", "\udcff.a"):
        assert sessions.owner(other) is None
    assert sessions_of(ended, SESSION_TOKEN + "!").owner(id) is None
    assert sessions.owner(id) == Owner("anna", "ab12")


def test_log_outs_are_forgotten_with_the_time_of_their_log_in() -> None:
    now = NOW
    with closing(Accounts(wall=lambda: now)) as accounts:
        accounts.end_session("a", NOW + 10)
        now += 11
        assert accounts.has_ended("a")
        accounts.end_session("b", NOW + 20)
        assert not accounts.has_ended("a")
        assert accounts.has_ended("b")


def test_a_full_disk_keeps_nobody_out_and_ends_log_ins(caplog: pytest.LogCaptureFixture) -> None:
    with (
        small_disk(1) as disk,
        closing(Accounts(disk.path / "accounts.db")) as accounts,
        caplog.at_level(logging.WARNING),
    ):
        sessions = sessions_of(accounts)
        disk.fill()
        id = sessions.start()
        assert sessions.owner(id)
        sessions.end(id)
        assert sessions.owner(id) is None
    assert "a log-out will not survive a restart" in caplog.text


WRONG = {"Authorization": "Bearer wrong"}


def wrong_tokens(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [one.getMessage() for one in caplog.records if one.name == "stepvad.web.identity"]
    return [one.partition(" from ")[2] for one in said if "a wrong token" in one]


def test_wrong_tokens_delay_no_right_one_and_do_not_fill_the_log(
    mill: Site, stranger: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        assert stranger.get("/api/site", headers=WRONG).status_code == 401
        data = {"token": "my own password of another place"}
        assert stranger.post("/login", data=data, headers={"Origin": HERE}).status_code == 401
    assert stranger.get("/api/site", headers=BEARER).status_code == 200
    assert wrong_tokens(caplog) == ["testclient"]
    entries = stranger.get("/api/audit", headers=BEARER).json()
    assert [(one["user"], one["action"]) for one in entries] == [("token", "failed log-in")]


NAME = "cameras.example.org"
PUBLIC = f"https://{NAME}"
PROXY = "10.0.0.1"
BEHIND = {"Host": NAME, "X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.7"}


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[Site]:
    """A site behind a proxy."""
    with site(tmp_path, web=Web(public_url=PUBLIC, trusted_proxies=[PROXY])) as made:
        yield made


def at(proxied: Site, address: str = PROXY, **headers: str) -> TestClient:
    """Somebody at an address, or behind the proxy there."""
    return TestClient(
        proxied.app(),
        base_url="http://127.0.0.1:8080",
        headers=headers,
        follow_redirects=False,
        client=(address, 50_000),
    )


def log_in(client: TestClient, origin: str = PUBLIC, **more: Any) -> Any:
    return client.post("/login", data={"token": TOKEN}, headers={"Origin": origin}, **more)


def test_a_browser_logs_in_through_the_proxy(proxied: Site) -> None:
    client = at(proxied, **BEHIND)
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


def test_a_proxy_may_also_use_its_own_name_for_the_page(proxied: Site) -> None:
    client = at(proxied, **(BEHIND | {"Host": "127.0.0.1:8080"}))
    assert log_in(client).status_code == 303


@pytest.mark.parametrize("host", ["evil.example", f"{NAME}.evil.example", f"a.{NAME}"])
def test_other_names_are_still_refused(proxied: Site, host: str) -> None:
    client = at(proxied, **(BEHIND | {"Host": host}))
    assert client.get("/login").status_code == 400
    assert log_in(client).status_code == 400


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        f"http://{NAME}",
        f"http://{NAME}:8443",
        f"https://{NAME}:444",
        "null",
    ],
)
def test_other_origins_are_still_refused(proxied: Site, origin: str) -> None:
    client = at(proxied, **BEHIND)
    held = {"Cookie": log_in(client).headers["set-cookie"].partition(";")[0]}
    assert log_in(client, origin).status_code == 403
    with (
        pytest.raises(WebSocketDisconnect),
        client.websocket_connect("/ws/live", headers=held | {"Origin": origin}),
    ):
        pass


def test_headers_of_a_peer_that_is_no_proxy_are_ignored(
    proxied: Site, caplog: pytest.LogCaptureFixture
) -> None:
    client = at(proxied, "192.0.2.9", **BEHIND)
    assert "Secure" not in log_in(client).headers["set-cookie"]
    client.cookies.clear()
    client.get("/api/site", headers=WRONG)
    assert wrong_tokens(caplog) == ["192.0.2.9"]


def test_clients_behind_a_proxy_are_told_apart(
    proxied: Site, caplog: pytest.LogCaptureFixture
) -> None:
    client = at(proxied, **BEHIND)
    # what a client writes itself stands before what the proxy adds
    for sent in ("203.0.113.7", "203.0.113.8", "198.51.100.1, 203.0.113.7"):
        client.get("/api/site", headers=WRONG | {"X-Forwarded-For": sent})
    assert wrong_tokens(caplog) == ["203.0.113.7", "203.0.113.8"]


def test_without_settings_nothing_forwarded_counts(tmp_path: Path) -> None:
    with site(tmp_path) as proxied:
        client = at(proxied, "127.0.0.1", **(BEHIND | {"Host": "127.0.0.1:8080"}))
        answer = log_in(client, "http://127.0.0.1:8080")
        assert "Secure" not in answer.headers["set-cookie"]
        assert log_in(client).status_code == 403
        assert at(proxied, "127.0.0.1", **BEHIND).get("/login").status_code == 400


THERE = HERE.replace("http", "ws")


@contextmanager
def behind(directory: Path, **web: Any) -> Iterator[tuple[Site, Accounts]]:
    told = Web(**{"trusted_proxies": [PROXY], "user_header": "Remote-User"} | web)
    with (
        site(directory, web=told) as mill,
        closing(Accounts(directory / "accounts.db")) as accounts,
    ):
        yield mill, with_people(accounts)


def named_by(mill: Site, accounts: Accounts, address: str = PROXY, **headers: str) -> TestClient:
    """Somebody at an address, with headers."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return TestClient(
        mill.app(accounts=accounts),
        base_url=HERE,
        headers={"Origin": HERE} | named,
        follow_redirects=False,
        client=(address, 50_000),
    )


def me(client: TestClient) -> tuple[str, str] | int:
    answer = client.get("/api/me")
    if answer.status_code != 200:
        return answer.status_code
    told = answer.json()
    assert told["known_by"] == "proxy"
    return told["name"], told["role"]


def test_the_proxy_is_believed_and_strangers_are_not(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        assert me(named_by(*made, Remote_User="jan")) == ("jan", "judge")
        assert me(named_by(*made, "10.0.0.2", Remote_User="ada")) == 401
        assert me(named_by(*made, "::1", Remote_User="ada")) == 401
        assert me(named_by(*made, "::ffff:10.0.0.1", Remote_User="jan")) == ("jan", "judge")
        # the address that the proxy reports is the client's, and not what is trusted
        assert me(named_by(*made, "10.0.0.2", Remote_User="ada", X_Forwarded_For=PROXY)) == 401
        client = named_by(*made, Remote_User="jan", X_Forwarded_For="203.0.113.7")
        assert me(client) == ("jan", "judge")
        assert made[1].audit.entries()[0].address == "203.0.113.7"


@pytest.mark.parametrize("name", ["", "token", "Token", "a b", "ada, jan", "x" * 65, "ädä"])
def test_odd_names_are_nobody(tmp_path: Path, name: str) -> None:
    with behind(tmp_path) as made:
        client = named_by(*made)
        assert client.get("/api/me", headers={b"Remote-User": name.encode()}).status_code == 401


def test_two_names_are_nobody(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        two = [("Remote-User", "lena"), ("Remote-User", "ada")]
        assert named_by(*made).get("/api/me", headers=two).status_code == 401


def test_without_the_setting_the_header_means_nothing(tmp_path: Path) -> None:
    with behind(tmp_path, user_header=None) as made:
        assert me(named_by(*made, Remote_User="ada")) == 401


def test_an_account_here_decides_the_role_in_upper_or_lower_case(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        assert me(named_by(*made, Remote_User="ADA")) == ("ada", "administer")
        assert me(named_by(*made, Remote_User="eva")) == ("eva", "look")


def test_those_without_an_account_may_be_refused(tmp_path: Path) -> None:
    with behind(tmp_path, sso_role="none") as made:
        client = named_by(*made, Remote_User="eva")
        answer = client.get("/")
        assert (answer.status_code, answer.text) == (403, "you have no account here\n")
        assert me(named_by(*made, Remote_User="lena")) == ("lena", "look")


def test_the_word_of_a_proxy_is_no_word_of_another_page(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        one = happen(made[0], 1)
        client = named_by(*made, Remote_User="jan")
        mark, normal = f"/api/events/{one.id}/mark", {"mark": "normal"}
        elsewhere = {"Origin": "https://evil.example"}
        assert client.put(mark, json=normal, headers=elsewhere).status_code == 403
        del client.headers["Origin"]
        assert client.put(mark, json=normal).status_code == 403
        assert client.put(mark, json=normal, headers={"Origin": HERE}).status_code == 200


def test_a_wall_asks_the_proxy_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "PROXY_S", 1.5)
    with behind(tmp_path) as made:
        client = named_by(*made, Remote_User="lena")
        with client.websocket_connect(THERE + "/ws/live") as socket:
            assert "cameras" in socket.receive_json()
            with pytest.raises(WebSocketDisconnect) as closed:
                [socket.receive_json() for _ in range(10)]
        assert closed.value.code == 1012
        with (
            pytest.raises(WebSocketDisconnect),
            named_by(*made).websocket_connect(THERE + "/ws/live"),
        ):
            pass


def test_a_wall_closes_when_the_account_goes(tmp_path: Path) -> None:
    with behind(tmp_path, sso_role="none") as made:
        client = named_by(*made, Remote_User="lena")
        with client.websocket_connect(THERE + "/ws/live") as socket:
            assert "cameras" in socket.receive_json()
            made[1].remove("lena")
            with pytest.raises(WebSocketDisconnect) as closed:
                [socket.receive_json() for _ in range(10)]
        assert closed.value.code == 1008


def test_the_audit_log_names_whom_the_proxy_names(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        one = happen(made[0], 1)
        client = named_by(*made, Remote_User="eva")
        client.get(f"/api/events/{one.id}")
        client.get(f"/api/events/{one.id}")
        found = [(entry.user, entry.action, entry.subject) for entry in made[1].audit.entries()]
        assert found == [("eva", "looked at event", one.id), ("eva", "came through the proxy", "")]
