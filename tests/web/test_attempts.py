"""Guessing tokens is slow and seen; it keeps nobody else out."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from stepvad.web.attempts import MOST_WRONG_EACH, Attempts, Token
from tests.web.sites import BEARER, HERE, TOKEN, Site

WRONG = {"Authorization": "Bearer wrong"}
ORIGIN = {"Origin": HERE}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of attempts; only the test moves it."""
    clock = Clock()
    monkeypatch.setattr(Attempts.__init__, "__defaults__", (clock,))
    return clock


def at(app: FastAPI, address: str) -> TestClient:
    """A client at an address."""
    return TestClient(app, base_url=HERE, follow_redirects=False, client=(address, 50_000))


def guess(client: TestClient, token: str = "wrong" * 5) -> int:
    return client.post("/login", data={"token": token}, headers=ORIGIN).status_code


def test_an_address_may_guess_ten_times_a_minute(mill: Site, clock: Clock) -> None:
    client = at(mill.app(), "10.0.0.1")
    assert [guess(client) for _ in range(12)] == [401] * MOST_WRONG_EACH + [429] * 2
    assert guess(client, TOKEN) == 429  # or guessing would go on
    clock.now += 59
    assert guess(client, TOKEN) == 429
    clock.now += 1
    assert guess(client, TOKEN) == 303


def test_the_form_and_the_bearer_share_the_limit_and_say_how_long(mill: Site, clock: Clock) -> None:
    client = at(mill.app(), "10.0.0.1")
    for _ in range(MOST_WRONG_EACH // 2):
        assert client.get("/api/site", headers=WRONG).status_code == 401
        assert guess(client) == 401
    clock.now += 17.5
    answer = client.post("/login", data={"token": "wrong"}, headers=ORIGIN)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "43")
    assert "Too many wrong tokens. Try again in 43 seconds." in answer.text
    answer = client.get("/metrics", headers=WRONG)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "43")
    assert client.get("/", headers=BEARER).status_code == 429


def test_a_right_token_is_taken_from_anybody_while_others_guess(mill: Site, clock: Clock) -> None:
    app = mill.app()
    for number in range(20):
        guesser = at(app, f"10.0.{number}.1")
        assert [guess(guesser) for _ in range(MOST_WRONG_EACH + 1)][-1] == 429
    assert guess(at(app, "10.1.0.1"), TOKEN) == 303
    assert at(app, "10.1.0.2").get("/metrics", headers=BEARER).status_code == 200


def test_a_session_goes_on_where_a_bearer_is_refused(mill: Site, clock: Clock) -> None:
    client = at(mill.app(), "10.0.0.1")
    assert guess(client, TOKEN) == 303
    for _ in range(MOST_WRONG_EACH):
        guess(client)
    assert client.get("/api/site").status_code == 200
    assert client.get("/api/site", headers=WRONG).status_code == 200


def test_open_routes_are_no_way_to_guess(mill: Site, clock: Clock) -> None:
    client = at(mill.app(), "10.0.0.1")
    elsewhere = {"Host": "evil.example"}
    for _ in range(MOST_WRONG_EACH):
        assert client.get("/healthz", headers=WRONG | elsewhere).status_code == 400
    assert client.get("/healthz", headers=BEARER | elsewhere).status_code == 400
    assert client.get("/healthz", headers=WRONG).status_code == 200


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
    attempts = Attempts(Token(TOKEN), Clock())
    for _ in range(MOST_WRONG_EACH):
        assert attempts.attempt("wrong", first).wait_s == 0
    assert (attempts.attempt(TOKEN, second).wait_s > 0) == is_same


def test_guessing_is_seen_in_the_log_and_does_not_fill_it(
    mill: Site, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    client = at(mill.app(), "10.0.0.1")
    for _ in range(200):
        guess(client, "my own password of another place")
    said = [one.getMessage() for one in caplog.records if one.name == "stepvad.web.attempts"]
    assert said == [
        "a wrong token from 10.0.0.1",
        "too many wrong tokens: attempts are refused for 60 s",
    ]
