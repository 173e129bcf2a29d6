"""How many cores and threads this process may use."""

from __future__ import annotations

import os


def usable() -> int:
    """Cores that this process may run on; `taskset` and containers may leave it fewer than all."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def threads_asked() -> int | None:
    """OMP_NUM_THREADS, which numpy and torch also follow; None if it is unset or not a number."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else None
