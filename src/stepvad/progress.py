"""How far a long computation is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One report: `done` of `total` units of a stage, and a word on how it goes."""

    stage: str
    done: int
    total: int
    note: str = ""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report to nobody."""
