"""State files: JSON that is read, changed and written back, and survives a failed read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from stepvad.codec import NewerVersionError
from stepvad.errors import DataError
from stepvad.files import bounded

logger = logging.getLogger(__name__)

DAMAGED = ".damaged"
"""Suffix of a file that was set aside."""
MOST_DAMAGED = 9
"""Files set aside per name; beyond that the latest replaces the one before it."""

_UNPARSABLE = (
    *(ValueError, TypeError, LookupError, AttributeError),
    *(OverflowError, RecursionError, DataError),
)

Value = TypeVar("Value")


def read(path: Path, parse: Callable[[object], Value], *, most: int, lost: str) -> Value | None:
    """The parsed JSON of a file of up to `most` bytes; None if there is none.

    Only a missing file counts as empty, since callers write back what they got. If the file cannot
    be read now, `OSError` is raised; if it is of a newer version, `NewerVersionError`. Neither
    changes it. A damaged file is set aside before a new one is written; the log then says what is
    `lost`.
    """
    try:
        return parse(json.loads(bounded.read(path, most=most)))
    except FileNotFoundError:
        return None
    except NewerVersionError as error:
        raise NewerVersionError(f"{path}: {error.problem}", hint=error.hint) from None
    except _UNPARSABLE as error:
        kept = set_aside(path)
        words = str(error)[:200] or type(error).__name__
        logger.warning("%s: damaged, so %s; kept as %s: %s", path, lost, kept.name, words)
        return None


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
