"""The studies that break a site see what they are there for, and one of their rows is played."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from studies.fault_parts.deck import DECK
from studies.fault_parts.servers import SINKS, Heard, Mail, Messages
from studies.fault_parts.site import PERIOD_S, PLAYED, Unseen
from studies.fault_parts.truth import Verdict, anomalies, judge
from studies.faults import BEGIN, END, write_page
from studies.soak import Sample, of_log, of_memory
from tests.pages import ROOT
from tests.video.servers import has_rtsp_server

START = 1_700_000_000.0
PHASE = PLAYED["door"]


def heard(n: int, sink: str, *, after_s: float = 1.0, key: str = "") -> Heard:
    """The beginning of the event of the n-th anomaly."""
    begins = PHASE + n * PERIOD_S
    frame = round(begins * 10)
    at = START + begins
    return Heard(sink, at + after_s, "new", f"e{n}", "door", 1, frame, at, key or f"e{n} 1")


def messages(some: Iterable[Heard]) -> Messages:
    """What was heard, and a mail for each event that the webhook got."""
    found = Messages(sorted(some, key=lambda one: one.at))
    for one in found.events:
        if one.sink == "webhook":
            clock = f"{int(one.start) % 86400 // 3600:02}:{int(one.start) % 3600 // 60:02}"
            body = f"Someone fell. {clock}:{int(one.start) % 60:02}\nhttp://127.0.0.1/#event/1"
            found.mails.append(Mail(one.at, "Door", body))
    return found


def judged(some: Messages, unseen: Iterable[Unseen] = (), **away: float) -> Verdict:
    until = START + PHASE + 3.5 * PERIOD_S
    return judge(anomalies(some, [*unseen], until), some, START, away)


ALL = [heard(n, sink) for n in range(4) for sink in SINKS if sink != "mail"]


def test_what_is_heard_once_in_time_is_neither_lost_nor_doubled_nor_late() -> None:
    found = judged(messages(ALL))
    assert (found.played, found.lost, found.doubled, found.late) == (4, 0, 0, 0)
    assert found.missed == {}


def test_what_nobody_hears_is_lost_unless_nobody_could_see_it() -> None:
    some = messages(one for one in ALL if one.id != "e2")
    assert judged(some).lost == 1
    at = START + PHASE + 2 * PERIOD_S
    found = judged(some, [Unseen(("door",), at - 1, at + 2)])
    assert (found.lost, found.unseen) == (0, 1)
    assert judged(some, [Unseen(("door",), at + 2.1, at + 9)]).lost == 1
    one_sink = messages(one for one in ALL if one.id != "e2" or one.sink == "mqtt")
    assert judged(one_sink).missed == {"webhook": 1, "mail": 1, "file": 1}


def test_one_message_twice_and_two_events_for_one_anomaly_are_doubled() -> None:
    assert judged(messages([*ALL, heard(1, "mqtt", after_s=2.0)])).doubled == 1
    other = replace(heard(1, "mqtt", after_s=2.0), id="x", key="x 1")
    assert judged(messages([*ALL, other])).doubled == 1


def test_what_comes_late_counts_from_the_return_of_its_receiver() -> None:
    some = messages([*ALL[3:], heard(0, "mqtt", after_s=40.0), heard(0, "webhook")])
    assert judged(some).late == 1
    assert judged(some, mqtt=START + PHASE + 30.0).late == 0


def test_a_camera_that_connects_again_begins_its_anomalies_again() -> None:
    again = [replace(one, start=one.start + 30.0, at=one.at + 30.0, id="b") for one in ALL[:3]]
    cut = Unseen(("door",), START + PHASE + 10.0, is_cut=True)
    found = judged(messages([*ALL[:3], *again]), [cut])
    assert (found.played, found.lost) == (2, 0)
    assert cut.until == pytest.approx(START + 30.0)
    assert judged(messages([*ALL[:3], *again])).lost == 1  # it went on until the next began


def test_rows_enter_the_page_in_order_and_others_stay(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Faults\n{BEGIN}\n{END}\nEnd.\n")
    first, second, third = (f"| {one.words} | 1 s |" for one in DECK[:3])
    given = Namespace(seed=1, beside=1)
    write_page(page, [third, first], given)
    write_page(page, [second, third.replace("1 s", "2 s")], given)
    lines = page.read_text().splitlines()
    assert lines[-5:] == [first, second, third.replace("1 s", "2 s"), END, "End."]


SAMPLE = Sample(age_s=100.0, megabytes=300.0, threads=20, handles=20)


def test_a_leak_shows_between_sites_of_the_same_age() -> None:
    many = [SAMPLE] * 8
    assert [*of_memory(many)] == []
    assert [*of_memory([*many, *[replace(SAMPLE, age_s=700, megabytes=400.0)] * 8])] == []
    for name in ("megabytes", "threads", "handles"):
        late = replace(SAMPLE, **{name: 400.0})
        (wrong,) = of_memory([*many, *[late] * 8])
        assert wrong.startswith(name)


def test_lines_that_repeat_and_tracebacks_show() -> None:
    often = "".join(f"2026-01-01 00:00:{i:02} info: POST {i}\n" for i in range(21))
    assert [*of_log(often)] == ["21 x info: POST #"]
    assert [*of_log(often.partition("\n")[2])] == []
    assert [*of_log("Traceback (most recent call last):\n  a\n")] == ["1 tracebacks"]


@pytest.mark.long
@pytest.mark.skipif(not has_rtsp_server(), reason="needs GStreamer's RTSP server")
def test_a_row_is_played_on_a_real_site() -> None:
    words = [sys.executable, "-m", "studies", "faults", "--only", "broker", "--seconds", "4"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| MQTT broker killed | 4 s |" in done.stdout
