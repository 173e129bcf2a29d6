"""Files on disk: read whole, and replaced whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepvad.errors import DataError


def read_bytes(path: Path) -> bytes:
    """Everything a file holds."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """The error that says why the system does not let a file be read."""
    return DataError(
        f"{path}: expected a readable file, got: {error.strerror or error}",
        hint="check the path and its permissions",
    )


def children(directory: Path, *, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a directory that end in a suffix, sorted by name; hidden ones are left out."""
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(
            f"{directory}: expected a directory, got: {error.strerror or error}",
            hint="check the path",
        ) from error
    return [
        entry
        for entry in entries
        if entry.name.lower().endswith(suffixes)
        and not entry.name.startswith(".")
        and entry.is_file()
    ]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that takes the place of `path` at the end, or vanishes after an error.

    Whoever opens `path` meanwhile sees the old file, and after a crash it is still there.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        raise DataError(
            f"{path}: expected a place that can be written, got: {error.strerror or error}",
            hint="check that the directory exists, its permissions and the free space",
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
