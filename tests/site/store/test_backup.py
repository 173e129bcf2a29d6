"""Backups of the store, and what is restored or refused."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.files import replacing
from stepvad.site.app import exclusive_lock
from stepvad.site.store.backup import restore
from stepvad.site.store.events import Store
from tests.disks import small_disk
from tests.processes import Forks
from tests.site.records import SINKS, UNIQUE, fill, record


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
    assert [*content(store.path)] == ["events.db"]
    again = Store(store.path, SINKS)
    assert len(again.events(limit=None)) == 30
    assert again.outbox.lag("mqtt") == 30
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
    with pytest.raises(DataError, match="expected an event store, got another"):
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


def test_a_backup_removes_what_a_killed_one_of_another_date_left(
    store: Store, tmp_path: Path
) -> None:
    place = tmp_path / "backups"
    place.mkdir()
    with replacing(place / "monday.db") as temporary:
        left = [place / f"{temporary.name}{end}" for end in ("", "-journal")]
    for file in left:
        file.write_text("half")
        os.utime(file, (0, 0))
    store.backup(place / "tuesday.db")
    assert [path.name for path in place.iterdir() if path.name != "monday.db"] == ["tuesday.db"]


def test_a_backup_onto_the_store_itself_is_refused(store: Store) -> None:
    with pytest.raises(DataError, match="a file other than the store itself"):
        store.backup(store.path)


@pytest.fixture
def live(tmp_path: Path) -> Path:
    """The store of a site that was killed: its last events are in the log."""
    made = Store(tmp_path / "running" / "events.db", SINKS)
    fill(made, 10)
    made._database._usable().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    made.change("new", record("killed", 99))
    (tmp_path / "data").mkdir()
    for end in ("", "-wal"):
        shutil.copy(tmp_path / "running" / f"events.db{end}", tmp_path / "data")
    made.close()
    assert (tmp_path / "data" / "events.db-wal").stat().st_size > 0
    return tmp_path / "data" / "events.db"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A backup of another store."""
    made = Store(tmp_path / "other" / "events.db", SINKS)
    fill(made, 30)
    made.backup(tmp_path / "copy.db")
    made.close()
    return tmp_path / "copy.db"


def content(store: Path) -> dict[str, bytes]:
    """Every file of a data directory but its lock; -shm is an index that SQLite makes again."""
    return {
        path.name: path.read_bytes()
        for path in store.parent.iterdir()
        if not path.name.endswith("-shm") and path.name != "lock"
    }


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def overwrite(path: Path, at: int, bytes_: bytes) -> None:
    body = bytearray(path.read_bytes())
    body[at : at + len(bytes_)] = bytes_
    path.write_bytes(body)


SPOILED: dict[str, Callable[[Path], object]] = {
    "a newer version": lambda path: change(path, "PRAGMA user_version = 99"),
    "version 0": lambda path: change(path, "PRAGMA user_version = 0"),
    "a negative version": lambda path: change(path, "PRAGMA user_version = -1"),
    "another application": lambda path: change(path, "PRAGMA application_id = 7"),
    "no application": lambda path: change(path, "PRAGMA application_id = 0"),
    "cut by a byte": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "cut at a page": lambda path: path.write_bytes(path.read_bytes()[:8192]),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "nothing": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("hello " * 2000),
    "overwritten": lambda path: overwrite(path, 20_000, b"\xa5" * 9000),
    "an overwritten schema": lambda path: overwrite(path, 3000, b"\xff" * 1000),
    "a table that is not UTF-8": lambda path: overwrite(
        path, path.read_bytes().index(b"CREATE TABLE epochs") + 8, b"\xff\xfe"
    ),
}


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_backup_that_is_refused_changes_no_byte(live: Path, copy: Path, spoil: str) -> None:
    SPOILED[spoil](copy)
    before = content(live)
    with pytest.raises(DataError, match=r"expected .*backup") as caught:
        restore(copy, live)
    assert str(copy) in caught.value.problem
    assert caught.value.hint
    assert content(live) == before


def test_the_store_itself_and_what_is_no_file_are_refused(live: Path, tmp_path: Path) -> None:
    before = content(live)
    for path in (live, tmp_path, tmp_path / "none"):
        with pytest.raises(DataError, match="expected a backup"):
            restore(path, live)
    assert content(live) == before


def test_a_store_in_use_changes_no_byte(live: Path, copy: Path) -> None:
    with closing(Store(live, SINKS)) as store:
        before = content(live)
        with pytest.raises(DataError, match="one in use") as caught:
            restore(copy, live)
        assert caught.value.hint == "stop the site first"
        assert content(live) == before
        assert store.event(record("killed", 99).id) is not None


def test_a_running_site_changes_no_byte_even_if_its_store_is_damaged(
    live: Path, copy: Path
) -> None:
    live.write_bytes(b"x" * 5000)
    (live.parent / "lock").touch()
    before = content(live)
    with (live.parent / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another running site"):
            restore(copy, live)
        assert content(live) == before
    restore(copy, live)


def test_a_disk_without_room_for_the_copy_changes_no_byte(live: Path, copy: Path) -> None:
    with small_disk(1) as disk:
        shutil.copytree(live.parent, disk.path / "data")
        disk.fill()
        there = disk.path / "data" / "events.db"
        before = content(there)
        with pytest.raises(DataError, match="disk is full"):
            restore(copy, there)
        assert content(there) == before


def test_a_damaged_store_and_its_log_are_replaced(live: Path, copy: Path) -> None:
    live.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    restore(copy, live)
    assert [*content(live)] == [live.name]
    assert stat.S_IMODE(live.stat().st_mode) == 0o600
    with closing(Store(live)) as store:
        assert len(store.events(limit=None)) == 30


def test_a_copied_data_directory_comes_back_with_its_log(live: Path, tmp_path: Path) -> None:
    restore(live, tmp_path / "new" / "events.db")
    with closing(Store(tmp_path / "new" / "events.db")) as store:
        assert store.event(record("killed", 99).id) is not None


STOPPED = """
import os, signal, sys
from pathlib import Path
from stepvad.site.store import backup as module
check = getattr(module, sys.argv[1])

def check_and_die(*args):
    check(*args)
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))

setattr(module, sys.argv[1], check_and_die)
module.restore(Path(sys.argv[3]), Path(sys.argv[4]))
"""


@pytest.mark.parametrize("after", ["_copy", "_end_log"])
def test_what_a_killed_restore_left_goes_with_the_next_one(
    live: Path, copy: Path, after: str
) -> None:
    by = "SIGTERM" if after == "_copy" else "SIGKILL"
    command = [sys.executable, "-c", STOPPED, after, by, str(copy), str(live)]
    assert subprocess.run(command, check=False).returncode < 0
    left = [*live.parent.glob(".*")]
    assert left, "it was killed in the middle"
    for path in left:
        os.utime(path, (0, 0))
    restore(copy, live)
    assert [*content(live)] == [live.name]


def test_a_site_that_starts_removes_what_a_killed_restore_left(live: Path, copy: Path) -> None:
    command = [sys.executable, "-c", STOPPED, "_copy", "SIGTERM", str(copy), str(live)]
    assert subprocess.run(command, check=False).returncode < 0
    for path in live.parent.glob(".*"):
        os.utime(path, (0, 0))
    with exclusive_lock(live.parent):
        assert not [*live.parent.glob(".*")]


RESTORER = """
import itertools
from pathlib import Path
from stepvad.site.store.backup import restore

def main(*words):
    onto, *copies = map(Path, words)
    print("begins", flush=True)
    for copy in itertools.cycle(copies):
        restore(copy, onto)
"""


@pytest.mark.slow
def test_killed_at_any_moment_the_store_is_the_old_one_or_the_new_one(
    live: Path, copy: Path, tmp_path: Path
) -> None:
    with closing(Store(live, SINKS)) as store:
        store.backup(tmp_path / "small.db")
    seen: set[int] = set()
    with Forks(RESTORER) as restorers:
        for turn in range(64):  # later kills where the machine is slow
            if turn >= 16 and len(seen) > 1:
                break
            process = restorers.start(live, copy, tmp_path / "small.db")
            assert restorers.line() == "begins\n"
            time.sleep(0.05 + 0.017 * turn)
            os.kill(process, signal.SIGKILL)
            assert restorers.rest() == []
            with closing(Store(live)) as store:
                seen.add(len(store.events(limit=None)))
            with closing(sqlite3.connect(live)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert seen == {11, 30}
