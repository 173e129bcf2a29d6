"""Write tables to files, as CSV or Markdown."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from stepvad.files.atomic import replacing


def write_table(columns: Sequence[str], rows: Sequence[Sequence[str]], path: Path) -> None:
    """Write a table as CSV if the suffix is .csv, otherwise as Markdown."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            csv.writer(file, lineterminator="\n").writerows([columns, *rows])
            return
        rule = ["---", *["--:"] * (len(columns) - 1)]
        file.writelines(f"| {' | '.join(row)} |\n" for row in [columns, rule, *rows])
