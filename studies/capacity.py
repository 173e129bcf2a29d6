"""From one camera to a million: people, boxes, brokers, database, electricity. Prints Markdown.

    python -m studies capacity > capacity.md

Reads docs/data/capacity.csv (each figure with its kind and its source) and prints the tables of
docs/benchmarks/a-thousand-cameras.md. No figure stands in this file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.figures import markdown, read_rows

DATA = Path(__file__).parents[1] / "docs" / "data" / "capacity.csv"
FLEETS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
DAY_S, HOUR_S, YEAR_H = 86_400.0, 3600.0, 8760.0
WORDS_OF_FIGURES = (0, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many cameras, and what they take by the figures of the file."""

    cameras: int
    figures: dict[str, float]

    @property
    def sites(self) -> int:
        return math.ceil(self.cameras / self.figures["cameras_per_site"])

    @property
    def alerts_a_day(self) -> float:
        return self.cameras * self.figures["alerts_per_day"]

    @property
    def people(self) -> float:
        """People who judge alerts around the clock, each at work for a year's hours."""
        hours = 365 * self.alerts_a_day / self.figures["judged_per_hour"]
        return hours / self.figures["shift_hours"]

    @property
    def boxes(self) -> int:
        """Boxes at the sites, one of each at least."""
        of_site = min(self.cameras, self.figures["cameras_per_site"])
        cores = of_site * 1e-3 * self.figures["day_ms"] / self.figures["busy"]
        return self.sites * max(math.ceil(cores / self.figures["box_cores"]), 1)

    @property
    def changes(self) -> float:
        """Changes of events in a second."""
        return self.alerts_a_day * self.figures["changes_per_event"] / DAY_S

    @property
    def looks(self) -> float:
        """Looks, and as many statuses, in a second."""
        return self.sites * self.figures["looks_per_hour"] / HOUR_S

    @property
    def broker_cores(self) -> float:
        """Cores that looks and statuses take of all brokers."""
        return self.looks * 1e-6 * self.figures["look_us"]

    @property
    def writer_cores(self) -> float:
        return self.changes * 1e-6 * self.figures["writer_us"]

    @property
    def month_gb(self) -> float:
        """Size of a month's partition."""
        return 30 * self.alerts_a_day * self.figures["event_bytes"] / 1e9

    @property
    def kwh_usd(self) -> float:
        """USD a year for the electricity of the boxes."""
        return self.boxes * self.figures["box_watts"] / 1000 * YEAR_H * self.figures["kwh_usd"]

    def row(self) -> list[str]:
        brokers = "none" if self.cameras == 1 else "3" if self.sites > 20 else "none, or 1"
        return [
            f"{self.cameras:,}",
            f"{self.sites:,}",
            f"{self.alerts_a_day:,.0f}",
            rounded(self.people),
            f"{self.boxes:,}",
            brokers,
            rounded(self.looks),
            rounded(100 * self.broker_cores),
            rounded(1e-6 * self.sites * self.figures["connection_kb"]),
            rounded(self.changes),
            rounded(100 * self.changes / self.figures["broker_changes"]),
            rounded(100 * self.writer_cores),
            rounded(self.month_gb),
            f"{self.kwh_usd:,.0f}",
        ]


HEADER = [
    *("cameras", "sites", "alerts a day", "people who judge them", "boxes at the sites"),
    *("brokers", "looks/s", "brokers busy with looks, % of a core"),
    *("their connections, GB", "changes/s"),
    *("of what one broker syncs, %", "writer and database, % of a core"),
    *("a month of events, GB", "electricity of the boxes, USD a year"),
]


def rounded(value: float) -> str:
    """Two digits that count."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    rows = read_rows(DATA)
    figures = {row["name"]: float(row["value"]) for row in rows}
    # a column for each size would be too wide: sizes are rows, in two tables
    table = [Fleet(cameras, figures).row() for cameras in FLEETS]
    for columns in (range(6), (0, *range(6, len(HEADER)))):
        print(markdown([HEADER[n] for n in columns], ([row[n] for n in columns] for row in table)))
        print()
    header = ["figure", "value", "what", "kind", "source"]
    cells = ([row["name"], row["value"], row["what"], row["kind"], row["source"]] for row in rows)
    print(markdown(header, cells, WORDS_OF_FIGURES))


if __name__ == "__main__":
    main()
