"""Progress reports of long computations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: `done` of `total` units of a stage, with an optional note."""

    stage: str
    done: int
    total: int
    note: str = ""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Discard the report."""
