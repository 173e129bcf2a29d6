"""A SQLite database with one writing process: its schema, its connections and its errors."""

from __future__ import annotations

import errno
import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stepvad.errors import DataError, os_reason

FILE_VERSION = 1
"""Version of all layouts; a file of another version is refused."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The tables of one kind of file."""

    what: str
    """The kind in words, such as `an event store`."""
    application_id: int
    tables: str
    """SQL that creates them."""
    hint: str
    """Remedy if a file is of another kind."""
    repair: str
    """Remedy if a file is damaged."""

    def create(self, connection: sqlite3.Connection) -> None:
        """Create the tables in an empty file, in the caller's transaction."""
        # in one transaction: there is a whole file or none
        for statement in self.tables.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {FILE_VERSION}")

    def verify(self, connection: sqlite3.Connection, path: Path | None, what: str = "") -> None:
        """Raise `DataError` for another database or another version."""
        what = what or self.what
        (found,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if found != self.application_id:
            raise DataError(f"{path}: expected {what}, got another SQLite database", hint=self.hint)
        if version != FILE_VERSION:
            raise DataError(
                f"{path}: expected {what} of version {FILE_VERSION}, got {version}",
                hint="install the version of stepvad that wrote it",
            )


def connect_durably(path: Path | None, *, timeout_s: float) -> sqlite3.Connection:
    """A durable connection that overwrites deleted rows; in memory without a path."""
    connection = sqlite3.connect(
        ":memory:" if path is None else path,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def is_empty_database(connection: sqlite3.Connection) -> bool:
    """True if a file has neither tables nor a version."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return not tables and not version


BUSY_S = 30.0
"""Timeout for the write lock."""

Fault = Literal["full", "busy", "read-only", "damaged", "other"]
SQLITE_FAULTS: dict[int, Fault] = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_PROTOCOL: "busy",
    sqlite3.SQLITE_READONLY: "read-only",
    sqlite3.SQLITE_PERM: "read-only",
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
}
"""By SQLite's primary result code, the low byte of the extended one."""
ERRNO_FAULTS: dict[int, Fault] = {
    errno.ENOSPC: "full",
    errno.EDQUOT: "full",
    errno.EROFS: "read-only",
    errno.EACCES: "read-only",
    errno.EPERM: "read-only",
}
HINTS: dict[Fault, str] = {
    "full": "free some space or raise the quota; nothing is lost meanwhile",
    "busy": "another program keeps the store locked: stop it",
    "read-only": "check the permissions and that the disk is mounted for writing",
    "other": "check the disk, its permissions and the system log",
}
PROGRESS_STEPS = 100_000
"""Steps of SQLite between two looks at the time: some milliseconds."""

_TABLES = """
CREATE TABLE epochs (camera_key TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
    id TEXT PRIMARY KEY,
    camera TEXT NOT NULL,
    label TEXT NOT NULL,
    start_time REAL NOT NULL,
    end_time REAL,
    changed REAL NOT NULL,
    stored REAL NOT NULL,
    marked TEXT,
    marked_at REAL,
    reviewed_at REAL,
    reviewed_by TEXT NOT NULL DEFAULT '',
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX events_by_time ON events (start_time, id);
CREATE INDEX events_by_camera ON events (camera, start_time, id);
CREATE INDEX events_open ON events (id) WHERE end_time IS NULL;
CREATE INDEX events_marked ON events (id) WHERE marked IS NOT NULL;
CREATE INDEX events_by_age ON events (stored);
CREATE INDEX events_by_version ON events (json_extract(body, '$.version')) WHERE json_valid(body);
CREATE INDEX events_reviewed ON events (id) WHERE reviewed_at IS NOT NULL;
CREATE TABLE poses (
    id TEXT PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    stored REAL NOT NULL,
    body BLOB NOT NULL
);
CREATE TABLE explanations (
    id TEXT PRIMARY KEY REFERENCES events (id) ON DELETE CASCADE,
    stored REAL NOT NULL,
    body TEXT NOT NULL
);
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next_try REAL NOT NULL DEFAULT 0,
    error TEXT,
    refused REAL
);
CREATE INDEX outbox_by_sink ON outbox (sink, seq) WHERE refused IS NULL;
CREATE INDEX outbox_by_event ON outbox (event_id);
CREATE TABLE positions (camera TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE watched (
    camera TEXT NOT NULL,
    hour INTEGER NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (camera, hour)
) WITHOUT ROWID;
CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    time REAL NOT NULL,
    held_s REAL NOT NULL
)
"""
EVENT_STORE = Layout(
    what="an event store",
    application_id=0x53564144,  # "SVAD"
    tables=_TABLES,
    hint="give the data directory of a site, or a file that stepvad events backup wrote",
    repair="stop the site and restore a backup: stepvad events restore FILE",
)


class Database:
    """One writing connection behind a lock, and a new connection for each read.

    Changes of a `transaction` are on disk when its block exits: the write-ahead log is synced at
    every commit. Without a path the database is in memory, and has one connection for all.
    """

    def __init__(
        self,
        path: Path | None,
        layout: Layout,
        *,
        create: bool = True,
        later: bool = False,
        busy_s: float = BUSY_S,
    ) -> None:
        """`busy_s`: how long to wait for a lock that another thread or process has.

        `later`: a file that cannot be used now is opened by the first write that can.
        """
        self._path, self._layout, self._busy_s = path, layout, busy_s
        self.is_clean = True
        """True if the last scrub succeeded; if not, traces of deleted rows may be left."""
        self.trouble = ""
        """The reason why the last write failed; empty if it did not."""
        self.last_trouble = ""
        self._refused_at: float | None = None
        self._is_broken = False
        """True if the last write failed with an error that may require reopening the file."""
        self._writer: sqlite3.Connection | None = None
        self._inode = (0, 0)
        """Device and number of the open file: another may take its place, or none."""
        self._lock = threading.RLock()
        if not create and not self.path.is_file():
            raise DataError(
                f"{path}: expected {layout.what}, got nothing there",
                hint="give the data directory of a site that has run",
            )
        try:
            with self.transaction():
                pass
        except StoreError:
            self.close()
            if not later:
                raise
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Path:
        """The file."""
        return self._path or Path(":memory:")

    def _connect(self) -> sqlite3.Connection:
        return connect_durably(self._path, timeout_s=self._busy_s)

    def _error(self, wanted: str, error: sqlite3.Error | OSError) -> StoreError:
        return store_error(self.path, wanted, error, self._layout)

    def refused_s(self) -> float:
        """Seconds for which every write has failed; 0 if the last one did not."""
        began = self._refused_at
        return 0.0 if began is None else time.monotonic() - began

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed to disk on exit, rolled back on an error."""
        with self._locked():
            try:
                with self._begun() as connection:
                    yield connection
            except StoreError as error:
                self.trouble = self.last_trouble = error.reason
                self._refused_at = self._refused_at or time.monotonic()
                raise
            self.trouble, self._refused_at = "", None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait for the thread that writes; rebuilding the file may take it minutes."""
        if not self._lock.acquire(timeout=self._busy_s):
            raise StoreError(
                f"{self.path}: expected {self._layout.what} that can be written, got: it is being "
                "rebuilt",
                hint="wait until old data is deleted",
                fault="busy",
            )
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _begun(self) -> Iterator[sqlite3.Connection]:
        try:
            # a disk that failed meanwhile may be back
            writer = self._usable()
            self._undo()  # the last rollback may have failed with the disk
            writer.execute("BEGIN IMMEDIATE")
            yield writer
            writer.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            with suppress(sqlite3.Error):
                self._undo()
            failure = self._error("that can be written", error)
            self._is_broken |= failure.fault not in ("full", "busy")
            raise failure from error
        except BaseException:
            with suppress(sqlite3.Error):
                self._undo()
            raise

    def _usable(self) -> sqlite3.Connection:
        """The writing connection; a new one if the file was not open, or after a disk failure."""
        if self._writer is not None and self._path is not None:
            self._is_broken |= self._found() != self._inode
            if self._is_broken and not self._is_there():
                raise StoreError(  # SQLite would create an empty one
                    f"{self.path}: expected {self._layout.what} as it was there before, got none",
                    hint="mount its disk again; what is to be written waits until then",
                )
        if self._writer is not None and not self._is_broken:
            return self._writer
        try:
            if self._path is not None and self._writer is None:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                # for its owner only; SQLite gives its log the same mode
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
            writer = self._connect()
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._error("that can be opened", error) from error
        try:
            # a whole file or none
            writer.execute("BEGIN IMMEDIATE")
            if is_empty_database(writer):
                self._layout.create(writer)
            self._layout.verify(writer, self._path)
            writer.execute("COMMIT")
        except BaseException:
            writer.close()
            raise
        self.close()
        self._writer, self._is_broken, self._inode = writer, False, self._found()
        return writer

    def _found(self) -> tuple[int, int]:
        """Device and number of the file at the path; zeros if there is none."""
        try:
            about = self.path.stat()
        except OSError:
            return 0, 0
        return about.st_dev, about.st_ino

    def _is_there(self) -> bool:
        """True unless SQLite would create an empty file."""
        try:
            return self.path.stat().st_size > 0
        except OSError:
            return False

    def _undo(self) -> None:
        if self._writer is not None and self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    @contextmanager
    def snapshot(self, within_s: float = math.inf) -> Iterator[sqlite3.Connection]:
        """A read-only snapshot; does not block writers, unless the database is in memory.

        A query that is not done `within_s` raises `SlowQueryError`.
        """
        if self._path is None:
            with self._locked():
                yield self._usable()
            return
        if self._writer is None or not self._is_there():
            raise StoreError(
                f"{self.path}: expected {self._layout.what} that can be read, got none",
                hint="mount its disk again" if self._writer else "",
                reason=self.trouble,
            )
        try:
            with closing(self._connect()) as connection:
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                if within_s < math.inf:
                    ends = time.monotonic() + within_s
                    connection.set_progress_handler(lambda: time.monotonic() > ends, PROGRESS_STEPS)
                yield connection
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise SlowQueryError(
                    f"search: expected it to take at most {within_s:g} s, got a longer one",
                    hint="narrow it: by a camera, by time, or by fewer words",
                ) from None
            raise self._error("that can be read", error) from error

    def rows(self, query: str, *values: str | float | None) -> list[sqlite3.Row]:
        """The rows that one query finds."""
        with self.snapshot() as connection:
            return connection.execute(query, values).fetchall()

    def change(self, statement: str, *values: str | bytes | float | None) -> int:
        """Change rows by one statement, in a transaction; the number of those changed."""
        with self.transaction() as connection:
            return connection.execute(statement, values).rowcount

    def scrub(self) -> None:
        """Remove all traces of deleted rows from the files.

        Deleted rows are overwritten in place, but split pages may hold copies: the file is rebuilt
        and the log truncated.
        """
        self.is_clean = False
        try:
            with self._locked():
                # rebuilt without the deleted rows
                writer = self._usable()
                writer.execute("VACUUM")
                busy = not self._truncate_log(writer)
        except sqlite3.DatabaseError as error:
            wanted = "that can be built again without the deleted rows"
            raise self._error(wanted, error) from error
        if busy:
            raise StoreError(
                f"{self.path}: the rows are deleted, but a reader keeps the log from being "
                "truncated",
                hint="stop other programs that have the store open, and delete again",
                fault="busy",
            )
        self.is_clean = True

    def _truncate_log(self, writer: sqlite3.Connection) -> bool:
        """Empty the log; False if a reader kept it from that.

        SQLite waits for readers, but not for another connection that empties the log itself.
        """
        deadline, pause_s = time.monotonic() + BUSY_S, 0.01
        while True:
            # the log holds copies of deleted rows, too
            busy, _, _ = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
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
            with closing(self._connect()) as connection:
                connection.execute("VACUUM INTO ?", (str(path),))
        except sqlite3.DatabaseError as error:
            raise store_error(path, "that can be copied there", error, self._layout) from error

    def close(self) -> None:
        """Close the file; the last connection to close checkpoints the log."""
        with self._lock, suppress(sqlite3.Error):
            if self._writer is not None:
                self._writer.close()


class SlowQueryError(DataError):
    """A query took too long."""


class StoreError(DataError):
    """The event store, or another database of the site, cannot be read or written."""

    def __init__(
        self,
        problem: str,
        *,
        hint: str = "",
        fault: Fault = "other",
        reason: str = "",
    ) -> None:
        super().__init__(problem, hint=hint)
        self.reason = reason or problem.rpartition("got: ")[2].rpartition("got ")[2]
        """The same in short, without the path."""
        self.fault: Fault = fault


def store_error(
    path: Path, wanted: str, error: sqlite3.Error | OSError, layout: Layout = EVENT_STORE
) -> StoreError:
    """Build a StoreError; `wanted` describes the expected file, as in "that can be written"."""
    fault = fault_of(error)
    words = os_reason(error) if isinstance(error, OSError) else error
    return StoreError(
        f"{path}: expected {layout.what} {wanted}, got: {words}",
        hint=layout.repair if fault == "damaged" else HINTS[fault],
        fault=fault,
        reason=str(words),
    )


def fault_of(error: sqlite3.Error | OSError) -> Fault:
    """Classify an error by its number."""
    if isinstance(error, OSError):
        return ERRNO_FAULTS.get(error.errno or 0, "other")
    return SQLITE_FAULTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "other")
