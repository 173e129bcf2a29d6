"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stepvad.errors import StepvadError

LEFTOVER_S = 3600.0
"""Age from which a temporary file is nobody's any more; writing one takes seconds."""


@contextmanager
def replacing(path: Path, error: type[StepvadError] = StepvadError) -> Iterator[Path]:
    """A temporary file that takes the place of `path` at the end, or vanishes after an error.

    Whoever opens `path` meanwhile sees the old file, and after a crash it is still there. What the
    system does not allow is raised as `error`.
    """
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as reason:
        raise error(
            f"{path}: expected a place that can be written, got: {reason.strerror or reason}",
            hint="check that the directory exists, its permissions and the free space",
        ) from reason
    finally:
        with suppress(OSError):
            temporary.unlink()


def remove_leftovers(directory: Path) -> None:
    """Remove what writers who were killed left in a directory; what is younger may be in use."""
    for file in directory.glob("." + "[0-9a-f]" * 16 + ".tmp"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > LEFTOVER_S:
                file.unlink()
