"""Size-limited reads of untrusted files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from stepvad.errors import DataError

AT_ONCE = 1 << 20
FREE_BYTES = 1 << 27
"""Bytes that any compressed file may take when unpacked."""
UNPACKED_RATIO = 64
"""Above that, the largest compression ratio allowed: poses compress to a half or a third."""


def read(path: Path, *, most: int) -> bytes:
    """Read a whole file; reject one that is larger than `most`, or endless.

    Raises OSError if the file cannot be read, and DataError if it is too large.
    """
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_size > most:
            raise _too_large(most)
        return read_open(file, most=most)


def read_open(file: BinaryIO, *, most: int) -> bytes:
    """Read the rest of an open file; memory grows with the data read, not with the limit."""
    parts, size = [], 0
    while part := file.read(AT_ONCE):
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
    return b"".join(parts)


def most_unpacked(size: int) -> int:
    """Bytes that a file of this size may take when unpacked."""
    return max(FREE_BYTES, UNPACKED_RATIO * size)


def _too_large(most: int) -> DataError:
    return DataError(f"expected a file of up to {most:,} bytes, got more", hint="split it")
