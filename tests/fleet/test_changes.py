from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad.errors import DataError
from stepvad.events.record import event_id
from stepvad.fleet.event_message import change_of, of_fleet
from stepvad.fleet.wire import encode_claim
from tests.fleet.messages import body, change, delivery, event, over
from tests.site.records import record


def test_a_message_tells_whose_event_it_is_and_what_it_is_now() -> None:
    one = over(event(3))
    found = change_of(delivery(body("end", one), 9, f"{one.id}:end:417"), site="north")
    assert found is not None
    assert (found.site, found.camera, found.kind) == ("north", "yard", "end")
    assert (found.record, found.turn, found.sequence) == (one, 417, 9)


def test_later_kinds_have_higher_ranks() -> None:
    one = event()
    assert [change("new", one).rank, change("update", one).rank] == [0, 1]
    assert change("end", over(one)).rank == 2


def test_a_claim_is_no_change() -> None:
    assert change_of(delivery(encode_claim("worker-1"))) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "expected an event"),
        (b"[" * 100_000, "expected an event"),
        (b"[]", "expected an event"),
        (b"{}", "expected an event"),
        (body("new", event(), type="claims"), "expected new, update or end"),
        (body("new", event(), after=None), "expected an object"),
        (body("new", event(), after={"id": "x"}), "expected after.camera, got none"),
        (body("new", over(event())), "expected an end time if it is an end"),
        (body("end", event()), "expected an end time if it is an end"),
        (body("new", event(), site="south"), "expected one of site north"),
        (body("new", event(camera="south/yard"), site="north"), "expected a camera north/"),
        (body("new", event(id=event_id("south/yard", 1, 7, 0))), "expected an id of camera"),
        (body("new", event(why={"a": 1})), "expected a text or null as before.why"),
        (body("new", event(why="a\0b")), "characters as why"),
        (
            body("new", event(why="half")).replace(b"half", rb"\ud800"),
            "valid Unicode as why",
        ),
        (body("new", event(label="x" * 301)), "characters as label"),
        (b" " * (1 << 20) + body("new", event()), "bytes"),
    ],
)
def test_what_is_no_event_of_the_site_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        change_of(delivery(data), site="north")


def test_numbers_without_end_are_refused() -> None:
    data = body("new", event()).replace(b'"track_id": 7', b'"track_id": 1e999')
    with pytest.raises(DataError, match="expected"):
        change_of(delivery(data))


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(["after", "site", "type", "id", "camera", "zones", "box", "end_time"]),
)
def test_no_message_ends_in_another_error(value: Any, where: str) -> None:
    facts = json.loads(body("new", event()))
    (facts if where in facts else facts["after"])[where] = value
    with suppress(DataError):
        change_of(delivery(json.dumps(facts).encode()))


def test_events_of_a_site_are_other_events_than_those_of_another_site() -> None:
    one = record("yard", 3)
    north, south = of_fleet(one, "north"), of_fleet(one, "south")
    assert north.camera == "north/yard"
    assert north.id != south.id
    assert north.id == event_id("north/yard", one.epoch, 7, 3)
