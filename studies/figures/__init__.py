"""Figures of a study: tables in CSV and Markdown, and the work and memory of processes."""

from __future__ import annotations

import csv
import os
from collections.abc import Collection, Iterable, Sequence
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


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[int] = ()
) -> str:
    """A Markdown table; columns are right-aligned, except those in `words`."""
    marks = ["---" if column in words else "--:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, marks, *rows])
