"""Errors of the event store: cause and remedy."""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Literal

from stepvad.errors import DataError, os_reason

Fault = Literal["full", "busy", "read-only", "damaged", "other"]
Remedy = Literal["retry", "make room", "give up"]
"""`retry`: the error may be transient. `give up`: it persists until an operator acts."""

SQLITE_FAULTS: dict[int, tuple[Fault, Remedy]] = {
    sqlite3.SQLITE_FULL: ("full", "make room"),
    sqlite3.SQLITE_BUSY: ("busy", "retry"),
    sqlite3.SQLITE_LOCKED: ("busy", "retry"),
    sqlite3.SQLITE_PROTOCOL: ("busy", "retry"),
    sqlite3.SQLITE_READONLY: ("read-only", "retry"),
    sqlite3.SQLITE_READONLY_DBMOVED: ("other", "give up"),
    sqlite3.SQLITE_PERM: ("read-only", "retry"),
    sqlite3.SQLITE_CORRUPT: ("damaged", "give up"),
    sqlite3.SQLITE_NOTADB: ("damaged", "give up"),
    sqlite3.SQLITE_IOERR_CORRUPTFS: ("damaged", "give up"),
    sqlite3.SQLITE_IOERR: ("other", "retry"),
    sqlite3.SQLITE_CANTOPEN: ("other", "retry"),
    sqlite3.SQLITE_NOMEM: ("other", "retry"),
    sqlite3.SQLITE_INTERRUPT: ("other", "retry"),
    sqlite3.SQLITE_SCHEMA: ("other", "retry"),
}
"""By SQLite's extended result code, else by the primary one in its low byte.

Any other code concerns the statement or its values, for which a retry is pointless.
"""
UNCLEAR = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
"""Primary codes that hide the errno, for example of an exceeded quota."""
ERRNO_FAULTS: dict[int, tuple[Fault, Remedy]] = {
    errno.ENOSPC: ("full", "make room"),
    errno.EDQUOT: ("full", "make room"),
    errno.EROFS: ("read-only", "retry"),
    errno.EACCES: ("read-only", "retry"),
    errno.EPERM: ("read-only", "retry"),
    errno.EAGAIN: ("busy", "retry"),
    errno.EBUSY: ("busy", "retry"),
}
"""By the errno of a system call; any other may be transient."""
HINTS: dict[Fault, str] = {
    "full": "free some space or raise the quota; nothing is lost meanwhile",
    "busy": "another program keeps the store locked: stop it",
    "read-only": "check the permissions and that the disk is mounted for writing",
    "damaged": "stop the site and restore a backup: stepvad events restore FILE",
    "other": "check the disk, its permissions and the system log",
}
PROBE_BYTES = 1 << 16
"""Bytes written to find out why SQLite could not write."""


class StoreError(DataError):
    """The event store cannot be read or written."""

    def __init__(
        self, problem: str, *, hint: str = "", fault: Fault = "other", remedy: Remedy = "retry"
    ) -> None:
        super().__init__(problem, hint=hint)
        self.fault: Fault = fault
        self.remedy: Remedy = remedy


def store_error(path: Path, wanted: str, error: sqlite3.Error | OSError) -> StoreError:
    """Build a StoreError; `wanted` describes the expected store, as in "that can be written"."""
    fault, remedy = classify(error, path.parent)
    words = os_reason(error) if isinstance(error, OSError) else error
    return StoreError(
        f"{path}: expected an event store {wanted}, got: {words}",
        hint=HINTS[fault],
        fault=fault,
        remedy=remedy,
    )


def classify(error: sqlite3.Error | OSError, directory: Path) -> tuple[Fault, Remedy]:
    """Classify an error by the two tables; where SQLite hides the errno, probe the disk."""
    if isinstance(error, OSError):
        return ERRNO_FAULTS.get(error.errno or 0, ("other", "retry"))
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return "other", "give up"
    if code in SQLITE_FAULTS and code not in UNCLEAR:
        return SQLITE_FAULTS[code]
    primary = code & 0xFF
    if primary in UNCLEAR:
        reason = write_error(directory)
        if reason is not None and reason.errno in ERRNO_FAULTS:
            return ERRNO_FAULTS[reason.errno]
    return SQLITE_FAULTS.get(primary, ("other", "give up"))


def write_error(directory: Path) -> OSError | None:
    """The error of a test write to a directory; None if it succeeds."""
    probe = directory / f".{secrets.token_hex(8)}.tmp"
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            left = PROBE_BYTES
            while left:
                left -= os.write(file, bytes(left))
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        return error
    finally:
        with suppress(OSError):
            probe.unlink()
    return None
