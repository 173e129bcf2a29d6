"""What a process of Linux takes."""

from __future__ import annotations

import os
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Seconds of processor time so far; an OSError if the process is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    """Resident memory in megabytes; an OSError if the process is gone."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6
