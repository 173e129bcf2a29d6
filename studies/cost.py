"""What scoring costs, from measured speeds and list prices: cameras per core, cents per year.

    python -m studies cost > cost.md

Reads docs/data/speeds.csv (profile, runtime, microseconds per window) and docs/data/prices.csv, and
prints the tables of docs/benchmarks/cost.md.

    cameras per core = 1 / (fps x people x (window + stream))
    USD per camera and year = USD per core-hour x 8,760 / cameras per core
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from studies.figures import markdown, read_rows

DATA = Path(__file__).parents[1] / "docs" / "data"
FPS, PEOPLE = 15, 5
HOURS = 8760
FLEET = (1_000, 1_000_000)
WORDS = (0, 1)
"""Columns of profile and runtime."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    speeds, prices = read_rows(DATA / "speeds.csv"), read_rows(DATA / "prices.csv")
    header = ["profile", "runtime", "us per window", "windows/s per core", "cameras per core"]
    header += [f"cents per camera-year, {price['instance']}" for price in prices]
    print(markdown(header, (profile_row(speed, prices) for speed in speeds), WORDS))
    print()
    header = ["profile", "runtime", *(f"cores for {cameras:,} cameras" for cameras in FLEET)]
    header.append(f"USD a year for {FLEET[-1]:,}, {prices[0]['instance']}")
    print(markdown(header, (fleet_row(speed, prices[0]) for speed in speeds), WORDS))


def cameras_per_core(speed: dict[str, str]) -> float:
    """How many cameras one core scores."""
    seconds = 1e-6 * (float(speed["window_us"]) + float(speed["stream_us"]))
    return 1 / (FPS * PEOPLE * seconds)


def per_core_hour(price: dict[str, str]) -> float:
    """USD for one core and hour."""
    return float(price["usd_per_hour"]) / int(price["vcpus"])


def profile_row(speed: dict[str, str], prices: list[dict[str, str]]) -> list[str]:
    """One profile on one runtime."""
    window = float(speed["window_us"])
    cameras = cameras_per_core(speed)
    cents = [100 * per_core_hour(price) * HOURS / cameras for price in prices]
    return [
        speed["profile"],
        f"`{speed['runtime']}`",
        f"{window:.1f}",
        f"{1e6 / window:,.0f}",
        f"{cameras:,.0f}",
        *(f"{value:,.0f}" for value in cents),
    ]


def fleet_row(speed: dict[str, str], price: dict[str, str]) -> list[str]:
    """One profile for few and many cameras."""
    cores = [cameras / cameras_per_core(speed) for cameras in FLEET]
    usd = cores[-1] * per_core_hour(price) * HOURS
    return [
        speed["profile"],
        f"`{speed['runtime']}`",
        *(f"{math.ceil(n):,}" for n in cores),
        f"{usd:,.0f}",
    ]
