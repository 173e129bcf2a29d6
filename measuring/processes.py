"""CPU time and memory of a Linux process."""

from __future__ import annotations

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU time so far, in seconds; raises OSError if the process has exited."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    """Resident memory in megabytes; raises OSError if the process has exited."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6
