"""A file that the system refuses to open for a while."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REASON = "No such device or address"


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Opening it fails with ENXIO; in the end it is back, and must not have been written to."""
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    os.mknod(path, stat.S_IFSOCK | 0o600)  # can be replaced, but not opened
    try:
        yield
        assert path.is_socket(), "the file was overwritten, deleted or set aside"
    finally:
        away.replace(path)
