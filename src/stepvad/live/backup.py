"""The event store as one file that can be carried away, and back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from stepvad.atomic import replacing
from stepvad.errors import DataError
from stepvad.live.database import Database


def back_up(database: Database, path: Path) -> None:
    """Write a copy of one moment, whole or not at all, while the site goes on."""
    if path.exists() and path.samefile(database.path):
        raise DataError(
            f"{path}: expected another place than the store itself, got its own file",
            hint="write the backup to another disk",
        )
    with replacing(path, DataError) as temporary:
        database.copy(temporary)


def restore(path: Path, onto: Path) -> None:
    """Put a backup in the place of a store that nobody has open.

    Numbers of connections go on from the larger one, so that no id is given twice.
    """
    _check(path)
    epochs = _closed(onto) if onto.exists() else {}
    onto.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(onto, DataError) as temporary:
        temporary.write_bytes(path.read_bytes())
        with closing(sqlite3.connect(temporary)) as connection, connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.executemany(
                "INSERT INTO epochs VALUES (?1, ?2) ON CONFLICT (camera_key) "
                "DO UPDATE SET last = max(last, ?2)",
                epochs.items(),
            )
    Database(onto).close()


def _check(path: Path) -> None:
    """Refuse what is no backup, or a broken one."""
    if not path.is_file():
        raise DataError(
            f"{path}: expected a backup, got no such file",
            hint="make one with: stepvad events backup FILE",
        )
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
            connection.execute("SELECT count(*) FROM events, epochs, outbox")
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    if found != ["ok"]:
        raise DataError(
            f"{path}: expected a whole backup, got: {found[0]}",
            hint="take another backup; this one was damaged or is something else",
        )


def _closed(store: Path) -> dict[str, int]:
    """Close the log of a store that nobody else has open; its numbers of connections."""
    try:
        with closing(sqlite3.connect(store, timeout=1, isolation_level=None)) as connection:
            rows = connection.execute("SELECT camera_key, last FROM epochs").fetchall()
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise DataError(
                f"{store}: expected an event store or nothing, got: {error}",
                hint="give the data directory of a site",
            ) from error
        mode, rows = "wal", []
    except sqlite3.DatabaseError:  # damaged: that is what backups are for
        for end in ("-wal", "-shm"):
            store.with_name(store.name + end).unlink(missing_ok=True)
        return {}
    if mode != "delete":
        raise DataError(
            f"{store}: expected a store that nobody has open, got one in use",
            hint="stop the site first",
        )
    return dict(rows)
