"""The word of a proxy on who asks is believed from the proxy, and from nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from stepvad.accounts.accounts import Accounts
from stepvad.settings.file import Web
from stepvad.web import app as app_module
from tests.web.people import with_people
from tests.web.sites import HERE, Site, happen, site

PROXY = "10.0.0.1"
THERE = HERE.replace("http", "ws")
GROUPS = {
    "group_header": "Remote-Groups",
    "judge_groups": ["guards"],
    "admin_groups": ["operations", "it"],
}


@contextmanager
def behind(directory: Path, **web: Any) -> Iterator[tuple[Site, Accounts]]:
    told = Web(**{"trusted_proxies": [PROXY], "user_header": "Remote-User"} | web)
    with (
        site(directory, web=told) as mill,
        closing(Accounts(directory / "accounts.db")) as accounts,
    ):
        yield mill, with_people(accounts)


def at(mill: Site, accounts: Accounts, address: str = PROXY, **headers: str) -> TestClient:
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
        assert me(at(*made, Remote_User="jan")) == ("jan", "judge")
        assert me(at(*made, "10.0.0.2", Remote_User="ada")) == 401
        assert me(at(*made, "::1", Remote_User="ada")) == 401
        assert me(at(*made, "::ffff:10.0.0.1", Remote_User="jan")) == ("jan", "judge")
        # the address that the proxy reports is the client's, and not what is trusted
        assert me(at(*made, "10.0.0.2", Remote_User="ada", X_Forwarded_For=PROXY)) == 401
        client = at(*made, Remote_User="jan", X_Forwarded_For="203.0.113.7")
        assert me(client) == ("jan", "judge")
        assert made[1].audit.entries()[0].address == "203.0.113.7"


@pytest.mark.parametrize("name", ["", "token", "Token", "a b", "ada, jan", "x" * 65, "ädä"])
def test_odd_names_are_nobody(tmp_path: Path, name: str) -> None:
    with behind(tmp_path) as made:
        client = at(*made)
        assert client.get("/api/me", headers={b"Remote-User": name.encode()}).status_code == 401


def test_two_names_are_nobody(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        two = [("Remote-User", "lena"), ("Remote-User", "ada")]
        assert at(*made).get("/api/me", headers=two).status_code == 401


def test_without_the_setting_the_header_means_nothing(tmp_path: Path) -> None:
    with behind(tmp_path, user_header=None) as made:
        assert me(at(*made, Remote_User="ada")) == 401


@pytest.mark.parametrize(
    ("user", "groups", "role"),
    [
        ("eva", "", "look"),
        ("eva", "visitors", "look"),
        ("eva", "visitors,guards", "judge"),
        ("eva", "guards, it", "administer"),
        ("LENA", "operations", "look"),  # the account here decides
    ],
)
def test_groups_give_roles(tmp_path: Path, user: str, groups: str, role: str) -> None:
    with behind(tmp_path, **GROUPS) as made:
        assert me(at(*made, Remote_User=user, Remote_Groups=groups)) == (user.lower(), role)


def test_groups_without_the_setting_give_none(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        assert me(at(*made, Remote_User="eva", Remote_Groups="it")) == ("eva", "look")


def test_those_without_an_account_may_be_refused(tmp_path: Path) -> None:
    with behind(tmp_path, sso_role="none") as made:
        client = at(*made, Remote_User="eva")
        answer = client.get("/")
        assert (answer.status_code, answer.text) == (403, "you have no account here\n")
        assert me(at(*made, Remote_User="lena")) == ("lena", "look")


def test_the_word_of_a_proxy_is_no_word_of_another_page(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        one = happen(made[0], 1)
        client = at(*made, Remote_User="jan")
        mark, normal = f"/api/events/{one.id}/mark", {"mark": "normal"}
        elsewhere = {"Origin": "https://evil.example"}
        assert client.put(mark, json=normal, headers=elsewhere).status_code == 403
        del client.headers["Origin"]
        assert client.put(mark, json=normal).status_code == 403
        assert client.put(mark, json=normal, headers={"Origin": HERE}).status_code == 200


def test_a_wall_asks_the_proxy_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "PROXY_S", 1.5)
    with behind(tmp_path) as made:
        client = at(*made, Remote_User="lena")
        with client.websocket_connect(THERE + "/ws/live") as socket:
            assert "cameras" in socket.receive_json()
            with pytest.raises(WebSocketDisconnect) as closed:
                [socket.receive_json() for _ in range(10)]
        assert closed.value.code == 1012
        with pytest.raises(WebSocketDisconnect), at(*made).websocket_connect(THERE + "/ws/live"):
            pass


def test_a_wall_closes_when_the_account_goes(tmp_path: Path) -> None:
    with behind(tmp_path, sso_role="none") as made:
        client = at(*made, Remote_User="lena")
        with client.websocket_connect(THERE + "/ws/live") as socket:
            assert "cameras" in socket.receive_json()
            made[1].remove("lena")
            with pytest.raises(WebSocketDisconnect) as closed:
                [socket.receive_json() for _ in range(10)]
        assert closed.value.code == 1008


def test_the_audit_log_names_whom_the_proxy_names(tmp_path: Path) -> None:
    with behind(tmp_path) as made:
        one = happen(made[0], 1)
        client = at(*made, Remote_User="eva")
        client.get(f"/api/events/{one.id}")
        client.get(f"/api/events/{one.id}")
        found = [(entry.user, entry.action, entry.subject) for entry in made[1].audit.entries()]
        assert found == [
            ("eva", "looked at event", one.id),
            ("eva", "came through the proxy", ""),
        ]
