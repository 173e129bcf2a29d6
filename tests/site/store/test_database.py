"""The file under the store: durable, private, whole, and brought up to date."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.site.store import database, schema
from stepvad.site.store.eventstore import Store
from tests.processes import Forks
from tests.site.records import SINKS, record


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
    known = len(schema.MIGRATIONS)
    with pytest.raises(DataError, match=f"of version {known} or older, got {known + 1}"):
        Store(store.path)


def test_a_store_of_every_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    body = json.dumps(record().to_json())
    for version in range(1, len(schema.MIGRATIONS)):
        path = tmp_path / f"{version}.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            database.Database.upgrade(connection, 0, version)
            connection.execute(
                "INSERT INTO events (id, camera, label, start_time, changed, body) "
                "VALUES (?, 'yard', 'anomaly', 1000, 1001, ?)",
                (record().id, body),
            )
        with closing(Store(path, SINKS)) as store:
            assert store.events() == [record()]
            assert store.change("end", record().ended("calm", 1010.0)) == "stored"
            assert store.stored().cameras == {"yard": 1}


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
from dataclasses import replace
from pathlib import Path
from stepvad.site.store.eventstore import Store
from stepvad.incidents.record import event_id
from tests.site.records import record

def main(path):
    store = Store(Path(path), ("file", "mqtt"))
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
            for message in store.pending("file", 3):
                store.delivered("file", message.seq)
                print("delivered", message.seq, flush=True)
"""


def killed(writers: Forks, path: Path, lines: int, after_s: float) -> list[list[str]]:
    """What a process that writes said: that many lines, and more until it was killed."""
    process = writers.start(path)
    first = [writers.line() for _ in range(lines)]
    time.sleep(after_s)
    os.kill(process, signal.SIGKILL)
    return [line.split() for line in (*first, *writers.rest())]


@pytest.mark.slow
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    said: list[list[str]] = []
    with Forks(WRITER) as writers:
        for turn in range(12):
            said += killed(writers, path, lines=3 + 5 * turn, after_s=0.002 * turn)
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
    messages = [(one.kind, one.event_id) for one in store.pending("mqtt", limit=100_000)]
    assert len(messages) == len({*messages}) == 2 * len(stored)
    assert not {int(seq) for seq in told["delivered"]} & {
        one.seq for one in store.pending("file", limit=100_000)
    }
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()
