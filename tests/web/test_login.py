"""Accounts at the page: they log in, they are found out when they go, and the log names them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from stepvad.site.accounts import Accounts, Passwords
from stepvad.web.identity import (
    FIRST_WAIT_S,
    FORGET_S,
    FREE,
    FREE_ADDRESS,
    Attempt,
    Background,
    Guesses,
    _client,
)
from tests.disks import small_disk
from tests.web.sites import (
    BEARER,
    HASH,
    HERE,
    PASSWORD,
    PEOPLE,
    TOKEN,
    Site,
    browser_of,
    happen,
    log_in,
    visitor,
    with_people,
)

THERE = HERE.replace("http", "ws")
OTHER = "another long and winding password"


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    with closing(Accounts(tmp_path / "accounts.db")) as made:
        yield with_people(made)


@pytest.fixture
def app(mill: Site, accounts: Accounts, tmp_path: Path) -> FastAPI:
    return mill.app(accounts=accounts)


@pytest.fixture
def command_line(tmp_path: Path, accounts: Accounts) -> Iterator[Accounts]:
    """The accounts as another process has them open."""
    with closing(Accounts(tmp_path / "accounts.db")) as made:
        yield made


def lines(accounts: Accounts, user: str | None = None) -> list[tuple[str, str, str]]:
    """The audit log, of everybody or of one user, oldest first."""
    found = reversed(accounts.audit.entries(limit=1000))
    return [(one.user, one.action, one.subject) for one in found if user in (None, one.user)]


def closing_code(socket: WebSocketTestSession) -> tuple[int, float]:
    """With which code the wall closes, and after how long."""
    began = time.monotonic()
    try:
        while time.monotonic() - began < 60:
            socket.receive_json()
    except WebSocketDisconnect as closed:
        return closed.code, time.monotonic() - began
    return 0, 60


def test_name_and_password_log_in(app: FastAPI, accounts: Accounts) -> None:
    for name in (*PEOPLE, "LENA"):
        assert browser_of(app, name).get("/api/me").json()["name"] == name.lower()
    assert log_in(visitor(app), "lena", PASSWORD + "!") == 401
    assert log_in(visitor(app), "nobody") == 401
    assert log_in(visitor(app), "", "") == 401
    assert log_in(visitor(app), "token", TOKEN) == 401
    assert accounts.account("lena").last_login is not None


def test_an_account_without_a_password_cannot_log_in(app: FastAPI, accounts: Accounts) -> None:
    accounts.create("new", "administer")
    for password in ("", "nobody has this password", "None"):
        assert log_in(visitor(app), "new", password) == 401


def test_the_token_still_logs_in_beside_accounts(app: FastAPI) -> None:
    client = visitor(app)
    form = client.get("/login").text
    assert form.index('name="name"') < form.index('name="token"')
    assert client.post("/login", data={"token": TOKEN}).status_code == 303
    assert client.get("/api/me").json()["role"] == "administer"


def test_without_accounts_the_form_asks_for_the_token_alone(mill: Site) -> None:
    form = visitor(mill.app()).get("/login").text
    assert 'name="name"' not in form
    assert 'name="token"' in form


def test_who_is_removed_is_out_with_the_next_request(app: FastAPI, command_line: Accounts) -> None:
    client = browser_of(app, "lena")
    assert client.get("/api/site").status_code == 200
    command_line.remove("lena")
    assert client.get("/api/site").status_code == 401
    assert client.get("/").status_code == 303
    command_line.create("lena", "administer", HASH)  # another one of this name
    assert client.get("/api/site").status_code == 401


def test_who_is_removed_loses_the_wall_within_a_minute(
    app: FastAPI, command_line: Accounts
) -> None:
    client = browser_of(app, "lena")
    with client.websocket_connect(THERE + "/ws/live") as socket:
        assert "cameras" in socket.receive_json()
        command_line.remove("lena")
        code, after_s = closing_code(socket)
    assert code == 1008
    assert after_s < 10
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(THERE + "/ws/live"):
        pass


def test_a_changed_role_counts_with_the_next_request(
    app: FastAPI, mill: Site, command_line: Accounts
) -> None:
    one, client = happen(mill, 1), browser_of(app, "lena")
    mark = f"/api/events/{one.id}/mark"
    assert client.put(mark, json={"mark": "normal"}).status_code == 403
    command_line.set_role("lena", "judge")
    assert client.put(mark, json={"mark": "normal"}).status_code == 200
    command_line.set_role("lena", "look")
    assert client.put(mark, json={"mark": None}).status_code == 403


def test_another_password_ends_all_log_ins_but_the_one_that_chose_it(app: FastAPI) -> None:
    own, elsewhere = browser_of(app, "lena"), browser_of(app, "lena")
    wrong = own.post("/password", data={"password": "wrong", "new": OTHER})
    assert (wrong.status_code, "This is not your password" in wrong.text) == (403, True)
    weak = own.post("/password", data={"password": PASSWORD, "new": "short"})
    assert (weak.status_code, "expected 10 to 256" in weak.text) == (422, True)
    assert elsewhere.get("/api/site").status_code == 200
    done = own.post("/password", data={"password": PASSWORD, "new": OTHER})
    assert done.status_code == 303
    assert own.get("/api/site").status_code == 200
    assert elsewhere.get("/api/site").status_code == 401
    assert log_in(visitor(app), "lena") == 401
    assert log_in(visitor(app), "lena", OTHER) == 303


def test_log_ins_survive_a_restart_with_their_user(
    app: FastAPI, mill: Site, accounts: Accounts, tmp_path: Path
) -> None:
    before = browser_of(app, "jan")
    cookie = "; ".join(f"{name}={value}" for name, value in before.cookies.items())
    again = visitor(mill.app(accounts=accounts))
    me = again.get("/api/me", headers={"Cookie": cookie}).json()
    assert (me["name"], me["role"]) == ("jan", "judge")


def test_the_audit_log_names_the_look(app: FastAPI, mill: Site, accounts: Accounts) -> None:
    one = happen(mill, 1)
    client = browser_of(app, "jan")
    for _ in range(3):  # the page asks again while the event is open
        client.get(f"/api/events/{one.id}")
    client.get(f"/api/events/{one.id}/explanation")  # there is none
    with client.websocket_connect(THERE + "/ws/live") as socket:
        socket.receive_json()
    client.put(f"/api/events/{one.id}/mark", json={"mark": "normal"})
    client.delete(f"/api/events/{one.id}")
    assert lines(accounts, user="jan") == [
        ("jan", "logged in", ""),
        ("jan", "looked at event", one.id),
        ("jan", "watched live", ""),
        ("jan", "marked event", f"{one.id}: normal"),
        ("jan", "was refused", f"DELETE /api/events/{one.id}"),
    ]
    assert {entry.address for entry in accounts.audit.entries()} == {"10.0.0.7"}
    ada = browser_of(app, "ada", "10.0.0.8")
    ada.get(f"/api/events/{one.id}")
    ada.delete(f"/api/events/{one.id}")
    ada.delete("/api/events?camera=yard")
    assert lines(accounts, user="ada")[1:] == [
        ("ada", "looked at event", one.id),
        ("ada", "deleted event", one.id),
        ("ada", "deleted events", "0 events of yard"),
    ]


def test_the_audit_log_has_log_ins_and_no_secrets(app: FastAPI, accounts: Accounts) -> None:
    client = visitor(app)
    log_in(client, "lena", "my password of another place")
    log_in(client, "my password in the wrong field", "lena")
    client.post("/login", data={"token": "my token of another place"})
    log_in(client, "lena")
    client.post("/logout")
    assert lines(accounts) == [
        ("lena", "failed log-in", ""),
        ("unknown name", "failed log-in", ""),
        ("token", "failed log-in", ""),
        ("lena", "logged in", ""),
        ("lena", "logged out", ""),
    ]


def test_programs_with_the_token_are_named_so(app: FastAPI, mill: Site, accounts: Accounts) -> None:
    one = happen(mill, 1)
    visitor(app).get(f"/api/events/{one.id}", headers=BEARER)
    assert lines(accounts) == [("token", "looked at event", one.id)]


def test_administrators_manage_users(app: FastAPI, accounts: Accounts) -> None:
    ada = browser_of(app, "ada")
    added = ada.post("/api/users", json={"name": "zoe", "role": "judge"})
    assert added.status_code == 201
    path = added.json()["path"]
    again = ada.post("/api/users", json={"name": "Zoe", "role": "look"})
    assert (again.status_code, "is taken" in again.json()["detail"]) == (409, True)
    assert ada.post("/api/users", json={"name": "a b", "role": "look"}).status_code == 422
    assert ada.post("/api/users", json={"name": "token", "role": "look"}).status_code == 409
    assert [one["name"] for one in ada.get("/api/users").json()] == ["ada", "jan", "lena", "zoe"]
    assert ada.put("/api/users/zoe/role", json={"role": "look"}).json()["role"] == "look"
    newer = ada.post("/api/users/zoe/link").json()["path"]
    assert visitor(app).get(path).status_code == 410
    assert visitor(app).get(newer).status_code == 200
    assert ada.delete("/api/users/zoe").status_code == 204
    assert visitor(app).get(newer).status_code == 410
    for method, rest in (("PUT", "/role"), ("POST", "/link"), ("DELETE", "")):
        body = {"role": "look"} if rest == "/role" else None
        assert ada.request(method, f"/api/users/zoe{rest}", json=body).status_code == 404
    for method, rest in (("PUT", "/role"), ("DELETE", "")):  # not their own, by mistake
        body = {"role": "look"} if rest == "/role" else None
        assert ada.request(method, f"/api/users/ada{rest}", json=body).status_code == 409
    log = ada.get("/api/audit?limit=500").json()
    assert path.partition("=")[2] not in str(log)
    assert [(one["action"], one["subject"]) for one in log if one["user"] == "ada"][::-1] == [
        ("logged in", ""),
        ("added user", "zoe: judge"),
        ("changed role of", "zoe: look"),
        ("made log-in link for", "zoe"),
        ("removed user", "zoe"),
    ]


def test_a_link_lets_its_owner_choose_a_password_once(app: FastAPI, accounts: Accounts) -> None:
    accounts.create("zoe", "judge")
    key = accounts.new_link("zoe")
    client = visitor(app)
    for _ in range(2):  # a mail program looks at it first
        shown = client.get("/first", params={"once": key})
        assert (shown.status_code, "zoe" in shown.text) == (200, True)
    weak = client.post("/first", data={"key": key, "password": "short"})
    assert (weak.status_code, "Password: expected 10 to 256" in weak.text) == (422, True)
    done = client.post("/first", data={"key": key, "password": PASSWORD})
    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert client.get("/api/me").json()["name"] == "zoe"
    thief = visitor(app)
    assert thief.get("/first", params={"once": key}).status_code == 410
    assert thief.post("/first", data={"key": key, "password": OTHER}).status_code == 410
    assert log_in(visitor(app), "zoe") == 303
    assert ("zoe", "used a log-in link", "") in lines(accounts)


def test_the_first_link_makes_an_administrator_once(mill: Site, tmp_path: Path) -> None:
    with closing(Accounts(tmp_path / "new.db")) as accounts:
        key, app = accounts.first_link() or "", mill.app(accounts=accounts)
        client = visitor(app)
        assert "Create your account" in client.get("/first", params={"once": key}).text
        bad = client.post("/first", data={"key": key, "name": "a b", "password": PASSWORD})
        assert (bad.status_code, "Name: expected a letter" in bad.text) == (422, True)
        made = client.post("/first", data={"key": key, "name": "eva", "password": PASSWORD})
        assert made.status_code == 303
        assert client.get("/api/me").json() == {
            "name": "eva",
            "role": "administer",
            "known_by": "session",
        }
        assert visitor(app).post("/first", data={"key": key}).status_code == 410
        assert [one.name for one in accounts.all()] == ["eva"]


def test_the_first_link_needs_no_account(mill: Site, tmp_path: Path) -> None:
    with closing(Accounts(tmp_path / "new.db")) as accounts:
        key, app = accounts.first_link() or "", mill.app(accounts=accounts)
        client = visitor(app)
        assert client.post("/first", data={"key": key}).status_code == 303
        me = client.get("/api/me").json()
        assert (me["name"], me["role"]) == ("token", "administer")
        assert visitor(app).post("/first", data={"key": key}).status_code == 410


def test_a_valid_link_works_while_others_guess(app: FastAPI, accounts: Accounts) -> None:
    key, client = accounts.new_link("lena"), visitor(app)
    said = [client.post("/first", data={"key": "guess"}).status_code for _ in range(30)]
    assert said == [410] * 30
    chosen = {"key": key, "password": PASSWORD}
    assert client.post("/first", data=chosen).status_code == 303


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of guesses; only the test moves it."""
    clock = Clock()
    monkeypatch.setattr(Guesses.__init__, "__defaults__", (clock,))
    return clock


def guess(app: FastAPI, address: str, times: int, name: str = "lena") -> list[int]:
    return [log_in(visitor(app, address), name, "guess") for _ in range(times)]


def test_guesses_wait_ever_longer_and_nobody_else_does(clock: Clock, app: FastAPI) -> None:
    for n in range(4):
        assert guess(app, f"10.2.{n}.1", FREE + 1) == [401] * FREE + [429]
    assert log_in(visitor(app, "10.3.0.1"), "lena") == 303  # from a new address
    assert log_in(visitor(app, "10.2.0.1"), "ada") == 303  # another account from theirs
    assert log_in(visitor(app, "10.2.0.1"), "lena") == 429  # or guessing would go on
    for wait_s in (FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S):
        clock.now += wait_s - 1
        assert guess(app, "10.2.0.1", 1) == [429]
        clock.now += 1
        assert guess(app, "10.2.0.1", 1) == [401]
    clock.now += FORGET_S
    assert log_in(visitor(app, "10.2.0.1"), "lena") == 303
    assert guess(app, "10.2.0.1", FREE + 1) == [401] * FREE + [429]


def test_a_disk_that_cannot_be_written_keeps_nobody_out(clock: Clock, mill: Site) -> None:
    with small_disk(8) as disk, closing(Accounts(disk.path / "accounts.db")) as accounts:
        app = mill.app(accounts=with_people(accounts))
        disk.fill()
        assert guess(app, "10.2.0.1", FREE + 1) == [401] * FREE + [429]
        assert browser_of(app, "lena", "10.3.0.1").get("/api/me").json()["name"] == "lena"


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("somewhere", "elsewhere", False),
    ],
)
def test_a_client_is_an_address_or_a_network(first: str, second: str, is_same: bool) -> None:
    assert (_client(first) == _client(second)) == is_same


async def said(is_right: bool) -> bool:
    await asyncio.sleep(0.01)
    return is_right


def test_many_guesses_at_once_are_no_way_around_the_limit() -> None:
    guesses = Guesses()

    async def guess() -> list[Attempt]:
        tries = (guesses.check("lena", "10.0.0.1", said(False)) for _ in range(100))
        return await asyncio.gather(*tries)

    assert [one.wait_s > 0 for one in asyncio.run(guess())].count(False) == FREE


def test_an_address_that_tries_many_accounts_waits_for_all() -> None:
    guesses = Guesses()

    async def guess() -> list[bool]:
        for n in range(FREE_ADDRESS):
            assert not (await guesses.check(f"name{n}", "10.0.0.1", said(False))).wait_s
        tries = [guesses.check("lena", address, said(True)) for address in ("10.0.0.1", "10.0.0.2")]
        return [(await one).right for one in tries]

    assert asyncio.run(guess()) == [False, True]


def test_a_right_password_does_not_count() -> None:
    guesses = Guesses()

    async def log_in_often() -> list[bool]:
        return [
            (await guesses.check("lena", "10.0.0.1", said(True))).right
            for _ in range(2 * FREE_ADDRESS)
        ]

    assert all(asyncio.run(log_in_often()))


def test_the_event_loop_goes_on_while_a_password_is_verified() -> None:
    """A tenth of a second per password must not be a tenth of a second for every camera."""
    passwords, background = Passwords(), Background("test")
    hash = passwords.hash(PASSWORD)

    async def longest_pause() -> float:
        verifying = asyncio.gather(
            *(background.run(passwords.fits, hash, "wrong") for _ in range(6))
        )
        longest, before = 0.0, time.monotonic()
        while not verifying.done():
            await asyncio.sleep(0.001)
            longest, before = max(longest, time.monotonic() - before), time.monotonic()
        return longest

    began = time.monotonic()
    longest = asyncio.run(longest_pause())
    assert longest < (time.monotonic() - began) / 2


def test_accounts_that_cannot_be_read_let_nobody_in_but_the_token(
    app: FastAPI, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepvad.site.store.database import StoreError

    client = browser_of(app, "ada")

    def broken(name: str) -> None:
        raise StoreError("accounts.db: expected accounts that can be read, got: disk I/O error")

    monkeypatch.setattr(accounts, "find", broken)
    asked = client.get("/api/site")
    assert (asked.status_code, asked.text) == (503, "the accounts cannot be read now\n")
    assert visitor(app).get("/api/site", headers=BEARER).status_code == 200


def test_an_audit_log_that_cannot_be_written_stops_nobody(
    app: FastAPI, mill: Site, accounts: Accounts, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    from stepvad.site.store.database import StoreError

    one, client = happen(mill, 1), browser_of(app, "lena")

    def full(*_: str) -> None:
        raise StoreError("accounts.db: expected accounts that can be written, got: disk full")

    monkeypatch.setattr(accounts.audit, "record", full)
    assert client.get(f"/api/events/{one.id}").status_code == 200
    assert "the audit log misses a line" in caplog.text


def test_a_page_without_a_file_for_accounts_says_so(mill: Site) -> None:
    zoe = {"name": "zoe", "role": "look"}
    asked = visitor(mill.app()).post("/api/users", json=zoe, headers=BEARER)
    assert asked.status_code == 409
    assert "web.accounts: expected a file" in asked.json()["detail"]
