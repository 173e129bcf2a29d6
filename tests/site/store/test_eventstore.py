"""Events, their messages and what belongs to them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepvad.errors import DataError
from stepvad.incidents.review import Review
from stepvad.site.store.eventstore import Store
from tests.site.records import SINKS, UNIQUE, explanation, fill, kinds, record


def test_a_change_is_stored_and_announced_to_every_sink(store: Store) -> None:
    assert store.change("new", record()) == "stored"
    assert store.change("update", record(score=6.0)) == "stored"
    end = record(score=6.0).ended("calm", 1005.0)
    assert store.change("end", end) == "stored"
    assert store.event(end.id) == end
    for sink in SINKS:
        messages = store.outbox.pending(sink)
        assert [message.kind for message in messages] == ["new", "update", "end"]
        assert [message.seq for message in messages] == sorted(message.seq for message in messages)
        assert messages[2].message.before.end_time is None
        assert messages[2].message.after == end


def test_the_same_change_twice_is_announced_once(store: Store) -> None:
    end = record().ended("calm", 1005.0)
    assert [store.change("new", record()) for _ in range(2)] == ["stored", "repeated"]
    assert [store.change("end", end) for _ in range(2)] == ["stored", "repeated"]
    assert kinds(store, "mqtt") == ["new", "end"]


def test_an_event_that_is_over_is_not_reopened_and_somebody_hears_of_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.change("new", record())
    store.change("end", record().ended("camera lost", 1003.0))
    assert store.change("new", record()) == "ended"
    assert store.change("update", record(score=9.0)) == "ended"
    assert store.change("end", record().ended("calm", 1009.0)) == "ended"
    assert store.event(record().id) == record().ended("camera lost", 1003.0)
    assert kinds(store, "mqtt") == ["new", "end"]
    assert caplog.text.count("is refused") == 3


def test_an_end_needs_an_end_time_and_nothing_else_has_one(store: Store) -> None:
    with pytest.raises(DataError, match="expected an end time with an end"):
        store.change("end", record())
    with pytest.raises(DataError, match="expected an end time with an end"):
        store.change("update", record().ended("calm", 1002.0))
    assert store.events() == []


def test_another_event_with_an_id_in_use_is_an_error(store: Store) -> None:
    store.change("new", record())
    with pytest.raises(DataError, match="expected an update"):
        store.change("new", record(score=9.0))
    assert kinds(store, "mqtt") == ["new"]


def test_an_event_that_a_crash_cut_off_ends_when_it_was_last_heard_of(tmp_path: Path) -> None:
    now = 1030.0
    store = Store(tmp_path / "events.db", clock=lambda: now)
    store.change("new", record())
    now = 90_000.0
    (ended,) = store.end_interrupted(now)
    assert (ended.end_time, ended.ended_by) == (1030.0, "interrupted")
    store.close()


def test_epochs_never_repeat_whatever_the_clock_does(tmp_path: Path) -> None:
    seen = []
    for now in (5000.0, 5000.0, 5010.0, 1410.0, 1410.0, 8610.0):
        store = Store(tmp_path / "events.db", clock=partial(float, now))
        seen += [store.next_epoch("yard"), store.next_epoch("yard")]
        store.close()
    assert len({*seen}) == len(seen)
    assert seen == sorted(seen)


def test_events_are_found_by_camera_time_and_state(store: Store) -> None:
    for number in range(4):
        store.change("new", record("yard", number, label="fall" if number == 2 else "anomaly"))
    store.change("end", record("yard", 0).ended("calm", 1001.5))
    store.change("new", record("gate", 9))

    def found(**conditions: Any) -> list[int]:
        return [one.frame_seq for one in store.events(**conditions)]

    assert found() == [9, 3, 2, 1, 0]
    assert found(camera="yard") == [3, 2, 1, 0]
    assert found(since=1001.0, until=1003.0) == [2, 1]
    assert found(open=False) == [0]
    assert found(open=True, camera="yard", limit=2) == [3, 2]
    assert found(limit=2, before_id=record("yard", 2).id) == [1, 0]
    with pytest.raises(DataError, match="before_id"):
        store.events(before_id="nobody")


def test_poses_and_explanations_belong_to_their_event(store: Store) -> None:
    store.change("new", record())
    assert store.put_poses(record().id, b"poses")
    assert store.put_explanation(record().id, explanation("a"))
    assert store.poses(record().id) == b"poses"
    assert store.explained(record().id) == explanation("a")
    assert store.put_poses(record().id, b"more")
    assert store.poses(record().id) == b"more"
    assert not store.put_poses("nobody", b"poses")
    assert store.poses("nobody") is None
    assert store.explained("nobody") is None


def test_an_event_is_marked_as_normal_and_back(store: Store) -> None:
    store.change("new", record())
    store.mark(record().id, "normal", 1500.0)
    store.change("end", record().ended("calm", 1005.0))
    assert store.marked() == {record().id: 1500.0}
    store.mark(record().id, None, 1600.0)
    assert store.marked() == {}
    with pytest.raises(DataError, match="events list"):
        store.mark("nobody", "normal", 1.0)


def test_a_review_says_who_looked_first_and_who_judged_last(store: Store) -> None:
    one, two = record(), record("yard", 2)
    for each in (one, two):
        store.change("new", each)
    assert store.reviews() == {}
    store.see(one.id, 10.0, "ada")
    store.see(one.id, 20.0, "bob")
    assert store.reviews() == {one.id: Review(None, 10.0, "ada")}
    store.mark(one.id, "right", 30.0, "bob")
    store.see(one.id, 40.0, "cy")
    store.mark(two.id, "normal", 50.0)
    assert store.reviews([one.id]) == {one.id: Review("right", 30.0, "bob")}
    assert [*store.reviews()] == [one.id, two.id]
    assert store.marked() == {two.id: 50.0}
    store.mark(one.id, None, 60.0, "cy")
    assert store.reviews([one.id]) == {one.id: Review(None, 60.0, "cy")}
    with pytest.raises(DataError, match="events list"):
        store.see("nobody", 1.0)


def test_messages_are_delivered_put_off_or_kept_aside(store: Store) -> None:
    for number in range(3):
        store.change("new", record(number=number))
    first, second, third = store.outbox.pending("mqtt")
    store.outbox.delivered("mqtt", first.seq)
    store.outbox.failed("mqtt", second.seq, "nobody listens", 2010.0)
    store.outbox.refused("mqtt", third.seq, "410 Gone")
    (waiting,) = store.outbox.pending("mqtt")
    assert (waiting.seq, waiting.tries, waiting.next_try) == (second.seq, 1, 2010.0)
    assert waiting.error == "nobody listens"
    (dead,) = store.outbox.dead_letters()
    assert (dead.seq, dead.sink, dead.error, dead.refused) == (third.seq, "mqtt", "410 Gone", 2000)
    assert dead.message == third.message
    assert store.outbox.dead_letters("file") == []
    assert (store.outbox.lag("mqtt"), store.outbox.lag("file")) == (1, 3)
    assert len(store.outbox.pending("file", limit=2)) == 2


def test_a_site_tells_what_it_stores(store: Store) -> None:
    assert [kept.count for kept in store.stored().kept] == [0] * 5
    fill(store, 30)
    found = store.stored()
    by_name = {kept.what: kept for kept in found.kept}
    assert by_name["events"].count == 30
    assert by_name["poses"].count == 30
    assert by_name["outbox"].count == 2 * 50 - 20
    assert by_name["dead letters"].count == 20
    assert (by_name["events"].first, by_name["events"].last) == (1000.0, 1029.0)
    assert by_name["poses"].bytes == sum(
        len(f"poses of {UNIQUE if n % 2 else 'yard'} ") * n for n in range(30)
    )
    assert found.cameras == {"yard": 15, UNIQUE: 15}
    assert {path.name for path in found.files} >= {"events.db", "events.db-wal"}
    with closing(sqlite3.connect(store.path)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        )
        listed = {kept.what.replace(" ", "_") for kept in found.kept}
        assert {name for (name,) in tables} == listed | {"epochs", "clock"}


def test_a_record_with_other_words_is_a_change(store: Store) -> None:
    store.change("new", record())
    assert store.change("update", replace(record(), why="left knee")) == "stored"
