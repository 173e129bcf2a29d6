"""Claims of the paper, what was measured of each, and the verdict, by one rule for all.

    python -m studies what-holds

Prints the table of docs/benchmarks/what-holds.md, from docs/data/claims.toml; scripts/docs writes
it into the page.
"""

from __future__ import annotations

import argparse
import math
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.figures import markdown

DOCS = Path(__file__).absolute().parents[1] / "docs"
VERSION = 1
"""Of the layout of the file of claims."""
SETS = {
    "walkers": "walkers",
    "mocap1": "mocap, split 1",
    "mocap2": "mocap, split 2",
    "avenue": "HR-Avenue",
    "shanghaitech": "HR-ShanghaiTech",
}
"""Data sets, and their names in the table."""
PRINTED = re.compile(r"([+-]\d+\.\d) \(([+-]\d+\.\d) to ([+-]\d+\.\d)\)")
"""A difference with its interval, as `stepvad compare` prints it."""
BEGIN, END = "<!-- what-holds: begin -->\n\n", "\n\n<!-- what-holds: end -->"
"""What stands around the table on its page."""


@dataclass(frozen=True, slots=True)
class ClaimFigure:
    """A difference on one data set, in the direction of the paper, and the page that has it."""

    data: str
    printed: str
    setting: str = ""
    page: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends; the sign of a rounded zero is the side of zero that it is on."""
        found = PRINTED.fullmatch(self.printed)
        if found is None or self.data not in SETS:
            raise ValueError(f"expected +1.0 (+0.5 to +1.5) on a known set, got {self}")
        return float(found[2]), float(found[3])

    @property
    def words(self) -> str:
        """The difference, and its setting if it is not that of the page."""
        return self.printed + (f"; {self.setting}" if self.setting else "")


@dataclass(frozen=True, slots=True)
class Claim:
    """What the paper says, and what was measured of it."""

    title: str
    paper: str
    figures: tuple[ClaimFigure, ...]
    note: str = ""
    at_most: float | None = None
    """For something that is to cost little: the cost that the paper has, in points."""

    @property
    def verdict(self) -> str:
        """On how many data sets the interval is on the paper's side of zero.

        For a claim that something costs at most so much, of minus that.
        """
        n, ends = len(self.figures), [figure.interval for figure in self.figures]
        seen = sum(self._is_above(low) for low, _ in ends)
        against = sum(not self._is_above(high) for _, high in ends)
        if not n:
            return "not run"
        if seen == n:
            return f"holds: {n} of {n}"
        word = "in part" if seen else "does not hold" if against else "not seen"
        return f"{word}: {seen} of {n}" + (f", against it on {against}" if against else "")

    def _is_above(self, end: float) -> bool:
        """Whether an end of an interval is on the paper's side."""
        if self.at_most is not None:
            return end > -self.at_most
        return math.copysign(1.0, end) > 0

    @property
    def cells(self) -> list[str]:
        """Its line of the table."""
        on = {figure.data: figure.words for figure in self.figures}
        measured = [on.get(data, "not run") for data in SETS]
        return [self.title, self.paper, *measured, f"**{self.verdict}**", self.note]


def read_claims(path: Path) -> list[Claim]:
    """The claims of a file."""
    read = tomllib.loads(path.read_text(encoding="utf-8"))
    if read["version"] != VERSION:
        raise ValueError(f"{path}: expected version {VERSION}, got {read['version']}")
    return [
        Claim(
            one["title"],
            one["paper"],
            tuple(
                ClaimFigure(f["data"], f["figure"], f.get("setting", ""), f.get("page", ""))
                for f in one["figures"]
            ),
            one.get("note", ""),
            one.get("at_most"),
        )
        for one in read["claim"]
    ]


def claims_table(claims: Sequence[Claim]) -> str:
    """The table of all claims, as Markdown."""
    header = ["claim", "the paper", *SETS.values(), "verdict", "what to know"]
    return markdown(header, [claim.cells for claim in claims], words=range(len(header)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    print(claims_table(read_claims(DOCS / "data" / "claims.toml")))


def page() -> str:
    """The page, with the table that the claims give."""
    text = (DOCS / "benchmarks" / "what-holds.md").read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + claims_table(read_claims(DOCS / "data" / "claims.toml")) + END + after
