"""The file under the store: durable, private, whole, and brought up to date."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.site.store import database
from stepvad.site.store.eventstore import Store
from stepvad.site.store.schema import EVENT_STORE
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


def test_a_store_of_another_version_is_refused(store: Store) -> None:
    store.close()
    for version in (0, 2):
        with closing(sqlite3.connect(store.path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(DataError, match=f"expected an event store of version 1, got {version}"):
            Store(store.path)


def test_a_store_is_created_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = replace(EVENT_STORE, tables=EVENT_STORE.tables + "; CREATE TABLE events (a)")
    monkeypatch.setattr(database, "EVENT_STORE", broken)
    with pytest.raises(DataError, match="already exists"):
        Store(tmp_path / "events.db")
    monkeypatch.undo()
    Store(tmp_path / "events.db").close()


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(store: Store) -> None:
    store.change("new", record(number=0))
    writer = store._database._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DataError, match="disk is full"):
        store.change("new", record(number=1, why="long " * 5000))
    assert [one.frame_seq for one in store.events()] == [0]
    assert store.outbox.lag("mqtt") == 1
    writer.execute("PRAGMA max_page_count = 1000000")
    assert store.change("new", record(number=1, why="long " * 5000)) == "stored"
    assert store.outbox.lag("mqtt") == 2


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
    assert store.outbox.lag("mqtt") == 160


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
            for message in store.outbox.pending("file", 3):
                store.outbox.delivered("file", message.seq)
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
            assert len(store.end_interrupted(time.time())) <= 1
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
    messages = [(one.kind, one.event_id) for one in store.outbox.pending("mqtt", limit=100_000)]
    assert len(messages) == len({*messages}) == 2 * len(stored)
    assert not {int(seq) for seq in told["delivered"]} & {
        one.seq for one in store.outbox.pending("file", limit=100_000)
    }
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store.close()
