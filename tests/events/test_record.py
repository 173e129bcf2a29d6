"""The link from an event to the clip of a video recorder."""

from __future__ import annotations

from typing import Any

import pytest

from stepvad.codec import from_plain, to_plain
from stepvad.errors import DataError, StepvadError
from stepvad.events.record import Record, event_id, message, recording_url
from tests.site.records import record
from tests.site.sites import camera


def test_an_id_is_the_same_whenever_it_is_made_and_differs_in_every_part() -> None:
    parts = [("yard", 1, 2, 3), ("gate", 1, 2, 3), ("yard", 2, 2, 3), ("yard", 1, 3, 3)]
    parts += [("yard", 1, 2, 4), ("yard", 12, 3, 4), ("yard", 1, 23, 4)]
    ids = [event_id(*part) for part in parts]
    assert len({*ids}) == len(parts)
    assert ids == [event_id(*part) for part in parts]
    assert ids[0] == "7ae4b7c7678e-1-2-3"
    assert all(c.isalnum() or c == "-" for c in "".join(ids))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"score": float("inf")}, "a finite number as score"),
        ({"scales": (1.0, float("nan"))}, "a finite number as scales"),
        ({"camera": ""}, "camera"),
        ({"box": (1.0, 2.0)}, "box"),
        ({"severity": "panic"}, "alert or detection"),
        ({"camera_fps": 0.0}, "camera_fps"),
        ({"end_time": 1001.0}, "neither"),
        ({"end_time": 1001.0, "ended_by": "boredom"}, "camera lost"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_event_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_plain(Record, to_plain(record()) | changes, "event")


def test_an_event_never_ends_before_it_starts() -> None:
    assert record().ended("interrupted", 3.0).end_time == record().start_time


def test_a_message_tells_before_and_after() -> None:
    before, after = record(), record(score=9.0, top_score=9.0)
    told = message("update", before, after)
    assert (told.type, told.before.score, told.after.score) == ("update", 4.0, 9.0)
    assert to_plain(told) == {
        "type": "update",
        "before": to_plain(before),
        "after": to_plain(after),
        "stored": True,
    }
    assert message("new", None, before).before == before


def test_names_in_braces_become_the_times_of_the_event() -> None:
    one = record("north/yard").ended("calm", 1005.0)
    found = recording_url("https://nvr/clip?c={camera}&a={start}&b={end}&t={start_iso}", one)
    assert found == "https://nvr/clip?c=north%2Fyard&a=990&b=1016&t=1970-01-01T00%3A16%3A30Z"
    going_on = recording_url("http://nvr/{start}-{end}/{end_iso}/{id}", record())
    assert going_on.startswith("http://nvr/990-1071/1970-01-01T00%3A17%3A51Z/")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://nvr/{name}", "expected only {camera}, "),
        ("http://nvr/{camera.__class__}", "expected only {camera}, "),
        ("http://nvr/{camera!r}", "expected only {camera}, "),
        ("http://nvr/{}", "expected only {camera}, "),
        ("http://nvr/{camera", "expected only {camera}, "),
        ("javascript:alert({start})", "expected http:// or https://"),
        ("rtsp://nvr/{start}", "expected http:// or https://"),
        ("http://{camera}/clip", "a fixed host"),
        ("http://user:word@nvr/{start}", "without credentials"),
        ("http://nvr/{start}?token=abc", "without credentials"),
    ],
)
def test_another_address_is_refused(address: str, problem: str) -> None:
    with pytest.raises((ValueError, StepvadError)) as error:
        camera(recorder=address)
    assert problem in str(error.value)
