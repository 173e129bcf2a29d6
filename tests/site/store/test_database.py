"""The database of a site: writes, snapshots, its schema, and errors of a disk."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.site.store import database, events
from stepvad.site.store.database import EVENT_STORE, Fault, StoreError, fault_of
from stepvad.site.store.events import Store
from tests.disks import small_disk
from tests.processes import Forks
from tests.site.records import SINKS, fill, record


def test_every_commit_waits_for_the_disk(store: Store) -> None:
    with store._database.transaction() as writer:
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
    monkeypatch.setattr(events, "EVENT_STORE", broken)
    with pytest.raises(DataError, match="already exists"):
        Store(tmp_path / "events.db")
    monkeypatch.undo()
    Store(tmp_path / "events.db").close()


def test_a_full_disk_loses_nothing_and_is_over_when_there_is_room(store: Store) -> None:
    store.change("new", record(number=0))
    writer = store._database._usable()
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
from stepvad.site.store.events import Store
from stepvad.events.record import event_id
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
                store.outbox.delivered(message)
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


BY_CODE: dict[str, Fault] = {
    "SQLITE_FULL": "full",
    "SQLITE_BUSY": "busy",
    "SQLITE_BUSY_SNAPSHOT": "busy",
    "SQLITE_LOCKED": "busy",
    "SQLITE_PROTOCOL": "busy",
    "SQLITE_READONLY_DIRECTORY": "read-only",
    "SQLITE_PERM": "read-only",
    "SQLITE_CORRUPT_INDEX": "damaged",
    "SQLITE_NOTADB": "damaged",
    "SQLITE_IOERR_WRITE": "other",
    "SQLITE_CONSTRAINT_FOREIGNKEY": "other",
}


@pytest.mark.parametrize("name", BY_CODE)
def test_codes_of_sqlite_have_a_fault(name: str) -> None:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorcode = getattr(sqlite3, name)
    assert fault_of(error) == BY_CODE[name]


def fault_of_writing(store: Store) -> Fault:
    """Write until it fails."""

    def write() -> None:
        for number in range(10_000):
            store.change("new", record(number=number, why="long " * 2000))

    with pytest.raises(StoreError) as caught:
        write()
    assert caught.value.hint
    return caught.value.fault


def test_a_disk_that_is_really_full() -> None:
    with small_disk(1) as disk, closing(Store(disk.path / "events.db", SINKS)) as store:
        assert fault_of_writing(store) == "full"
        count = len(store.events(limit=None))
        disk.fill()
        with pytest.raises(StoreError) as caught:
            store.change("new", record("other", why="long " * 2000))
        assert caught.value.fault == "full"
        assert len(store.events(limit=None)) == count


def test_a_store_on_a_disk_that_was_full_before_it() -> None:
    with small_disk(1) as disk:
        disk.fill()
        with pytest.raises(StoreError) as caught:
            Store(disk.path / "events.db", SINKS)
        assert caught.value.fault == "full"
        disk.free()
        with closing(Store(disk.path / "events.db", SINKS)) as store:
            assert store.change("new", record()) == "stored"


def test_a_limit_of_pages_is_a_full_disk(store: Store) -> None:
    store.change("new", record(number=-1))
    writer = store._database._usable()
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    assert fault_of_writing(store) == "full"


def test_a_disk_that_turns_read_only_is_not_a_full_one() -> None:
    with small_disk(4) as disk:
        store = Store(disk.path / "events.db", SINKS)
        store.change("new", record())
        store.close()
        subprocess.run(["mount", "-o", "remount,ro", disk.path], check=True)
        with pytest.raises(StoreError) as caught:
            Store(disk.path / "events.db", SINKS)
        assert caught.value.fault == "read-only"
        subprocess.run(["mount", "-o", "remount,rw", disk.path], check=True)
        with closing(Store(disk.path / "events.db", SINKS)) as store:
            assert store.events() == [record()]


@contextmanager
def locked_by_another_process(path: Path) -> Iterator[None]:
    code = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        yield
        assert other.stdin is not None
        other.stdin.close()


def test_a_store_that_another_process_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    with closing(Store(tmp_path / "events.db", SINKS)) as store:
        with locked_by_another_process(store.path):
            assert fault_of_writing(store) == "busy"
            with pytest.raises(StoreError) as caught:
                store.delete()
            assert caught.value.fault == "busy"
        assert store.change("new", record()) == "stored"


def test_a_file_that_may_not_grow_is_neither_full_nor_damaged(tmp_path: Path) -> None:
    """SQLite says "disk I/O error" as well when a quota is used up; here there is room."""
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from pathlib import Path; from stepvad.site.store.events import Store;"
        "from stepvad.site.store.database import StoreError; from tests.site.records import record;"
        "store = Store(Path(sys.argv[1]), ['mqtt']); store.change('new', record(number=0))\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({1 << 17}, {resource.RLIM_INFINITY}))\n"
        "try:\n"
        "    for n in range(1, 1000): store.change('new', record(number=n, why='long ' * 2000))\n"
        "except StoreError as error: print(error.fault, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "events.db"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*sys.path, Path.cwd()]))},
        timeout=60,
    )
    assert done.stdout.startswith("other "), done
    assert "disk I/O error" in done.stdout


def test_bytes_that_were_overwritten_are_damage_to_writers_and_readers(store: Store) -> None:
    fill(store, 60)
    store.close()
    content = bytearray(store.path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store.path.write_bytes(content)
    with closing(Store(store.path, SINKS)) as broken:
        assert fault_of_writing(broken) == "damaged"
        with pytest.raises(StoreError) as caught:
            broken.events()
        assert caught.value.fault == "damaged"


def test_a_file_that_is_no_database_is_damage(tmp_path: Path) -> None:
    (tmp_path / "events.db").write_bytes(b"no database at all " * 400)
    with pytest.raises(StoreError) as caught:
        Store(tmp_path / "events.db", SINKS)
    assert caught.value.fault == "damaged"


def test_a_backup_to_a_full_disk_is_an_error_of_the_store(store: Store) -> None:
    fill(store, 60)
    with small_disk(1) as disk:
        disk.fill()
        with pytest.raises(StoreError) as caught:
            store.backup(disk.path / "copy.db")
        assert caught.value.fault == "full"
        assert [path.name for path in disk.path.iterdir()] == ["fills"]


def test_a_store_goes_on_after_a_transaction_that_could_not_be_undone(store: Store) -> None:
    store._database._usable().execute("BEGIN IMMEDIATE")
    assert store.change("new", record()) == "stored"
