"""From one site to a million cameras: bytes, cores, machines, money, and what breaks first.

    python -m studies capacity > capacity.md

Reads docs/data/capacity.csv (named figures, each with its source), speeds.csv and prices.csv beside
it, and prints the tables of docs/benchmarks/capacity.md. No figure stands in this file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.figures import markdown, read_rows

DATA = Path(__file__).parents[1] / "docs" / "data"
FLEETS = (1, 100, 1_000, 10_000, 100_000, 1_000_000)
PROFILE = "small"
HOURS = 8760
DAY_S = 86_400


FIGURES = {row["name"]: float(row["value"]) for row in read_rows(DATA / "capacity.csv")}


def core_usd() -> float:
    """USD a year for a rented core."""
    price = read_rows(DATA / "prices.csv")[0]
    return float(price["usd_per_hour"]) / int(price["vcpus"]) * HOURS


def window_s(profile: str) -> float:
    """Seconds of a core to keep and score one window, on the fastest runtime of a profile."""
    found = [row for row in read_rows(DATA / "speeds.csv") if row["profile"] == profile]
    return 1e-6 * min(float(row["window_us"]) + float(row["stream_us"]) for row in found)


def frame_s() -> float:
    """Seconds of a core to take a frame from the bus: a share of its message, and its own."""
    of_message = (FIGURES["bare_1_us"] - FIGURES["bare_10_us"]) / 0.9
    of_frame = FIGURES["bare_1_us"] - of_message
    bare = of_frame + of_message / FIGURES["frames_per_message"]
    return 1e-6 * FIGURES["overhead"] * bare


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many cameras, and what they need."""

    cameras: int
    profile: str = PROFILE

    @property
    def frames(self) -> float:
        """Frames a second."""
        return self.cameras * FIGURES["fps"]

    @property
    def windows(self) -> float:
        """Windows a second: one for each person in each frame."""
        return self.frames * FIGURES["people"]

    @property
    def pose_bytes(self) -> float:
        """Bytes a second of poses on the bus."""
        return self.windows * FIGURES["person_bytes"]

    @property
    def pose_cores(self) -> float:
        """Cores that find people and joints."""
        return self.frames * 1e-3 * FIGURES["pose_ms"] / FIGURES["busy"]

    @property
    def scoring_cores(self) -> float:
        """Cores that score, without a bus."""
        return self.windows * window_s(self.profile) / FIGURES["busy"]

    @property
    def worker_cores(self) -> float:
        """Cores of workers, which take frames from a bus and score them."""
        return self.scoring_cores + self.frames * frame_s() / FIGURES["busy"]

    @property
    def changes(self) -> float:
        """Messages about events in a second."""
        return self.cameras * FIGURES["events_per_hour"] / 3600 * FIGURES["changes_per_event"]

    @property
    def event_gb(self) -> float:
        """GB of the database."""
        events = self.cameras * FIGURES["events_per_hour"] * 24 * FIGURES["events_days"]
        return events * FIGURES["event_bytes"] / 1e9

    @property
    def archive_gb(self) -> float:
        """GB of kept poses."""
        return self.windows * FIGURES["archive_bytes"] * FIGURES["archive_days"] * DAY_S / 1e9

    @property
    def waiting_s(self) -> float:
        """Seconds of events that the broker keeps while the database is away."""
        full = 1e6 * FIGURES["events_mb"] / (self.changes * FIGURES["event_bytes"])
        return min(full, FIGURES["bus_days"] * DAY_S)

    @property
    def groups(self) -> int:
        """Groups of three brokers that poses take: no group carries more than one stream does."""
        return math.ceil(self.frames / FIGURES["broker_frames"] / FIGURES["busy"])

    def loads(self, *, poses: bool) -> dict[str, float]:
        """Share of one of each thing that is used: above 1 there have to be several."""
        brokers = 3 * self.groups if poses else 3
        edges = (self.pose_cores + self.scoring_cores) / FIGURES["machine_cores"]
        of_brokers = (brokers - 1) * FIGURES["broker_connections"]  # one may be missing
        events = self.changes / FIGURES["broker_events"]
        written = self.changes / FIGURES["database_changes"]
        found = {
            "syncs of the event stream": events,
            "writes of the database": written,
            "connections to the brokers": edges / of_brokers,
        }
        if poses:
            found["the broker's stream of poses"] = self.frames / FIGURES["broker_frames"]
            found[f"workers for {FIGURES['shards']:.0f} shards"] = (
                self.worker_cores / FIGURES["shards"]
            )
        return found

    def centre_usd(self, *, poses: bool) -> float:
        """USD a year for everything that is not at a site."""
        groups = self.groups if poses else 1
        cores = 3 * groups * FIGURES["broker_cores"] + 2 * FIGURES["broker_cores"]
        usd = self.event_gb * FIGURES["disk_usd"] * 2
        if poses:
            cores += self.worker_cores
            usd += self.archive_gb * FIGURES["object_usd"]
        return usd + cores * core_usd()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(arguments)
    fleets = [Fleet(cameras) for cameras in FLEETS]
    table(
        ["cameras", "video", "poses", "events", "frames/s", "windows/s"],
        (
            [
                f"{fleet.cameras:,}",
                rate(fleet.cameras * FIGURES["video_mbit"] * 1e6 / 8),
                rate(fleet.pose_bytes),
                rate(fleet.changes * FIGURES["event_bytes"]),
                f"{fleet.frames:,.0f}",
                f"{fleet.windows:,.0f}",
            ]
            for fleet in fleets
        ),
    )
    at_sites(fleets)
    at_the_centre(fleets)
    bottlenecks(fleets)
    profiles()


def at_sites(fleets: list[Fleet]) -> None:
    """What runs beside the cameras."""
    header = ["cameras", "cores for poses", "cores for scoring", "machines", "USD a year"]
    lines = []
    for fleet in fleets:
        cores = fleet.pose_cores + fleet.scoring_cores
        lines.append(
            [
                f"{fleet.cameras:,}",
                number(fleet.pose_cores),
                number(fleet.scoring_cores),
                f"{math.ceil(cores / FIGURES['machine_cores']):,}",
                number(cores * FIGURES["edge_core_usd"]),
            ]
        )
    table(header, lines)


def at_the_centre(fleets: list[Fleet]) -> None:
    """What a fleet needs, with poses and without."""
    table(
        ["cameras", "worker cores", "brokers", "poses at rest", "events at rest", "USD a year"],
        (
            [
                f"{fleet.cameras:,}",
                number(fleet.worker_cores),
                f"{3 * fleet.groups:,}",
                size(fleet.archive_gb),
                size(fleet.event_gb),
                number(fleet.centre_usd(poses=True)),
            ]
            for fleet in fleets
        ),
    )
    table(
        ["cameras", "messages/s", "brokers", "events wait", "events at rest", "USD a year"],
        (
            [
                f"{fleet.cameras:,}",
                f"{fleet.changes:.3g}",
                "3",
                lasting(fleet.waiting_s),
                size(fleet.event_gb),
                number(fleet.centre_usd(poses=False)),
            ]
            for fleet in fleets
        ),
    )


def bottlenecks(fleets: list[Fleet]) -> None:
    """What is used up first, as a share of one."""
    lines = []
    for fleet in fleets:
        cores = fleet.pose_cores + fleet.scoring_cores
        words = [f"{fleet.cameras:,}", f"cores: {share(cores / FIGURES['machine_cores'])}"]
        for poses in (True, False):
            loads = fleet.loads(poses=poses)
            first = max(loads, key=loads.__getitem__)
            words.append(f"{first}: {share(loads[first])}")
        lines.append(words)
    header = ["cameras", "machines at the sites", "centre, if poses go there"]
    table([*header, "centre, if sites score"], lines, words=3)


def profiles() -> None:
    """Cameras that one core scores, by profile."""
    table(
        ["profile", "cameras a core, at a site", "cameras a core, from the bus"],
        (
            [
                profile,
                f"{1 / Fleet(1, profile).scoring_cores:,.0f}",
                f"{1 / Fleet(1, profile).worker_cores:,.0f}",
            ]
            for profile in ("paper", "small", "tiny")
        ),
    )
    price = read_rows(DATA / "prices.csv")[0]
    rows = [
        [r["name"], f"{float(r['value']):g}", r["unit"], r["source"]]
        for r in read_rows(DATA / "capacity.csv")
    ]
    rows.append(["core_usd", f"{core_usd():.0f}", "USD a year for a rented core", price["source"]])
    table(["figure", "value", "what", "source"], rows, words=2, last=True)


def rate(bytes_s: float) -> str:
    """Bytes a second, in words."""
    for unit, scale in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_s >= scale:
            return f"{bytes_s / scale:.3g} {unit}"
    return f"{bytes_s:.3g} B/s"


def size(gigabytes: float) -> str:
    """GB, in words."""
    for unit, scale in (("PB", 1e6), ("TB", 1e3), ("GB", 1.0)):
        if gigabytes >= scale:
            return f"{gigabytes / scale:.3g} {unit}"
    return f"{gigabytes * 1e3:.3g} MB"


def lasting(seconds: float) -> str:
    """Days, hours or minutes."""
    for unit, scale in (("days", DAY_S), ("hours", 3600)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def number(value: float) -> str:
    """Two digits of what is small, and no false precision of what is large."""
    if value < 100:
        return f"{value:.2g}"
    return f"{float(f'{value:.2e}'):,.0f}"


def share(value: float) -> str:
    """How much of one thing is used."""
    if value < 1e-4:
        return "less than 0.01 %"
    return f"{100 * value:.2g} %" if value < 1 else f"{number(value)} of them"


def table(
    header: list[str], rows: Iterable[list[str]], *, words: int = 0, last: bool = False
) -> None:
    """A table in Markdown; numbers stand to the right, the last columns may be words."""
    named = header[0] in ("profile", "figure")
    numbers = range(named, len(header) - words)
    print(markdown(header, rows, {*range(len(header))} - {*numbers}))
    if not last:
        print()
