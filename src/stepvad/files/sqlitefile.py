"""Our SQLite files: opened durably, and known by the application and the version they state."""

from __future__ import annotations

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from stepvad.errors import DataError

VERSION = 1
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

    def create(self, connection: sqlite3.Connection) -> None:
        """Create the tables in an empty file, in the caller's transaction."""
        for statement in self.tables.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {VERSION}")

    def check(self, connection: sqlite3.Connection, path: Path | None, what: str = "") -> None:
        """Raise `DataError` for another database or another version."""
        what = what or self.what
        (found,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if found != self.application_id:
            raise DataError(f"{path}: expected {what}, got another SQLite database", hint=self.hint)
        if version != VERSION:
            raise DataError(
                f"{path}: expected {what} of version {VERSION}, got {version}",
                hint="install the version of stepvad that wrote it",
            )


def make_private(path: Path) -> None:
    """Create a file, readable by its owner only; SQLite gives its log the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def connect(path: Path | None, *, timeout_s: float) -> sqlite3.Connection:
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


def is_empty(connection: sqlite3.Connection) -> bool:
    """Whether a file has neither tables nor a version."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return not tables and not version
