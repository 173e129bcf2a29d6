"""Pages made by studies from figures: what holds of the paper's claims, and capacity."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stepvad.fleet.events.migrations import TABLES
from stepvad.fleet.settings import BusSettings, EdgeSettings, EventsSettings
from stepvad.fleet.wire import Batch, CameraConnection, encode
from stepvad.site.settings.sections import RetentionSettings
from studies.what_holds import SETS, Claim, ClaimFigure, read_claims
from tests.pages import ROOT

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


PAGE = ROOT / "docs" / "benchmarks" / "capacity.md"


def figures() -> dict[str, float]:
    with (ROOT / "docs" / "data" / "capacity.csv").open(encoding="utf-8", newline="") as file:
        return {row["name"]: float(row["value"]) for row in csv.DictReader(file)}


def printed() -> list[str]:
    """The tables that the study prints."""
    command = [sys.executable, "-m", "studies", "capacity"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return made.stdout.strip().split("\n\n")


def test_the_page_shows_what_the_script_gives() -> None:
    page = PAGE.read_text("utf-8")
    tables = printed()
    assert len(tables) == 7
    assert [table for table in tables if table not in page] == []


def test_a_few_of_its_numbers_by_hand() -> None:
    travels, sites, centre, edge, first, profiles, _ = printed()
    assert "| 1,000,000 | 500 GB/s | 9.17 GB/s |" in travels  # 5 x 15 x 1e6 x 122.3 B
    assert "| 100 | 244 | 0.45 | 16 |" in sites  # 1,500 x 0.114 / 0.7, / 16
    assert "| 10,000 | 55 | 42 | 87.1 TB | 14.4 GB |" in centre  # 150,000 / (16,001 x 0.7): 14 x 3
    assert "| 1,000,000 | 833 | 3 | 10 minutes | 1.44 TB |" in edge  # 1e6 / 3,600 x 3; 720e6 x 2 kB
    assert re.search(r"\| 1,000,000 \|.*: 7.6 of them \|$", first, re.MULTILINE)  # 153,000 / 20,000
    assert "| small | 222 | 182 |" in profiles  # 0.7 / (75 x 42.1 us), and 15 x 1.7 x 26.7 us


def test_figures_that_the_code_knows_are_those_of_the_code() -> None:
    told, fleet = figures(), EdgeSettings()
    assert told["frames_per_message"] == fleet.frames_per_message
    assert told["shards"] == BusSettings().shards
    assert f"{EventsSettings().batch} in a commit" in PAGE.read_text("utf-8")
    assert f"VALUES ({told['events_days']:g})" in TABLES
    assert (told["events_mb"], told["bus_days"]) == (
        BusSettings().events_mb,
        BusSettings().events_days,
    )
    broker = (ROOT / "deploy" / "fleet" / "nats" / "nats.conf").read_text("utf-8")
    assert f"max_connections: {told['broker_connections']:g}\n" in broker
    assert told["archive_days"] == RetentionSettings().poses_days
    frames, people = int(told["frames_per_message"]), int(told["people"])
    random = np.random.default_rng(0)
    connection = CameraConnection(
        site="north", camera="yard", epoch=3, wall0=1.79e9, rate=told["fps"], size=(1920, 1080)
    )
    batch = Batch(
        connection=connection,
        seq=100_000,
        slots=[123_456 + i for i in range(frames)],
        people=[people] * frames,
        tracks=np.tile(np.arange(people, dtype=np.int32), frames) + 1000,
        keypoints=random.uniform(0, 1000, (frames * people, 17, 2)).astype(np.float32),
        confidence=random.uniform(0.1, 1, (frames * people, 17)).astype(np.float32),
    )
    measured = len(encode(batch, "f2")) / (frames * people)
    assert measured == pytest.approx(told["person_bytes"], rel=0.01)


def test_every_figure_has_a_source() -> None:
    with (ROOT / "docs" / "data" / "capacity.csv").open(encoding="utf-8", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert all(len(row) == 4 and all(row.values()) for row in rows)
    script = (ROOT / "studies" / "capacity.py").read_text("utf-8")
    assert [row["name"] for row in rows if f'"{row["name"]}"' not in script.replace("'", '"')] == []
