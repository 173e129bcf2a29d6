"""State files: JSON that is read, changed and written back, and survives a failed read."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeVar

from stepvad.codec import NewerVersionError, decode, encode
from stepvad.errors import DataError
from stepvad.files import bounded
from stepvad.files.atomic import replacing

logger = logging.getLogger(__name__)

DAMAGED = ".damaged"
"""Suffix of a file that was set aside."""
MOST_DAMAGED = 9
"""Files set aside per name; beyond that the latest replaces the one before it."""

Value = TypeVar("Value")


def read(path: Path, kind: type[Value], what: str, *, most: int, lost: str) -> Value | None:
    """Decode a file of up to `most` bytes; None if there is none.

    Only a missing file counts as empty, since callers write back what they got. If the file cannot
    be read now, `OSError` is raised; if it is of a newer version, `NewerVersionError`. Neither
    changes it. A damaged file is set aside before a new one is written; the log then says what is
    `lost`.
    """
    try:
        return decode(kind, bounded.read(path, most=most), what)
    except FileNotFoundError:
        return None
    except NewerVersionError as error:
        raise NewerVersionError(f"{path}: {error.problem}", hint=error.hint) from None
    except DataError as error:
        kept = set_aside(path)
        words = error.problem[:200]
        logger.warning("%s: damaged, so %s; kept as %s: %s", path, lost, kept.name, words)
        return None


def write(path: Path, value: object) -> None:
    """Write a value that `read` reads; it is on disk when this returns."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(encode(value))


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that nothing overwrites it; return its new path."""
    names = (f"{path.name}{DAMAGED}{f'-{n}' if n > 1 else ''}" for n in range(1, MOST_DAMAGED + 1))
    for name in names:
        kept = path.with_name(name)
        if not kept.exists():
            break
    path.replace(kept)
    return kept


def is_unread(error: BaseException | None) -> bool:
    """Whether an error leaves open what a file holds: it could not be read, or is newer than us."""
    if isinstance(error, OSError):
        return not isinstance(error, FileNotFoundError)
    return isinstance(error, NewerVersionError)
