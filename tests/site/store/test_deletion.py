"""What is deleted or too old is gone from the disk."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.settings.sections import RetentionSettings
from stepvad.site.store import database
from stepvad.site.store.eventstore import Store
from tests.site.records import SINKS, UNIQUE, explanation, fill, record


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
                    store.outbox.delivered(sink, message.seq)


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
    store._database._writer.execute("PRAGMA busy_timeout = 50")
    with store._database.read() as reader:
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(DataError, match="a reader keeps the log"):
            store.delete(camera=UNIQUE, include_open=True)
        assert store.events(camera=UNIQUE) == []
    store.retain(RetentionSettings(events_days=1e6, poses_days=1e6), now=3000.0)
    assert UNIQUE.encode() not in bytes_on_disk(store)
