from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stepvad.events.camera import WENT_DOWN
from stepvad.site.notify.words import (
    MOST_WHY,
    Notice,
    NoticeWords,
    lasted,
    opens_here_only,
    page_address,
)
from stepvad.site.settings.page import Web
from tests.site.records import record

NOON = datetime(2026, 3, 1, 14, 3, 22, tzinfo=UTC).timestamp()
WORDS = NoticeWords("mill", "https://mill.example.org", UTC)


def test_a_guard_reads_where_what_and_when() -> None:
    one = record(start_time=NOON, zones=("door",), why="left leg bends far more than usual")
    assert WORDS.notice("new", [one], NOON + 5) == Notice(
        "Yard, door",
        "Someone is moving unusually: left leg bends far more than usual. 14:03:22",
        f"https://mill.example.org/#event/{one.id}",
        one.id,
    )


def test_an_event_without_words_zones_and_page_is_told_too() -> None:
    one = record(start_time=NOON, zones=())
    told = NoticeWords("mill", "", UTC).notice("new", [one], NOON)
    assert told == Notice("Yard", "Someone is moving unusually. 14:03:22", "", one.id)
    assert told.text == told.body


def test_how_strange_it_was_comes_after_why() -> None:
    strangest = "the strangest of the last 9 days"
    one = record(start_time=NOON, why="left arm raised", strangest=strangest)
    body = WORDS.notice("new", [one], NOON).body
    end = "The strangest of the last 9 days. 14:03:22"
    assert body == f"Someone is moving unusually: left arm raised. {end}"
    went_down = replace(one, label=WENT_DOWN)
    assert WORDS.notice("new", [went_down], NOON).body.endswith(end)
    assert "The strangest of the last 9 days" in WORDS.notice("new", [one, one], NOON).body


def test_somebody_who_went_down() -> None:
    why = "went down fast and was not seen again; left arm raised"
    one = record(start_time=NOON, label=WENT_DOWN, why=why)
    body = WORDS.notice("new", [one], NOON).body
    assert body == "Someone went down fast and was not seen again: left arm raised. 14:03:22"
    one = record(start_time=NOON, label=WENT_DOWN, why="went down fast and was not seen again")
    body = WORDS.notice("new", [one], NOON).body
    assert body == "Someone went down fast and was not seen again. 14:03:22"


def test_a_repeat_says_that_nobody_has_looked() -> None:
    one = record(start_time=NOON)
    again = WORDS.notice("again", [one], NOON)
    assert again.body == "Nobody has looked yet. Someone is moving unusually. 14:03:22"
    assert again.tag == WORDS.notice("new", [one], NOON).tag, "it replaces the first"


def test_several_events_in_one_message() -> None:
    two = [record("gate", 1, start_time=NOON - 86400, zones=()), record(start_time=NOON, why="x y")]
    told = WORDS.notice("new", two, NOON)
    assert told.title == "mill: 2 events"
    assert told.body.splitlines() == [
        "28 Feb 14:03:22 Gate: someone is moving unusually",
        "14:03:22 Yard, gate: someone is moving unusually: x y",
    ]
    assert told.text.endswith("\nhttps://mill.example.org/#events")
    assert WORDS.notice("again", two, NOON).title == "mill: 2 events, nobody has looked yet"


def test_many_events_are_counted() -> None:
    many = [record("gate" if n % 4 else "yard", n, start_time=NOON + n) for n in range(40)]
    lines = WORDS.notice("new", many, NOON, next_at=NOON + 3600).body.splitlines()
    assert lines[0] == "Gate 30, Yard 10. The latest 5:"
    assert len(lines) == 7
    assert lines[-1] == (
        "This is the last message of this hour: further events follow in one message from 15:03 on."
    )


def test_long_explanations_are_cut() -> None:
    body = WORDS.notice("new", [record(start_time=NOON, why="long " * 200)], NOON).body
    assert len(body) < MOST_WHY + 60
    assert "…" in body


@pytest.mark.parametrize(
    ("web", "address"),
    [
        (Web(), "http://127.0.0.1:8080"),
        (Web(host="::1"), "http://[::1]:8080"),
        (Web(host="0.0.0.0", port=81), f"http://{socket.gethostname()}:81"),
        (Web(certificate=Path("c"), key=Path("k"), host="mill"), "https://mill:8080"),
        (Web(public_url="https://a.example", trusted_proxies=["127.0.0.1"]), "https://a.example"),
        (Web(port=0), ""),
        (Web(enabled=False), ""),
    ],
)
def test_the_address_in_messages_is_one_that_opens(web: Web, address: str) -> None:
    assert page_address(web) == address


def test_an_address_of_this_machine_only_is_known() -> None:
    assert opens_here_only("http://127.0.0.1:80")
    assert opens_here_only("http://localhost:80")
    assert not opens_here_only("http://mill:80")


def test_durations_in_words() -> None:
    said = [lasted(seconds) for seconds in (0.2, 12.3, 125, 3600, 9000)]
    assert said == ["1 s", "12 s", "2 min 5 s", "60 min", "2 h 30 min"]
