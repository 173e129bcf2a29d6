"""The page on capacity: what its study gives, from figures that are those of the code."""

from __future__ import annotations

import csv
import re
import subprocess
import sys

import numpy as np
import pytest

from stepvad.fleet.events.tenant_tables import TENANTS
from stepvad.fleet.settings import BusSettings, EdgeSettings, EventsSettings
from stepvad.fleet.wire import Batch, CameraConnection, encode
from stepvad.site.settings.sections import RetentionSettings
from tests.pages import ROOT

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
    assert f"VALUES ('', {told['events_days']:g})" in TENANTS
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
