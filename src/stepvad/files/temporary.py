"""Temporary directories, which outlive a killed process only until the next one is made."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = ".stepvad-"
PATTERN = PREFIX + "[0-9a-f]" * 16


@contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield a new directory that only its owner can read, and remove it on exit.

    Its process holds a lock on it. Those in the same `parent`, by default the system's directory
    for temporary files, whose lock is free belong to killed processes and are removed first.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    remove_abandoned(parent)
    directory, lock = _make(parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove the temporary directories of killed processes.

    Those of other users stay, and those on a file system without locks.
    """
    for directory in parent.glob(PATTERN):
        with suppress(OSError):
            descriptor = _open(directory)
            try:
                if os.fstat(descriptor).st_uid == os.getuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if in use
                    shutil.rmtree(directory, ignore_errors=True)
            finally:
                os.close(descriptor)


def _make(parent: Path) -> tuple[Path, int]:
    """A new directory and the descriptor that locks it."""
    while True:
        directory = parent / f"{PREFIX}{secrets.token_hex(8)}"
        directory.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # removed by another process before it was locked
            descriptor = _open(directory)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if directory.exists():
                return directory, descriptor
            os.close(descriptor)


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
