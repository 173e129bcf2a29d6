"""Events as JSON lines in a file; each line is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from stepvad.codec import encode
from stepvad.errors import os_reason
from stepvad.incidents.sink import DeliveryError

if TYPE_CHECKING:
    from stepvad.incidents.events import ChangeKind
    from stepvad.incidents.record import SinkMessage

LONGEST = 1 << 20
"""Upper bound for the bytes of a line."""


class JsonLines:
    """Appends one line of JSON per event change; it is on disk when `send` returns.

    The file is opened for each line, so it can be moved at any time. A line truncated by a crash
    is removed before the next write: its message is sent again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """Always `file`: a site has only one."""
        return "file"

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Append one line."""
        line = encode(message) + b"\n"
        try:
            self._append(line)
        except OSError as error:
            raise DeliveryError(
                f"{self.path}: expected a file that can be written, got: {os_reason(error)}",
                hint="check the directory, its permissions and the free space",
            ) from error

    def close(self) -> None:
        """Do nothing: the file is not kept open."""

    def _append(self, line: bytes) -> None:
        is_new = not self.path.exists()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = self._mended(file)
            try:
                written = os.write(file, line)
                if written < len(line):
                    raise OSError(f"{written} of {len(line)} bytes were written")
                os.fsync(file)
            except OSError:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
        if is_new:
            _sync_directory(self.path.parent)

    def _mended(self, file: int) -> int:
        """Remove a truncated last line; return the size of the file."""
        size = os.fstat(file).st_size
        if not size or os.pread(file, 1, size - 1) == b"\n":
            return size
        start = max(size - LONGEST, 0)
        tail = os.pread(file, size - start, start)
        torn = tail[tail.rfind(b"\n") + 1 :]
        if not torn.startswith(b"{") or (start and len(torn) == len(tail)):
            raise DeliveryError(
                f"{self.path}: expected lines of JSON, got something else at the end",
                hint="use a separate file for the events",
            )
        os.ftruncate(file, size - len(torn))
        return size - len(torn)


def _sync_directory(path: Path) -> None:
    """Make the name of a new file durable."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
