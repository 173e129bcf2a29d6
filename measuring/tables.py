"""Tables of figures: read from CSV beside the documentation, rendered as Markdown."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path


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
