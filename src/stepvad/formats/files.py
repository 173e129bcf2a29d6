"""Read files and directories; errors name the path."""

from __future__ import annotations

from pathlib import Path

from stepvad.errors import DataError, os_reason
from stepvad.files import bounded


def read_bytes(path: Path, *, most: int) -> bytes:
    """The contents of a file; one larger than `most` bytes, or endless, is rejected."""
    try:
        return bounded.read(path, most=most)
    except DataError as error:
        raise error.located(str(path)) from error
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file that the system cannot read, with the reason."""
    return DataError(
        f"{path}: expected a readable file, got: {os_reason(error)}",
        hint="check the path and its permissions",
    )


def children(directory: Path, *, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a directory with one of the suffixes, sorted by name, without hidden files."""
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(
            f"{directory}: expected a directory, got: {os_reason(error)}",
            hint="check the path",
        ) from error
    return [
        entry
        for entry in entries
        if entry.name.lower().endswith(suffixes)
        and not entry.name.startswith(".")
        and entry.is_file()
    ]
