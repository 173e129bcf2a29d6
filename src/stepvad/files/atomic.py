"""Atomic file writes, readable only by the owner."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepvad.errors import StepvadError, os_reason
from stepvad.files.temporary import remove_abandoned

LEFTOVER_S = 3600.0
"""Age at which a temporary file counts as abandoned; writing one takes seconds."""
PRIVATE = 0o600
"""Mode of a new file: poses, scores and models are personal data."""
PUBLIC = 0o666
"""Mode of a file that holds no personal data and that other users may need."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Error numbers that only writing raises."""
SQLITE_ENDS = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps next to a database."""


@contextmanager
def replacing(
    path: Path, error: type[StepvadError] = StepvadError, *, mode: int = PRIVATE
) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` on success and is deleted on error.

    Until then readers of `path` see the old file, which also survives a crash. A new file gets
    `mode`, reduced by the umask; an existing one keeps its own. Failures to write are raised as
    `error`; other errors inside the context, such as failures to read, propagate unchanged.
    """
    temporary, other = _names(path)
    try:
        with _written(path, error):
            try:
                _make(temporary, mode)
            except FileExistsError:  # of another writer: ours gets its name before anything else
                first, temporary = temporary, other
                _remove_old(first)
                _make(temporary, mode)
        try:
            yield temporary
        except OSError as reason:
            if not _is_about(reason, temporary):
                raise
            raise _unwritable(path, error, reason) from reason
        with _written(path, error):
            _sync(temporary)
            with suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
            temporary.replace(path)
    except BaseException:  # Ctrl-C too, from the moment the file exists
        with suppress(OSError):
            temporary.unlink()
        raise


def check_writable(directory: Path, error: type[StepvadError] = StepvadError) -> None:
    """Raise `error` unless files can be written in a directory: now, rather than after hours."""
    with _written(directory, error), tempfile.TemporaryFile(dir=directory):
        pass


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files of killed writers from a directory; recent ones may be in use.

    Temporary directories whose process is gone are removed at any age.
    """
    for end in ("", *SQLITE_ENDS):
        for file in directory.glob("." + "[0-9a-f]" * 16 + ".tmp" + end):
            _remove_old(file)
    remove_abandoned(directory)


def _names(path: Path) -> tuple[Path, Path]:
    """The usual name of the temporary file, in the directory of `path`, and an unused one.

    Writers of the same path try the same name first, so the next one finds what a killed one left.
    """
    mark = hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]
    return path.parent / f".{mark}.tmp", path.parent / f".{secrets.token_hex(8)}.tmp"


def _make(temporary: Path, mode: int) -> None:
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))


def _remove_old(file: Path) -> None:
    with suppress(OSError):
        if time.time() - file.stat().st_mtime > LEFTOVER_S:
            file.unlink()


def _sync(path: Path) -> None:
    with path.open("rb") as written:
        os.fsync(written.fileno())


@contextmanager
def _written(path: Path, error: type[StepvadError]) -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        raise _unwritable(path, error, reason) from reason


def _is_about(reason: OSError, temporary: Path) -> bool:
    """Whether an error comes from writing the temporary file, not from reading another."""
    names = {os.fsdecode(name) for name in (reason.filename, reason.filename2) if _is_path(name)}
    if names:
        return not names.isdisjoint({str(temporary), str(temporary.parent)})
    return reason.errno in NO_ROOM or str(temporary) in str(reason)


def _is_path(name: object) -> bool:
    return isinstance(name, str | bytes | os.PathLike)


def _unwritable(path: Path, error: type[StepvadError], reason: OSError) -> StepvadError:
    return error(
        f"{path}: expected a place that can be written, got: {os_reason(reason)}",
        hint="check that the directory exists, its permissions and the free space",
    )
