"""The page of what holds of the paper's claims, made from figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from studies import capacity
from studies.what_holds import SETS, Claim, ClaimFigure, read_claims

DOCS = Path(__file__).parents[2] / "docs"
ABOVE, BELOW, OPEN = "+1.0 (+0.5 to +1.5)", "-1.0 (-1.5 to -0.5)", "+0.1 (-0.5 to +0.7)"
HERE_ALONE = 5
"""Figures that no other page has."""


def verdict(*printed: str, at_most: float | None = None) -> str:
    figures = (ClaimFigure(data, one) for data, one in zip(SETS, printed, strict=False))
    return Claim("", "", tuple(figures), at_most=at_most).verdict


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ((), "not run"),
        ((ABOVE, ABOVE), "holds: 2 of 2"),
        ((ABOVE, OPEN, OPEN), "in part: 1 of 3"),
        ((ABOVE, ABOVE, BELOW), "in part: 2 of 3, against it on 1"),
        ((OPEN, OPEN), "not seen: 0 of 2"),
        ((OPEN, BELOW), "does not hold: 0 of 2, against it on 1"),
        # a rounded end keeps the side of zero that it is on
        (("+0.2 (-0.0 to +0.5)",), "not seen: 0 of 1"),
        (("+0.2 (+0.0 to +0.5)",), "holds: 1 of 1"),
        (("-0.9 (-1.9 to -0.0)",), "does not hold: 0 of 1, against it on 1"),
    ],
)
def test_a_verdict_counts_the_intervals_on_the_side_of_the_paper(
    printed: tuple[str, ...], expected: str
) -> None:
    assert verdict(*printed) == expected


def test_a_cost_holds_while_its_whole_interval_is_below_the_papers() -> None:
    assert verdict("-0.2 (-0.4 to -0.0)", "-1.0 (-1.4 to -0.5)", at_most=1.5) == "holds: 2 of 2"
    assert verdict("-1.2 (-1.7 to -0.6)", at_most=1.5) == "not seen: 0 of 1"
    assert verdict("-3.0 (-4.0 to -2.0)", at_most=1.5) == "does not hold: 0 of 1, against it on 1"


@pytest.mark.parametrize("printed", ["1.0", "+1.0 (0.5 to 1.5)", "+1.0 (+0.5 to +1.5)!"])
def test_a_figure_that_is_not_printed_like_one_is_refused(printed: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        verdict(printed)


def test_every_figure_is_on_the_page_that_it_names() -> None:
    claims = read_claims(DOCS / "data" / "claims.toml")
    figures = [(claim.title, figure) for claim in claims for figure in claim.figures]
    assert sum(not figure.page for _, figure in figures) == HERE_ALONE
    for title, figure in figures:
        if figure.page:
            page = (DOCS / "benchmarks" / f"{figure.page}.md").read_text("utf-8")
            here = _plain(figure.printed)
            assert {here, _mirrored(here)} & _differences(_plain(page)), (title, figure)


def _plain(text: str) -> str:
    """Without plus signs and the word points, which tables and sentences write differently."""
    return " ".join(text.replace("+", "").replace(" points (", " (").split())


def _mirrored(printed: str) -> str:
    """The difference the other way round."""
    value, low, high = (
        one.removeprefix("-") if one.startswith("-") else f"-{one}"
        for one in printed.replace("(", "").replace(")", "").replace("to ", "").split()
    )
    return f"{value} ({high} to {low})"


def _differences(page: str) -> set[str]:
    number = r"-?\d+\.\d"
    return {*re.findall(rf"{number} \({number} to {number}\)", page)}


def test_the_page_on_a_thousand_cameras_has_the_tables_that_are_computed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    capacity.main([])
    page = (DOCS / "benchmarks" / "a-thousand-cameras.md").read_text("utf-8")
    tables = capsys.readouterr().out.strip().split("\n\n")
    assert len(tables) == 3
    assert [table for table in tables if table not in page] == []
