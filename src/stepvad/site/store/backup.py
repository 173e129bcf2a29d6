"""Back up the event store to a single file."""

from __future__ import annotations

from pathlib import Path

from stepvad.errors import DataError
from stepvad.files.atomic import remove_leftovers, replacing
from stepvad.site.store.database import Database


def back_up(database: Database, path: Path) -> None:
    """Write a consistent snapshot atomically while the site keeps running."""
    if path.exists() and any(path.samefile(file) for file in database.files()):
        raise DataError(
            f"{path}: expected a file other than the store itself, got the store",
            hint="write the backup to another disk",
        )
    remove_leftovers(path.parent)  # of backups with other names, such as dates
    with replacing(path, DataError) as temporary:
        database.copy(temporary)
