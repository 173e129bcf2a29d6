from __future__ import annotations

import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.live import database, schema
from stepvad.live.backup import restore
from stepvad.live.record import Record
from stepvad.live.store import Store
from tests.live.records import record
from tests.pages import ROOT

SINKS = ("file", "mqtt")


@dataclass(frozen=True)
class Days:
    events_days: float
    poses_days: float


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "data" / "events.db", SINKS, clock=lambda: 2000.0)
    yield made
    made.close()


def kinds(store: Store, sink: str) -> list[str]:
    return [letter.kind for letter in store.pending(sink)]


def test_a_change_is_stored_and_announced_to_every_sink(store: Store) -> None:
    assert store.change("new", record()) == "stored"
    assert store.change("update", record(score=6.0)) == "stored"
    end = record(score=6.0).ended("calm", 1005.0)
    assert store.change("end", end) == "stored"
    assert store.event(end.id) == end
    for sink in SINKS:
        letters = store.pending(sink)
        assert [letter.kind for letter in letters] == ["new", "update", "end"]
        assert [letter.seq for letter in letters] == sorted(letter.seq for letter in letters)
        assert letters[2].message["before"]["end_time"] is None
        assert Record.from_json(letters[2].message["after"]) == end


def test_the_same_change_twice_is_announced_once(store: Store) -> None:
    end = record().ended("calm", 1005.0)
    assert [store.change("new", record()) for _ in range(2)] == ["stored", "repeated"]
    assert [store.change("end", end) for _ in range(2)] == ["stored", "repeated"]
    assert kinds(store, "mqtt") == ["new", "end"]


def test_an_event_that_is_over_is_not_reopened_and_somebody_hears_of_it(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.change("new", record())
    store.end_open("camera lost", 1003.0)
    for kind, later in (
        ("new", record()),
        ("update", record(score=9.0)),
        ("end", record().ended("calm", 1009.0)),
    ):
        assert store.change(kind, later) == "ended"  # type: ignore[arg-type]
    assert store.event(record().id) == record().ended("camera lost", 1003.0)
    assert kinds(store, "mqtt") == ["new", "end"]
    assert caplog.text.count("is refused") == 3


def test_an_end_needs_an_end_time_and_nothing_else_has_one(store: Store) -> None:
    for kind, one in (("end", record()), ("update", record().ended("calm", 1002.0))):
        with pytest.raises(DataError, match="expected an end time with an end"):
            store.change(kind, one)  # type: ignore[arg-type]
    assert store.events() == []


def test_another_event_with_an_id_in_use_is_an_error(store: Store) -> None:
    store.change("new", record())
    with pytest.raises(DataError, match="expected an update"):
        store.change("new", record(score=9.0))
    assert kinds(store, "mqtt") == ["new"]


def test_open_events_end_when_their_camera_is_lost(store: Store) -> None:
    store.change("new", record("yard", 1))
    store.change("new", record("gate", 2))
    assert store.open_events() == [record("yard", 1), record("gate", 2)]
    assert store.open_events("gate") == [record("gate", 2)]
    assert store.end_open("camera lost", 1060.0, "gate") == [
        record("gate", 2).ended("camera lost", 1060.0)
    ]
    assert store.open_events() == [record("yard", 1)]
    assert store.end_open("camera lost", 1060.0, "gate") == []
    assert kinds(store, "file") == ["new", "new", "end"]


def test_an_event_that_a_crash_cut_off_ends_when_it_was_last_heard_of(tmp_path: Path) -> None:
    now = 1030.0
    store = Store(tmp_path / "events.db", clock=lambda: now)
    store.change("new", record())
    now = 90_000.0
    (ended,) = store.end_open("interrupted", now)
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


def test_events_are_found_by_camera_time_label_and_state(store: Store) -> None:
    for number in range(4):
        store.change("new", record("yard", number, label="fall" if number == 2 else "anomaly"))
    store.change("end", record("yard", 0).ended("calm", 1001.5))
    store.change("new", record("gate", 9))

    def found(**conditions: object) -> list[int]:
        return [one.frame_seq for one in store.events(**conditions)]  # type: ignore[arg-type]

    assert found() == [9, 3, 2, 1, 0]
    assert found(camera="yard") == [3, 2, 1, 0]
    assert found(since=1001.0, until=1003.0) == [2, 1]
    assert found(label="fall") == [2]
    assert found(open=False) == [0]
    assert found(open=True, camera="yard", limit=2) == [3, 2]
    assert found(limit=2, before_id=record("yard", 2).id) == [1, 0]
    with pytest.raises(DataError, match="before_id"):
        store.events(before_id="nobody")


def test_poses_and_explanations_belong_to_their_event(store: Store) -> None:
    store.change("new", record())
    assert store.put_poses(record().id, b"poses")
    assert store.put_explanation(record().id, {"words": ["a"]})
    assert store.poses(record().id) == b"poses"
    assert store.explanation(record().id) == {"words": ["a"]}
    assert store.put_poses(record().id, b"more")
    assert store.poses(record().id) == b"more"
    assert not store.put_poses("nobody", b"poses")
    assert store.poses("nobody") is None
    assert store.explanation("nobody") is None


def test_an_event_is_marked_as_normal_and_back(store: Store) -> None:
    store.change("new", record())
    store.mark(record().id, "normal", 1500.0)
    store.change("end", record().ended("calm", 1005.0))
    assert store.marked() == {record().id: 1500.0}
    store.mark(record().id, None, 1600.0)
    assert store.marked() == {}
    with pytest.raises(DataError, match="events list"):
        store.mark("nobody", "normal", 1.0)


def test_messages_are_delivered_put_off_or_kept_aside(store: Store) -> None:
    for number in range(3):
        store.change("new", record(number=number))
    first, second, third = store.pending("mqtt")
    store.delivered("mqtt", first.seq)
    store.failed("mqtt", second.seq, "nobody listens", 2010.0)
    store.outbox.refused("mqtt", third.seq, "410 Gone")
    (waiting,) = store.pending("mqtt")
    assert (waiting.seq, waiting.tries, waiting.next_try) == (second.seq, 1, 2010.0)
    assert waiting.error == "nobody listens"
    (dead,) = store.dead_letters()
    assert (dead.seq, dead.sink, dead.error, dead.refused) == (third.seq, "mqtt", "410 Gone", 2000)
    assert dead.message == third.message
    assert store.dead_letters("file") == []
    assert (store.lag("mqtt"), store.lag("file")) == (1, 3)
    assert len(store.pending("file", limit=2)) == 2


UNIQUE = "Kamera-Zq7-Hinterhof"


def bytes_on_disk(store: Store) -> bytes:
    return b"".join(path.read_bytes() for path in store.path.parent.iterdir())


def fill(store: Store, n: int) -> None:
    """Events of two cameras in turn, with poses and refused messages."""
    for number in range(n):
        camera = UNIQUE if number % 2 else "yard"
        one = record(camera, number, why=f"{camera} " * (number % 40))
        store.change("new", one)
        store.put_poses(one.id, f"poses of {camera} ".encode() * number)
        store.put_explanation(one.id, {"of": camera})
        if number % 3:
            store.change("end", one.ended("calm", one.start_time + 2))
    for letter in store.pending("mqtt", limit=20):
        store.outbox.refused("mqtt", letter.seq, f"no {letter.message['after']['camera']} here")


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
                for letter in store.pending(sink, 2):
                    store.delivered(sink, letter.seq)


@pytest.mark.slow
def test_pages_that_were_split_keep_no_copy_of_what_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = database._connect

    def without_waiting_for_the_disk(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(database, "_connect", without_waiting_for_the_disk)
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
    assert all(letter.message["after"]["camera"] == "yard" for letter in store.pending("file"))


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
    assert store.lag("mqtt") == 0


def test_a_deletion_by_time_takes_every_event_that_touches_the_span(store: Store) -> None:
    for number in (0, 10, 20, 30):
        one = record(number=number)
        store.change("new", one)
        store.change("end", one.ended("calm", one.start_time + 5))
    assert store.delete(after=1012.0, before=1030.0).events == 2
    assert [one.frame_seq for one in store.events()] == [30, 0]


def test_what_is_too_old_goes_poses_first(store: Store) -> None:
    day = 86400.0
    for number, end in ((0, 1 * day), (1, 24 * day), (2, 31 * day)):
        one = record(UNIQUE if number == 0 else "yard", number)
        store.change("new", one)
        store.put_poses(one.id, f"poses {number}".encode())
        store.put_explanation(one.id, {"number": number})
        store.change("end", one.ended("calm", end))
    store.change("new", record(number=3))
    done = store.retain(Days(30, 7), now=32 * day)
    assert (done.events, done.poses) == (1, 1)
    assert [one.frame_seq for one in store.events()] == [3, 2, 1]
    assert store.poses(record(number=1).id) is None
    assert store.explanation(record(number=1).id) is None
    assert store.poses(record(number=2).id) == b"poses 2"
    assert UNIQUE.encode() not in bytes_on_disk(store)
    assert b"poses 1" not in bytes_on_disk(store)
    assert store.retain(Days(30, 7), now=32 * day).events == 0


def test_somebody_who_reads_for_long_puts_the_end_of_a_deletion_off(store: Store) -> None:
    fill(store, 6)
    store._database._writer.execute("PRAGMA busy_timeout = 50")
    with store._database.read() as reader:
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(DataError, match="somebody reads the store"):
            store.delete(camera=UNIQUE, include_open=True)
        assert store.events(camera=UNIQUE) == []
    store.retain(Days(1e6, 1e6), now=3000.0)
    assert UNIQUE.encode() not in bytes_on_disk(store)


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
        assert {name for (name,) in tables} == listed | {"epochs"}


def test_a_backup_holds_everything_and_comes_back(store: Store, tmp_path: Path) -> None:
    fill(store, 30)
    store.backup(tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    epoch = store.next_epoch("yard")
    store.delete(include_open=True)
    with pytest.raises(DataError, match="stop the site first"):
        restore(tmp_path / "copy.db", store.path)
    store.close()
    restore(tmp_path / "copy.db", store.path)
    assert sorted(path.name for path in store.path.parent.iterdir()) == ["events.db"]
    again = Store(store.path, SINKS, clock=lambda: 10.0)
    assert len(again.events(limit=None)) == 30
    assert again.lag("mqtt") == 30
    assert again.poses(record(UNIQUE, 1).id) is not None
    assert again.next_epoch("yard") > epoch
    again.close()


def test_a_backup_is_restored_where_nothing_is_and_over_what_is_damaged(
    store: Store, tmp_path: Path
) -> None:
    store.change("new", record())
    store.backup(tmp_path / "copy.db")
    for place in (tmp_path / "new" / "events.db", tmp_path / "broken.db"):
        if place.name == "broken.db":
            place.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
        restore(tmp_path / "copy.db", place)
        again = Store(place)
        assert again.events() == [record()]
        again.close()


def test_what_is_no_backup_is_refused_and_changes_nothing(store: Store, tmp_path: Path) -> None:
    store.change("new", record())
    store.backup(tmp_path / "copy.db")
    store.close()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "cut").write_bytes((tmp_path / "copy.db").read_bytes()[:9000])
    with closing(sqlite3.connect(tmp_path / "other")) as connection:
        connection.execute("CREATE TABLE a (b)")
    for name in ("none", "text", "cut", "other"):
        with pytest.raises(DataError, match=r"expected a .*backup"):
            restore(tmp_path / name, store.path)
    again = Store(store.path)
    assert again.events() == [record()]
    again.close()


def test_another_database_is_not_replaced_by_a_backup(store: Store, tmp_path: Path) -> None:
    store.backup(tmp_path / "copy.db")
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE a (b)")
    before = other.read_bytes()
    with pytest.raises(DataError, match="expected an event store or nothing"):
        restore(tmp_path / "copy.db", other)
    assert other.read_bytes() == before


def test_a_damaged_store_is_a_sentence_with_a_remedy(store: Store) -> None:
    fill(store, 20)
    store.close()
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store.path.write_bytes(content)
    broken = Store(store.path)
    with pytest.raises(DataError, match="malformed") as caught:
        broken.events()
    assert "restore a backup" in caught.value.hint
    broken.close()


def test_a_backup_onto_the_store_itself_is_refused(store: Store) -> None:
    with pytest.raises(DataError, match="another place"):
        store.backup(store.path)


def test_every_commit_waits_for_the_disk(store: Store) -> None:
    with store._database.write() as writer:
        assert writer.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert writer.execute("PRAGMA synchronous").fetchone()[0] == 2  # FULL


def test_an_event_and_its_messages_are_stored_together_or_not_at_all(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError("no room for a message")

    monkeypatch.setattr(store.outbox, "put", fail)
    with pytest.raises(OSError, match="no room"):
        store.change("new", record())
    assert store.events() == []


def test_files_are_for_their_owner_alone(store: Store) -> None:
    store.change("new", record())
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello, this is no database at all" * 99)
    with closing(sqlite3.connect(tmp_path / "other")) as connection:
        connection.execute("CREATE TABLE a (b)")
    for name in ("text", "other"):
        with pytest.raises(DataError, match="expected an event store"):
            Store(tmp_path / name)
    with pytest.raises(DataError, match="got nothing there"):
        Store(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()


def test_an_older_store_is_brought_up_to_date_and_a_newer_one_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.change("new", record())
    store.close()
    newer = (*schema.MIGRATIONS, "ALTER TABLE events ADD COLUMN note TEXT DEFAULT 'none'")
    monkeypatch.setattr(database, "MIGRATIONS", newer)
    again = Store(store.path)
    assert again.events() == [record()]
    again.close()
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT note FROM events").fetchall() == [("none",)]
    monkeypatch.undo()
    with pytest.raises(DataError, match="of version 1 or older, got 2"):
        Store(store.path)


def test_a_migration_that_fails_leaves_the_store_as_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.change("new", record())
    store.close()
    broken = (*schema.MIGRATIONS, "DROP TABLE poses; CREATE TABLE events (a)")
    monkeypatch.setattr(database, "MIGRATIONS", broken)
    with pytest.raises(DataError, match="already exists"):
        Store(store.path)
    monkeypatch.undo()
    again = Store(store.path)
    assert again.put_poses(record().id, b"poses")
    again.close()


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(store: Store) -> None:
    store.change("new", record(number=0))
    writer = store._database._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DataError, match="disk is full"):
        store.change("new", record(number=1, why="long " * 5000))
    assert [one.frame_seq for one in store.events()] == [0]
    assert store.lag("mqtt") == 1
    writer.execute("PRAGMA max_page_count = 1000000")
    assert store.change("new", record(number=1, why="long " * 5000)) == "stored"
    assert store.lag("mqtt") == 2


def test_threads_share_a_store(store: Store) -> None:
    def write(camera: str) -> None:
        for number in range(20):
            store.change("new", record(camera, number))
            store.change("end", record(camera, number).ended("calm", 2000.0))

    threads = [threading.Thread(target=write, args=(f"camera {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.events(limit=None)) == 80
    assert store.lag("mqtt") == 160


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from stepvad.live.store import Store
from stepvad.live.record import event_id
from tests.live.records import record

store = Store(Path(sys.argv[1]), ("file", "mqtt"))
epoch = store.next_epoch("yard")
print("epoch", epoch, flush=True)
for number in range(100_000):
    one = replace(record("yard", number), id=event_id("yard", epoch, 7, number), epoch=epoch)
    store.change("new", one)
    print("new", one.id, flush=True)
    store.put_poses(one.id, bytes(5000))
    store.change("end", one.ended("calm", 2000.0))
    print("end", one.id, flush=True)
    if number % 5 == 4:
        for letter in store.pending("file", 3):
            store.delivered("file", letter.seq)
            print("delivered", letter.seq, flush=True)
"""


def killed(path: Path, after_s: float) -> list[list[str]]:
    """What a process that writes said before it was killed; a torn last line is left out."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read()
    return [line.split() for line in said[: said.rfind(b"\n")].decode().splitlines()]


@pytest.mark.slow
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    said: list[list[str]] = []
    for turn in range(12):
        said += killed(path, after_s=0.05 + 0.037 * turn)
        store = Store(path, SINKS)
        assert len(store.end_open("interrupted", time.time())) <= 1
        store.close()
    store = Store(path, SINKS)
    told = {kind: [word for first, word in said if first == kind] for kind, _ in said}
    assert len({*told["epoch"]}) == 12
    assert len(told["new"]) > 100
    assert len({*told["new"]}) == len(told["new"])
    stored = {one.id: one for one in store.events(limit=None)}
    assert {*told["new"]} <= stored.keys()
    assert all(stored[id].ended_by == "calm" for id in told["end"])
    assert not any(one.is_open for one in stored.values())
    letters = [(one.kind, one.event_id) for one in store.pending("mqtt", limit=100_000)]
    assert len(letters) == len({*letters}) == 2 * len(stored)
    assert not {int(seq) for seq in told["delivered"]} & {
        one.seq for one in store.pending("file", limit=100_000)
    }
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()


def test_a_record_with_other_words_is_a_change(store: Store) -> None:
    store.change("new", record())
    assert store.change("update", replace(record(), why="left knee")) == "stored"
