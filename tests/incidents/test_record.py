from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.incidents.record import Record, SinkMessage, event_id, message
from tests.site.records import record


def test_an_id_is_the_same_whenever_it_is_made_and_differs_in_every_part() -> None:
    parts = [("yard", 1, 2, 3), ("gate", 1, 2, 3), ("yard", 2, 2, 3), ("yard", 1, 3, 3)]
    parts += [("yard", 1, 2, 4), ("yard", 12, 3, 4), ("yard", 1, 23, 4)]
    ids = [event_id(*part) for part in parts]
    assert len({*ids}) == len(parts)
    assert ids == [event_id(*part) for part in parts]
    assert ids[0] == "7ae4b7c7678e-1-2-3"
    assert all(c.isalnum() or c == "-" for c in "".join(ids))


def test_an_event_goes_through_json_unchanged() -> None:
    ended = record(why="left knee bends further").ended("calm", 1010.0)
    rated = record(camera_fps=12.5, model_fps=np.float32(25))
    for one in (record(), ended, record(box=None, zones=(), scales=()), rated):
        assert Record.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_values_from_arrays_become_plain_ones() -> None:
    one = record(
        score=np.float32(4.5), track_id=np.int64(7), scales=np.array([1, 2], np.float32), box=None
    )
    assert type(one.score) is float
    assert type(one.track_id) is int
    json.dumps(one.to_json())


def test_a_field_of_a_newer_version_is_left_out() -> None:
    assert Record.from_json(record().to_json() | {"mood": "calm"}) == record()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"score": float("nan")}, "finite"),
        ({"scales": (float("inf"),)}, "finite"),
        ({"camera": ""}, "camera"),
        ({"box": (1.0, 2.0)}, "4 numbers"),
        ({"severity": "panic"}, "alert or detection"),
        ({"camera_fps": 0.0}, "a rate above 0 as camera_fps"),
        ({"model_fps": float("nan")}, "a rate above 0 as model_fps"),
        ({"end_time": 1001.0}, "neither"),
        ({"end_time": 1001.0, "ended_by": "boredom"}, "camera lost"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_event_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError, match=words):
        record(**changes)


def test_json_that_is_no_event_is_refused() -> None:
    wrong: list[Any] = [{}, {"id": 3}, [], record().to_json() | {"score": "high"}]
    for facts in wrong:
        with pytest.raises(DataError, match=r"event: expected|expected a text"):
            Record.from_json(facts)


def test_an_event_never_ends_before_it_starts() -> None:
    assert record().ended("interrupted", 3.0).end_time == record().start_time


def test_a_message_tells_before_and_after() -> None:
    before, after = record(), record(score=9.0, top_score=9.0)
    told = message("update", before, after)
    assert (told.kind, told.before.score, told.after.score) == ("update", 4.0, 9.0)
    assert told.to_json() == {
        "type": "update",
        "before": before.to_json(),
        "after": after.to_json(),
    }
    assert message("new", None, before).before == before


def test_a_message_goes_through_json_unchanged() -> None:
    for told in (message("new", None, record()), message("update", record(), record(score=9.0))):
        assert SinkMessage.from_json(json.loads(json.dumps(told.to_json()))) == told


def test_events_and_messages_without_frame_rates_are_read() -> None:
    rates = {"camera_fps", "model_fps"}
    old = {name: value for name, value in record().to_json().items() if name not in rates}
    assert Record.from_json(old) == record()
    told = SinkMessage.from_json({"type": "new", "before": old, "after": old})
    assert (told.after.camera_fps, told.after.model_fps) == (None, None)


def test_an_event_without_a_version_is_read_and_one_of_a_newer_version_is_refused() -> None:
    old = {name: value for name, value in record().to_json().items() if name != "schema"}
    assert Record.from_json(old) == record()
    newer = record().to_json() | {"schema": 2}
    with pytest.raises(DataError, match="event: expected version 1 or older, got 2"):
        Record.from_json(newer)
    with pytest.raises(DataError, match="version 1 or older"):
        SinkMessage.from_json({"type": "new", "before": newer, "after": newer})


@pytest.mark.parametrize("change", [{"type": "old"}, {"type": 1}, {"after": None}, {"before": []}])
def test_what_is_no_message_is_refused(change: dict[str, object]) -> None:
    facts: dict[str, object] = {**message("new", None, record()).to_json(), **change}
    with pytest.raises(DataError, match="expected"):
        SinkMessage.from_json(facts)
    with pytest.raises(DataError, match="message: expected an object, got list"):
        SinkMessage.from_json([])
