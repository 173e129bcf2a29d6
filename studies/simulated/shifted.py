"""A Python program whose wall clock is off by what a file says, in seconds; it may change.

    python -m studies.simulated.shifted FILE MODULE [ARGUMENTS]

libfaketime, which serves other programs, breaks Python's sleep.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

READ_S = 0.5
_time = time.time


def shift_clock(file: Path) -> None:
    """Have `time.time` follow the file; call this before anything else takes the function."""
    read_at, offset = -READ_S, 0.0

    def shifted() -> float:
        nonlocal read_at, offset
        now = time.monotonic()
        if now - read_at > READ_S:
            read_at, offset = now, float(file.read_text() or 0)
        return _time() + offset

    time.time = shifted


if __name__ == "__main__":
    file, module, *arguments = sys.argv[1:]
    shift_clock(Path(file))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
