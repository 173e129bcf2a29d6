"""Restore the event store from a backup, which is checked first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from stepvad.errors import DataError
from stepvad.files import remove_leftovers, replacing
from stepvad.site.app import exclusive_lock
from stepvad.site.store.database import EVENT_STORE, fault_of, is_empty_database, store_error

_HINT = "take another backup; this one was damaged or is something else"


def restore(path: Path, onto: Path) -> None:
    """Replace a store that is not in use with a backup.

    The backup is copied next to the store and checked there, then takes its name in one step. The
    numbers of connections follow the clock, so none is assigned twice.
    """
    if not path.is_file() or (onto.exists() and path.samefile(onto)):
        got = "the store that it would replace" if path.is_file() else "no such file"
        raise DataError(
            f"{path}: expected a backup, got {got}",
            hint="create one with: stepvad events backup FILE",
        )
    onto.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with exclusive_lock(onto.parent, wait_s=0.0):
        remove_leftovers(onto.parent)
        with replacing(onto, DataError) as staged:
            _copy(path, staged)
            if onto.exists():
                _end_log(onto)


def _copy(path: Path, staged: Path) -> None:
    """Copy a backup with its log; raise if it is none, of another version, or damaged."""
    # a file that lacks pages at its end is torn, and SQLite would read zeros there
    with path.open("rb") as file:
        header = file.read(32)
    pages, page = int.from_bytes(header[28:32]), int.from_bytes(header[16:18])
    if path.stat().st_size < pages * (1 << 16 if page == 1 else page):
        raise DataError(f"{path}: expected a complete backup, got a truncated one", hint=_HINT)
    try:
        address = f"{path.resolve().as_uri()}?mode=ro"
        with (
            closing(sqlite3.connect(address, uri=True)) as backup,
            closing(sqlite3.connect(staged, isolation_level=None)) as copy,
        ):
            EVENT_STORE.verify(backup, path, "a backup of an event store")
            backup.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            (found,) = copy.execute("PRAGMA integrity_check").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if isinstance(error, sqlite3.Error) and fault_of(error) == "full":
            raise store_error(staged, "that can be replaced", error) from error
        raise DataError(f"{path}: expected a complete backup, got: {error}", hint=_HINT) from error
    if found != "ok":
        raise DataError(f"{path}: expected a complete backup, got: {found}", hint=_HINT)


def _end_log(store: Path) -> None:
    """End the log of the old store, which must not be read into the new one."""
    try:
        with closing(sqlite3.connect(store, timeout=1)) as connection:
            if not is_empty_database(connection):
                EVENT_STORE.verify(connection, store)
            connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        raise DataError(
            f"{store}: expected a store that is not open, got one in use: {error}",
            hint="stop the site first",
        ) from error
    except sqlite3.DatabaseError:  # damaged, which is a reason to restore
        for end in ("-wal", "-shm"):
            store.with_name(store.name + end).unlink(missing_ok=True)
