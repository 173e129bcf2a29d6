"""A SQLite database with one writing process: durable, without traces of deleted rows."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from stepvad.errors import DataError
from stepvad.files import sqlitefile
from stepvad.site.store.errors import Fault, StoreError, store_error
from stepvad.site.store.schema import EVENT_STORE

__all__ = ["BUSY_S", "Database", "Fault", "StoreError"]

BUSY_S = 30.0
"""Timeout for the write lock."""


class Database:
    """One writing connection behind a lock, and a new connection for each read.

    Changes of a `write` block are on disk when the block exits: the write-ahead log is synced at
    every commit.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = Path(path)
        self.is_clean = True
        """Whether the last scrub succeeded; if not, traces of deleted rows may be left."""
        self._is_broken = False
        """Whether the last write failed with an error that may require reopening the file."""
        self._lock = threading.RLock()
        if not create and not self.path.is_file():
            raise DataError(
                f"{self.path}: expected an event store, got nothing there",
                hint="give the data directory of a site that has run",
            )
        try:
            sqlitefile.make_private(self.path)
            self._writer = _connect(self.path)
        except (sqlite3.DatabaseError, OSError) as error:
            raise store_error(self.path, "that can be opened", error) from error
        try:
            with self.write() as connection:
                if sqlitefile.is_empty(connection):
                    EVENT_STORE.create(connection)
                EVENT_STORE.check(connection, self.path)
        except BaseException:
            self._writer.close()
            raise

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed to disk on exit, rolled back on an error."""
        with self._lock:
            try:
                self._reopen_if_broken()
                self._undo()  # the last rollback may have failed with the disk
                self._writer.execute("BEGIN IMMEDIATE")
                yield self._writer
                self._writer.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                with suppress(sqlite3.Error):
                    self._undo()
                failure = store_error(self.path, "that can be written", error)
                self._is_broken |= failure.fault in ("read-only", "other")
                raise failure from error
            except BaseException:
                with suppress(sqlite3.Error):
                    self._undo()
                raise

    def _reopen_if_broken(self) -> None:
        """Reopen the file after a disk failure: the disk may have been remounted."""
        if not self._is_broken:
            return
        if not self.path.exists() or not self.path.stat().st_size:
            raise StoreError(  # SQLite would create an empty one
                f"{self.path}: expected the event store that was there before, got no file",
                hint="mount its disk again; events wait in memory until then",
            )
        writer = _connect(self.path)
        with suppress(sqlite3.Error):
            self._writer.close()
        self._writer, self._is_broken = writer, False

    def _undo(self) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A read-only snapshot; does not block writers."""
        try:
            with closing(_connect(self.path)) as connection:
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                yield connection
        except sqlite3.DatabaseError as error:
            raise store_error(self.path, "that can be read", error) from error

    def scrub(self) -> None:
        """Remove all traces of deleted rows from the files.

        Deleted rows are overwritten in place, but split pages may hold copies: the file is rebuilt
        and the log truncated.
        """
        self.is_clean = False
        try:
            with self._lock:
                self._writer.execute("VACUUM")
                busy = not self._truncate_log()
        except sqlite3.DatabaseError as error:
            wanted = "that can be built again without the deleted rows"
            raise store_error(self.path, wanted, error) from error
        if busy:
            raise StoreError(
                f"{self.path}: the rows are deleted, but a reader keeps the log from being "
                "truncated",
                hint="stop other programs that have the store open, and delete again",
                fault="busy",
            )
        self.is_clean = True

    def _truncate_log(self) -> bool:
        """Whether the log could be emptied.

        SQLite waits for readers, but not for another connection that empties the log itself.
        """
        deadline, pause_s = time.monotonic() + BUSY_S, 0.01
        while True:
            busy, _, _ = self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy or time.monotonic() > deadline:
                return not busy
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.5)

    def files(self) -> list[Path]:
        """The database file, and the WAL and shared-memory files if they exist."""
        names = [self.path.name + end for end in ("", "-wal", "-shm")]
        return [path for name in names if (path := self.path.with_name(name)).exists()]

    def copy(self, path: Path) -> None:
        """Write a compact, consistent snapshot; does not block writers."""
        try:
            with closing(_connect(self.path)) as connection:
                connection.execute("VACUUM INTO ?", (str(path),))
        except sqlite3.DatabaseError as error:
            raise store_error(path, "that can be copied there", error) from error

    def close(self) -> None:
        """Close the file; the last connection to close checkpoints the log."""
        with self._lock:
            self._writer.close()


def _connect(path: Path) -> sqlite3.Connection:
    return sqlitefile.connect(path, timeout_s=BUSY_S)


def schema_of(connection: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """The columns of every table."""
    rows = connection.execute(
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c "
        "WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid"
    ).fetchall()
    return {name: tuple(c for table, c in rows if table == name) for name in dict(rows)}
