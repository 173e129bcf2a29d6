"""Files of unknown origin, read up to a size."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from stepvad.errors import DataError

AT_ONCE = 1 << 20
FREE_BYTES = 1 << 27
"""What any packed file may take when unpacked."""
UNPACKED_RATIO = 64
"""Above that, how many times its own size a file may take: poses shrink to a half or a third."""


def read(path: Path, *, most: int) -> bytes:
    """Everything a file holds; one that is larger, or has no end, is refused.

    What the system does not allow is an OSError, and that a file is too large a DataError.
    """
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_size > most:
            raise _too_large(most)
        return read_open(file, most=most)


def read_open(file: BinaryIO, *, most: int) -> bytes:
    """The rest of an open file; room is made for what is there, not for what might be."""
    parts, size = [], 0
    while part := file.read(AT_ONCE):
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
    return b"".join(parts)


def most_unpacked(size: int) -> int:
    """The bytes that a file of this size may take when unpacked."""
    return max(FREE_BYTES, UNPACKED_RATIO * size)


def _too_large(most: int) -> DataError:
    return DataError(f"expected a file of up to {most:,} bytes, got more", hint="split it")
