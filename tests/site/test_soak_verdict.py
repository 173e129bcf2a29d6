"""The verdict of a soak run sees what it is there for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from studies.soak_parts.faults import Done
from studies.soak_parts.receiver import Receiver
from studies.soak_parts.samples import Sample
from studies.soak_parts.site import EventRow
from studies.soak_parts.verdict import Line, of_events, of_faults, of_log, of_memory, repeats

ROWS = [EventRow("a", "ape", 100.0, False), EventRow("b", "ape", 130.0, False)]
SAMPLE = Sample(
    at_s=0.0, site_pid=7, site_age_s=100.0, site_rss_mb=300.0, site_threads=20, site_handles=20,
    children=3, children_rss_mb=270.0,
    children_threads=18, children_handles=14, log_mb=0.0, events=0, open_long=0, frames_in=0,
    frames_scored=0, frames_shed=0, undelivered=0, free_mb=100.0, fault="",
)  # fmt: skip


def said(*words: str) -> list[dict[str, Any]]:
    """Lines of the file: kind and id."""
    return [
        {"type": kind, "after": {"id": id}} for kind, _, id in (w.partition(" ") for w in words)
    ]


ALL = said("new a", "end a", "new b", "end b")


def failed(lines: list[Line]) -> list[str]:
    return [line.what for line in lines if not line.is_ok]


def events(
    rows: list[EventRow] = ROWS, told: list[dict[str, Any]] = ALL, most_seen: int = 2
) -> list[str]:
    receiver = Receiver()
    receiver.ids = {"new": {"a", "b"}, "update": set(), "end": {"a", "b"}}
    return failed([*of_events(rows, told, receiver, most_seen)])


def test_events_that_are_stored_ended_and_announced_are_good() -> None:
    assert events() == []
    assert events(told=[*ALL, ALL[-1]]) == []


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        ({"rows": [ROWS[0], replace(ROWS[1], is_open=True)]}, "events not ended"),
        ({"rows": [*ROWS, ROWS[0]]}, "ids twice"),
        ({"told": [*ALL, {**ALL[0], "before": {}}]}, "ids twice"),
        ({"told": [*ALL, *said("new c", "end c")]}, "announced without a stored event"),
        ({"told": ALL[:2]}, "stored, but never announced"),
        ({"told": ALL[:3]}, "announced without new or end"),
        ({"most_seen": 3}, "events that vanished from the store"),
        ({"rows": [ROWS[0], replace(ROWS[1], start_time=400.0)]},
         "longest time between events of ape"),
    ],
)  # fmt: skip
def test_events_that_are_lost_doubled_or_open_are_not(facts: dict[str, Any], what: str) -> None:
    assert events(**facts) == [what]


def test_a_leak_shows_between_sites_of_the_same_age() -> None:
    many = [SAMPLE] * 8
    assert failed([*of_memory(many)]) == []
    assert (
        failed([*of_memory([*many, *[replace(SAMPLE, site_age_s=700, site_rss_mb=400.0)] * 8])])
        == []
    )
    for name, more in (("rss_mb", 400.0), ("threads", 30), ("handles", 40)):
        late = replace(SAMPLE, **{f"site_{name}": more})
        assert failed([*of_memory([*many, *[late] * 8])]) == [
            f"{name} of the site, first -> last part"
        ]


def test_lines_that_repeat_and_tracebacks_show() -> None:
    often = "".join(f"2026-01-01 00:00:{i:02} info: POST {i}\n" for i in range(21))
    assert repeats(often) == {"info: POST #": 21}
    assert repeats(often.partition("\n")[2]) == {}
    trace = "x\nTraceback (most recent call last):\n  a\nValueError: odd\n"
    assert failed([*of_log(trace, [SAMPLE], [])]) == ["other tracebacks", "  traceback"]
    full = Done("disk full", 0.0, 1.0, (0, len(trace)))
    assert failed([*of_log(trace, [SAMPLE], [full])]) == []
    assert failed([*of_log(trace + trace, [SAMPLE], [replace(full, log=(0, 99))])]) == [
        "tracebacks while the disk was full"
    ]


def test_a_fault_that_never_ends_and_a_restart_that_nobody_asked_for_show() -> None:
    fault = Done("kill site", 0.0, 3.0, (0, 0))
    once, twice = ("site test is watching, cameras: 8\n" * n for n in (1, 2))
    assert failed([*of_faults([fault], twice)]) == []
    assert failed([*of_faults([replace(fault, recovery_s=None)], twice)]) == ["1 x kill site"]
    assert len(failed([*of_faults([replace(fault, kind="backup")], twice)])) == 1
    assert failed([*of_faults([replace(fault, kind="backup")], once)]) == []
