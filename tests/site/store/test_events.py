"""The event store: changes, searches, deletion, and expiry by a clock that may be wrong."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepvad.errors import DataError
from stepvad.events.record import DAY_S, Review, SinkMessage
from stepvad.site.settings.sections import RetentionSettings
from stepvad.site.store import database
from stepvad.site.store.database import EVENT_STORE, connect_durably
from stepvad.site.store.events import CONFIRM_S, FILE_NAME, Store, StoreClock, delete_old
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
        store.change("new", record().ended("calm", 1002.0))
    assert store.change("update", record().ended("calm", 1002.0)) == "ended", "it is not known"
    assert store.events() == []


def test_words_that_come_after_the_end_are_stored_and_announced(store: Store) -> None:
    over = record().ended("calm", 1005.0)
    store.change("new", record())
    store.change("end", over)
    late = replace(over, why="lying on the floor")
    assert [store.change("update", late) for _ in range(2)] == ["stored", "repeated"]
    assert store.event(over.id) == late
    assert kinds(store, "mqtt") == ["new", "end", "update"]
    assert store.outbox.pending("mqtt")[-1].message == SinkMessage("update", over, late)


def test_versions_rise_after_a_restart_and_with_a_clock_set_back(tmp_path: Path) -> None:
    seen = []
    for now in (5000.0, 5000.0, 10.0, 8000.0):
        store = Store(tmp_path / "events.db", clock=partial(float, now))
        numbers = [store.next_version() for _ in range(2)]
        store.change("new", record(number=numbers[1], version=numbers[1]))
        seen += numbers
        store.close()
    assert seen == sorted({*seen})
    assert seen[-2:] == [8_000_001, 8_000_002]


def test_an_event_that_a_crash_cut_off_has_a_version_above_its_last(tmp_path: Path) -> None:
    store = Store(tmp_path / "events.db", ("mqtt",), clock=lambda: 10.0)
    store.change("new", record(version=77_000))
    assert store.end_interrupted(10.0) == [], "it goes on in this run"
    store.close()
    with closing(Store(tmp_path / "events.db", ("mqtt",), clock=lambda: 10.0)) as store:
        (ended,) = store.end_interrupted(10.0)
        assert ended.version > 77_000


def test_another_event_with_an_id_in_use_is_an_error(store: Store) -> None:
    store.change("new", record())
    with pytest.raises(DataError, match="expected an update"):
        store.change("new", record(start_time=999.0))
    assert kinds(store, "mqtt") == ["new"]


def test_an_event_that_goes_on_is_not_announced_anew_when_its_frames_are_scored_again(
    store: Store,
) -> None:
    store.change("new", record())
    store.change("update", record(score=9.0, version=1))
    assert store.change("new", record(version=2)) == "repeated"
    assert store.event(record().id) == record(score=9.0, version=1)
    assert kinds(store, "mqtt") == ["new", "update"]


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
    assert store.marked() == {record().id: ("normal", 1500.0, None)}
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
    assert store.marked() == {one.id: ("right", 30.0, None), two.id: ("normal", 50.0, None)}
    store.mark(one.id, None, 60.0, "cy")
    assert store.reviews([one.id]) == {one.id: Review(None, 60.0, "cy")}
    with pytest.raises(DataError, match="events list"):
        store.see("nobody", 1.0)


def test_messages_are_delivered_put_off_or_kept_aside(store: Store) -> None:
    for number in range(3):
        store.change("new", record(number=number))
    first, second, third = store.outbox.pending("mqtt")
    store.outbox.delivered(first)
    store.outbox.failed(second, "nobody listens", 2010.0)
    store.outbox.refused(third, "410 Gone")
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
    assert [kept.count for kept in store.stored().kept] == [0] * 4
    fill(store, 30)
    found = store.stored()
    by_name = {kept.what: kept for kept in found.kept}
    assert by_name["events"].count == 30
    assert by_name["poses"].count == 30
    assert by_name["outbox"].count == 2 * 50, "dead letters, too"
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
        assert {name for (name,) in tables} == listed | {"epochs", "clock", "positions", "watched"}


def test_the_time_watched_adds_up_by_camera_and_hour_and_expires(tmp_path: Path) -> None:
    hour, now = 400_000, [400_001 * 3600.0]
    store = Store(tmp_path / FILE_NAME, clock=lambda: now[0])
    store.add_watched({("yard", hour): 60.0, ("yard", hour + 1): 30.0, ("door", hour): 60.0})
    store.add_watched({("yard", hour): 60.0})
    begin = hour * 3600.0
    assert store.watched() == {
        "yard": {begin: 120.0, begin + 3600: 30.0},
        "door": {begin: 60.0},
    }
    assert store.watched(begin + 3601) == {"yard": {begin + 3600: 30.0}}
    assert store.watched(begin + 1)["door"] == {begin: 60.0}  # the hour of that time
    store.add_watched({("yard", hour): 9999.0})
    assert store.watched()["yard"][begin] == 3600.0  # an hour has no more
    now[0] += 31 * 86400
    store.add_watched({})
    assert store.watched() == {}
    store.close()


def test_a_record_with_other_words_is_a_change(store: Store) -> None:
    store.change("new", record())
    assert store.change("update", replace(record(), why="left knee")) == "stored"


def bytes_on_disk(store: Store) -> bytes:
    return b"".join(path.read_bytes() for path in store.path.parent.iterdir())


def shuffle(store: Store, seed: int, n: int = 400) -> None:
    """Events that grow, come in any order and are delivered now and then, so that pages split."""
    some = random.Random(seed)
    for number in range(n):
        camera = some.choice([UNIQUE, "yard", "gate"])
        one = record(camera, number, start_time=some.random(), why=camera * some.randrange(60))
        store.change("new", one)
        if some.random() < 0.5:
            store.change("update", replace(one, why=camera * some.randrange(90)))
        if some.random() < 0.7:
            store.put_poses(one.id, camera.encode() * some.randrange(2000))
        for sink in SINKS:
            if some.random() < 0.6:
                for message in store.outbox.pending(sink, 2):
                    store.outbox.delivered(message)


@pytest.mark.ci
@pytest.mark.slow
def test_pages_that_were_split_keep_no_copy_of_what_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = connect_durably

    def without_waiting_for_the_disk(path: Path, *, timeout_s: float) -> sqlite3.Connection:
        connection = connect(path, timeout_s=timeout_s)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(database, "connect_durably", without_waiting_for_the_disk)
    for seed in range(6):
        store = Store(tmp_path / str(seed) / "events.db", SINKS)
        shuffle(store, seed)
        store.delete(camera=UNIQUE, include_open=True)
        assert UNIQUE.encode() not in bytes_on_disk(store)
        store.close()


def test_nothing_of_a_deleted_camera_is_left_on_disk(store: Store) -> None:
    fill(store, 60)
    store.mark(record(UNIQUE, 1).id, "normal", 1.0)
    assert UNIQUE.encode() in bytes_on_disk(store)
    done = store.delete(camera=UNIQUE, include_open=True)
    assert (done.events, done.kept_open) == (30, 0)
    assert UNIQUE.encode() not in bytes_on_disk(store)
    assert b"yard" in bytes_on_disk(store)
    assert len(store.events(limit=None)) == 30
    assert all(message.message.after.camera == "yard" for message in store.outbox.pending("file"))


def test_a_deletion_is_clean_while_a_site_writes_and_reads(store: Store) -> None:
    fill(store, 30)
    stop = threading.Event()

    def go_on() -> None:
        number = 1000
        while not stop.is_set():
            store.change("new", record("yard", number := number + 1))
            store.events(limit=10)

    thread = threading.Thread(target=go_on)
    thread.start()
    other = Store(store.path, create=False)
    try:
        other.delete(camera=UNIQUE, include_open=True)
        assert UNIQUE.encode() not in bytes_on_disk(store)
    finally:
        stop.set()
        thread.join()
        other.close()
    assert len(store.events(camera="yard", limit=None)) > 15


def test_events_that_go_on_stay_unless_they_are_asked_for(store: Store) -> None:
    store.change("new", record(number=0))
    store.change("new", record(number=1))
    store.change("end", record(number=1).ended("calm", 1005.0))
    done = store.delete()
    assert (done.events, done.kept_open) == (1, 1)
    assert store.delete(ids=["nobody"]).events == 0
    assert store.delete(ids=[record().id], include_open=True).events == 1
    assert store.events() == []
    assert store.outbox.lag("mqtt") == 0


def test_a_deletion_by_time_takes_every_event_that_touches_the_span(store: Store) -> None:
    for number in (0, 10, 20, 30):
        one = record(number=number)
        store.change("new", one)
        store.change("end", one.ended("calm", one.start_time + 5))
    assert store.delete(after=1012.0, before=1030.0).events == 2
    assert [one.frame_seq for one in store.events()] == [30, 0]


def test_what_is_too_old_goes_poses_first(tmp_path: Path) -> None:
    days = [0.0]

    def clock() -> float:
        return days[0] * 86400.0

    store = Store(tmp_path / "data" / "events.db", SINKS, clock=clock, monotonic=clock)
    for number, days[0] in ((0, 1.0), (1, 24.0), (2, 31.0)):
        one = record(UNIQUE if number == 0 else "yard", number)
        store.change("new", one)
        store.put_poses(one.id, f"poses {number}".encode())
        store.put_explanation(one.id, explanation(f"number {number}"))
        store.change("end", one.ended("calm", clock()))
    store.change("new", record(number=3))
    days[0] = 32.0
    done = store.retain(RetentionSettings(), now=clock())
    assert (done.events, done.poses) == (1, 1)
    assert [one.frame_seq for one in store.events()] == [3, 2, 1]
    assert store.poses(record(number=1).id) is None
    assert store.explained(record(number=1).id) is None
    assert store.poses(record(number=2).id) == b"poses 2"
    assert UNIQUE.encode() not in bytes_on_disk(store)
    assert b"poses 1" not in bytes_on_disk(store)
    assert store.retain(RetentionSettings(), now=clock()).events == 0
    store.close()


EMPTYING = """
import fcntl, sys, time
with open(sys.argv[1], "r+b") as log_index:
    fcntl.lockf(log_index, fcntl.LOCK_EX, 1, 121)
    print("locked", flush=True)
    time.sleep(1)
"""
"""Holds, for a second, the lock that SQLite takes while it empties the log (byte 121 of -shm)."""


def test_a_deletion_waits_for_another_program_that_empties_the_log(store: Store) -> None:
    fill(store, 6)
    index = store.path.with_name(store.path.name + "-shm")
    command = [sys.executable, "-c", EMPTYING, str(index)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        store.delete(camera=UNIQUE, include_open=True)
    assert UNIQUE.encode() not in bytes_on_disk(store)


def test_somebody_who_reads_for_long_puts_the_end_of_a_deletion_off(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.2)
    fill(store, 6)
    store._database._usable().execute("PRAGMA busy_timeout = 50")
    with store._database.snapshot() as reader:
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(DataError, match="a reader keeps the log"):
            store.delete(camera=UNIQUE, include_open=True)
        assert store.events(camera=UNIQUE) == []
    store.retain(RetentionSettings(events_days=1e6, poses_days=1e6), now=3000.0)
    assert UNIQUE.encode() not in bytes_on_disk(store)


NOW = 1_790_000_000.0
YEAR = 365 * DAY_S


@dataclass
class World:
    """The rows of a site whose clock may be wrong; `true` is a time that only the test knows."""

    connection: sqlite3.Connection
    true: float = NOW
    error_s: float = 0.0
    written: list[float] = field(default_factory=list)
    """The true time at which each event was stored."""
    deleted: list[float] = field(default_factory=list)
    """True ages of events when they went."""

    def __post_init__(self) -> None:
        self.restart(0.0)

    def restart(self, off_s: float) -> None:
        self.true += off_s
        self.clock = StoreClock(lambda: self.true)

    def time(self) -> float:
        return self.clock.stamp(self.connection, self.true + self.error_s)

    def run(self, days: float) -> None:
        """Store an event and delete old ones every six hours."""
        for _ in range(round(days * 4)):
            self.retain()
            self.true += DAY_S / 4
            self.connection.execute(
                "INSERT INTO events (id, camera, label, start_time, end_time, changed, stored, "
                "body) VALUES (?, '', '', 0, 0, 0, ?, '')",
                (len(self.written), self.time()),
            )
            self.written.append(self.true)
        self.retain()

    def left(self) -> set[int]:
        return {int(id) for (id,) in self.connection.execute("SELECT id FROM events")}

    def retain(self) -> None:
        before, time = self.left(), self.time()
        if not self.clock.doubt:
            delete_old(self.connection, RetentionSettings(), time)
        self.deleted += [self.true - self.written[id] for id in before - self.left()]

    def check(self) -> None:
        """After 35 days of a right clock: nothing went too early, nothing stays for ever."""
        self.error_s = 0.0
        self.run(35)
        assert not self.clock.doubt
        assert min(self.deleted) >= 29 * DAY_S
        assert self.true - min(self.written[id] for id in self.left()) <= 31 * DAY_S


@contextmanager
def world() -> Iterator[World]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        EVENT_STORE.create(connection)
        yield World(connection)


@pytest.mark.parametrize("error_s", [31 * DAY_S, 2 * DAY_S, 20 * YEAR, -31 * DAY_S, -50 * YEAR])
@pytest.mark.parametrize("restart", [False, True])
def test_a_wrong_clock_deletes_nothing(error_s: float, restart: bool) -> None:
    with world() as site:
        site.run(2)
        site.error_s = error_s
        if restart:
            site.restart(60.0)
        site.run(2)
        assert not site.deleted
        assert ("ahead of" if error_s > 0 else "behind") in site.clock.doubt
        site.check()


def test_a_site_that_was_off_deletes_after_three_days_of_running() -> None:
    with world() as site:
        site.run(2)
        site.restart(40 * DAY_S)
        for _ in range(5):
            site.run(0.5)
            site.restart(60.0)  # what it ran before counts
        assert not site.deleted
        site.run(1)
        assert len(site.deleted) == 8
        site.check()


def test_a_clock_that_was_ahead_from_the_start_keeps_nothing_for_ever() -> None:
    with world() as site:
        site.error_s = 20 * YEAR
        site.run(3)
        site.error_s = 0.0
        site.run(5)
        site.check()


def test_a_store_says_why_it_deletes_nothing(tmp_path: Path) -> None:
    wall, monotonic = [NOW], [0.0]
    path = tmp_path / "events.db"
    with closing(Store(path, clock=lambda: wall[0], monotonic=lambda: monotonic[0])) as store:
        for number, ahead_days in ((0, 0), (1, 40)):
            wall[0] = NOW + ahead_days * DAY_S
            one = record(number=number, start_time=wall[0])
            store.change("new", one)
            store.change("end", one.ended("calm", wall[0]))
            assert store.retain(RetentionSettings(), wall[0]).events == 0
        assert "40 days ahead of" in store.clock_doubt
        monotonic[0] = CONFIRM_S
        wall[0] += CONFIRM_S
        store.retain(RetentionSettings(), wall[0])
        assert store.clock_doubt == ""
