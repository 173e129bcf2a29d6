"""Restore the event store from a backup, which is checked first."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from stepvad.errors import DataError
from stepvad.events.record import DAY_S
from stepvad.files import remove_leftovers, temporary_directory
from stepvad.site.settings.sections import RetentionSettings
from stepvad.site.store.database import EVENT_STORE, is_empty_database, store_error

BEFORE = ".before-restore"
"""Suffix of the replaced store, which is kept; there is at most one."""
LOCK = "lock"
"""Lock file of a running site in its data directory."""
_HINT = "take another backup; this one was damaged or is something else"


def restore(path: Path, onto: Path) -> Path | None:
    """Replace a store that is not in use with a backup; return where the old one is kept.

    The backup is copied next to the store and checked there. Only then are the two
    swapped. Epochs continue from the larger number of both, so no id is assigned twice.
    """
    if not path.is_file() or (onto.exists() and path.samefile(onto)):
        got = "the store that it would replace" if path.is_file() else "no such file"
        raise DataError(
            f"{path}: expected a backup, got {got}",
            hint="create one with: stepvad events backup FILE",
        )
    onto.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # a copy beside the store, so that the swap is one rename
    with _exclusive_lock(onto.parent), _copied(path, onto) as staged:
        _check(staged, path)
        if onto.exists():
            _go_on_from(_epochs(onto), staged)
        return _swap(staged, onto)


@contextmanager
def _exclusive_lock(data: Path) -> Iterator[None]:
    """Lock the data directory against a site; raise if one is running."""
    try:
        file = (data / LOCK).open("r+")
    except FileNotFoundError:
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise _in_use(data) from None
        yield


@contextmanager
def _copied(path: Path, onto: Path) -> Iterator[Path]:
    """A copy of a backup and its WAL in a temporary directory on the disk of the store."""
    remove_leftovers(onto.parent)
    try:
        with temporary_directory(onto.parent) as directory:
            staged = directory / onto.name
            for end in ("", "-wal"):
                source = path.with_name(path.name + end)
                if source.exists():
                    copy = staged.with_name(staged.name + end)
                    copy.touch(mode=0o600, exist_ok=False)
                    shutil.copyfile(source, copy)
            yield staged
    except OSError as error:
        raise store_error(onto, "that can be replaced", error) from error


def _check(staged: Path, path: Path) -> None:
    """Raise if a file is not a backup, is of another version, or is damaged."""
    with staged.open("rb") as file:
        header = file.read(32)
    # the header says how many pages there are: a shorter file is torn
    pages, page = int.from_bytes(header[28:32]), int.from_bytes(header[16:18])
    if staged.stat().st_size < pages * (1 << 16 if page == 1 else page):
        raise DataError(f"{path}: expected a complete backup, got a truncated one", hint=_HINT)
    try:
        with closing(sqlite3.connect(staged, isolation_level=None)) as connection:
            EVENT_STORE.verify(connection, path, "a backup of an event store")
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                raise DataError(f"{path}: expected a complete backup, got: {found[0]}", hint=_HINT)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path}: expected a complete backup, got: {error}", hint=_HINT) from error


def _epochs(store: Path) -> dict[str, int]:
    """The epochs of a store, read without modifying it."""
    try:
        address = f"{store.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=1)) as connection:
            if is_empty_database(connection):
                return {}
            EVENT_STORE.verify(connection, store)
            rows = connection.execute("SELECT camera_key, last FROM epochs").fetchall()
            return {str(key): int(last) for key, last in rows}
    except (sqlite3.DatabaseError, ValueError):  # a damaged store is a reason to restore
        return {}


def _go_on_from(epochs: dict[str, int], staged: Path) -> None:
    try:
        with closing(sqlite3.connect(staged)) as connection, connection:
            connection.executemany(
                "INSERT INTO epochs VALUES (?1, ?2) ON CONFLICT (camera_key) "
                "DO UPDATE SET last = max(last, ?2)",
                epochs.items(),
            )
    except sqlite3.DatabaseError as error:
        raise store_error(staged, "that can be prepared", error) from error


def _swap(staged: Path, onto: Path) -> Path | None:
    """Move the staged file into place; return the new path of the old store, if there was one."""
    with staged.open("rb") as written:
        os.fsync(written.fileno())
    # the old store keeps a second name while the new one takes its place
    before = onto.with_name(onto.name + BEFORE) if onto.exists() else None
    if before is not None:
        _keep(onto, before)
    staged.replace(onto)
    # the new name is durable, too
    directory = os.open(onto.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return before


def _keep(store: Path, before: Path) -> None:
    """Link the old store to a second name, whole; raise if it is in use."""
    with closing(sqlite3.connect(store, timeout=1)) as connection:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()  # ends its log
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise _in_use(store) from None
            raise store_error(store, "that can be replaced", error) from error
        except sqlite3.DatabaseError:  # damaged: keep it as it is, with its log
            mode = "delete"
        if mode != "delete":
            raise _in_use(store)
    for end in ("-shm", "-wal", ""):
        old, new = (path.with_name(path.name + end) for path in (store, before))
        new.unlink(missing_ok=True)
        if end and old.exists():
            old.replace(new)
    os.link(store, before)


def _in_use(place: Path) -> DataError:
    return DataError(
        f"{place}: expected a store that is not open, got one in use",
        hint="stop the site first",
    )


def forget_replaced(store: Path, retention: RetentionSettings, time: float) -> None:
    """Delete the store replaced by a restore once its newest row would have expired."""
    replaced = store.with_name(store.name + BEFORE)
    days = min(retention.events_days, retention.poses_days)
    with suppress(OSError):
        if replaced.stat().st_mtime < time - days * DAY_S:
            for end in ("-wal", "-shm", ""):
                replaced.with_name(replaced.name + end).unlink(missing_ok=True)
