"""The rows of every results table of the documentation, for one table of all of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SPREAD = "over seeds"
"""The column that makes a table one of results."""
COLUMNS = (
    *("page", "section", "table", "data", "case", "AUROC", "deviation over seeds"),
    *("95 % low", "95 % high", "kind of difference", "difference", "low", "high"),
    *("AP", "EER", "commands"),
)
NUMBER = r"[+-]?\d+(?:\.\d+)?"
INTERVAL = re.compile(rf"({NUMBER}) to ({NUMBER})")
DIFFERENCE = re.compile(rf"({NUMBER}) \(({NUMBER}) to ({NUMBER})\)")
BENCHMARK = re.compile(r"^\$ (stepvad benchmark .*)$", re.MULTILINE)


@dataclass(slots=True)
class _Place:
    """Where on a page a reader is."""

    page: str
    section: str = ""
    table: str = ""
    commands: list[str] = field(default_factory=list)

    def read(self, block: str) -> None:
        """Go on past a paragraph, a heading or a block of commands."""
        if block.startswith("#"):
            self.section, self.table, self.commands = block.lstrip("# "), "", []
        elif "```console" in block:
            self.commands = BENCHMARK.findall(block.replace("\\\n", "").replace("    --", "--"))
        elif block.endswith(":") and "\n" not in block:
            self.table = block.removesuffix(":")


def result_rows(page: Path) -> Iterator[dict[str, str]]:
    """The rows of the tables of results on a page, in its order."""
    place = _Place(page.stem)
    for block in re.split(r"\n{2,}", page.read_text(encoding="utf-8")):
        lines = block.strip().splitlines()
        header = _cells(lines[0]) if lines else []
        if "AUROC" in header and SPREAD in header:
            for line in lines[2:]:
                yield _row(place, dict(zip(header, _cells(line), strict=True)))
        else:
            place.read(block.strip())


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _row(place: _Place, cells: dict[str, str]) -> dict[str, str]:
    case = next(words for name, words in cells.items() if name != "data")
    case += f", T = {cells['T']}" if "T" in cells else ""
    low, high = _found(INTERVAL, cells.get("95 % over clips", ""), 2)
    kind = next((name for name in cells if name.startswith(("difference", "lead of"))), "")
    known = {
        "page": place.page,
        "section": place.section,
        "table": place.table,
        "data": cells.get("data", ""),
        "case": case,
        "AUROC": cells["AUROC"],
        "deviation over seeds": cells[SPREAD].lstrip("± ").replace("-", ""),
        "95 % low": low,
        "95 % high": high,
        "kind of difference": kind,
        "AP": cells.get("AP", ""),
        "EER": cells.get("EER", ""),
        "commands": "; ".join(place.commands),
    }
    changed = _found(DIFFERENCE, cells.get(kind, ""), 3)
    return known | dict(zip(("difference", "low", "high"), changed, strict=True))


def _found(pattern: re.Pattern[str], text: str, groups: int) -> Sequence[str]:
    match = pattern.fullmatch(text)
    return match.groups() if match else [""] * groups


def results_csv(pages: Sequence[Path]) -> str:
    """All rows of the pages as one CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for page in pages:
        writer.writerows(result_rows(page))
    return text.getvalue()
