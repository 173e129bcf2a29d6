"""The file of the accounts: SQLite, shared by the page and the command line."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepvad.errors import StepvadError, os_reason
from stepvad.files import sqlitefile
from stepvad.files.sqlitefile import Layout

FILE_NAME = "accounts.db"
"""Name of the file in the data directory of a site."""
BUSY_S = 5.0
"""Timeout for the write lock; a change takes milliseconds."""

_TABLES = """
CREATE TABLE users (
    name TEXT PRIMARY KEY COLLATE NOCASE,
    role TEXT NOT NULL,
    password TEXT,
    stamp TEXT NOT NULL,
    created REAL NOT NULL,
    last_login REAL
) WITHOUT ROWID;
CREATE TABLE links (
    hash TEXT PRIMARY KEY,
    user TEXT COLLATE NOCASE REFERENCES users (name) ON DELETE CASCADE,
    expires REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    time REAL NOT NULL,
    user TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL
);
CREATE INDEX audit_by_action ON audit (action, seq)
"""

ACCOUNTS = Layout(
    what="accounts",
    application_id=0x53564143,  # "SVAC"
    tables=_TABLES,
    hint="name another file with accounts under [web]",
)


class AccountsError(StepvadError):
    """Accounts that cannot be read or changed now."""


class AccountsDatabase:
    """One connection behind a lock; without a path it is in memory.

    Another process sees a change with its next statement.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            if path is not None:
                sqlitefile.make_private(path)
            self._connection = sqlitefile.connect(path, timeout_s=BUSY_S)
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._error("that can be opened", error) from error
        try:
            with self.write() as connection:
                if sqlitefile.is_empty(connection):
                    ACCOUNTS.create(connection)
                ACCOUNTS.check(connection, path)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed to disk on exit, rolled back on an error."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection
                self._connection.execute("COMMIT")
            except sqlite3.DatabaseError as error:
                self._undo()
                raise self._error("that can be written", error) from error
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one query."""
        with self._lock:
            try:
                yield self._connection
            except sqlite3.DatabaseError as error:
                raise self._error("that can be read", error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _undo(self) -> None:
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _error(self, wanted: str, error: sqlite3.Error | OSError) -> AccountsError:
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        return AccountsError(
            f"{self.path}: expected accounts {wanted}, got: {reason}",
            hint="run the command as the user of the site; check the disk and its free space",
        )
