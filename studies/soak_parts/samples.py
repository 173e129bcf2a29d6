"""What the processes of a simulated site hold, every now and then."""

from __future__ import annotations

import csv
import os
import shutil
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from studies.soak_parts.site import SoakSite

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
TICKS = os.sysconf("SC_CLK_TCK")
OPEN_S = 60.0
"""An event of this site is over much sooner."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds, or some together."""

    rss_mb: float = 0.0
    threads: int = 0
    handles: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(
            self.rss_mb + other.rss_mb, self.threads + other.threads, self.handles + other.handles
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The whole site at one moment."""

    at_s: float
    site_pid: int
    site_age_s: float
    site_rss_mb: float
    site_threads: int
    site_handles: int
    children: int
    children_rss_mb: float
    children_threads: int
    children_handles: int
    log_mb: float
    events: int
    open_long: int
    frames_in: int
    frames_scored: int
    frames_shed: int
    undelivered: int
    free_mb: float
    fault: str


class Sampler:
    """Takes samples and keeps them, also in a file."""

    def __init__(self, site: SoakSite, path: Path) -> None:
        self.samples: list[Sample] = []
        self.most_events = 0
        self._site, self._path = site, path
        self._began = time.monotonic()
        self._open_since: dict[str, float] = {}
        with path.open("w", newline="") as file:
            csv.writer(file).writerow(field.name for field in fields(Sample))

    def take(self, fault: str) -> Sample:
        """One more."""
        site, now = self._site, time.monotonic()
        processes = site.processes()
        pid = processes.pop("site", 0)
        own = held(pid)
        children = sum(map(held, processes.values()), Held())
        site.counts()
        rows = site.events() or []
        self.most_events = max(self.most_events, len(rows))
        going_on = {row.id for row in rows if row.is_open}
        self._open_since = {id: self._open_since.get(id, now) for id in going_on}
        sample = Sample(
            at_s=round(now - self._began, 1), site_pid=pid, site_age_s=round(age_s(pid), 1),
            site_rss_mb=own.rss_mb, site_threads=own.threads, site_handles=own.handles,
            children=len(processes), children_rss_mb=children.rss_mb,
            children_threads=children.threads, children_handles=children.handles,
            log_mb=site.log.stat().st_size / 1e6, events=len(rows),
            open_long=sum(now - since > OPEN_S for since in self._open_since.values()),
            frames_in=site.frames.totals["in"], frames_scored=site.frames.totals["scored"],
            frames_shed=site.frames.totals["shed"],
            undelivered=sum(site.undelivered().values()),
            free_mb=shutil.disk_usage(site.data).free / 1e6, fault=fault,
        )  # fmt: skip
        self.samples.append(sample)
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(
                round(value, 3) if isinstance(value, float) else value
                for value in asdict(sample).values()
            )
        return sample


def held(pid: int) -> Held:
    """What a process holds; nothing if it is gone."""
    place = Path(f"/proc/{pid}")
    try:
        pages = int((place / "statm").read_text().split()[1])
        return Held(
            pages * PAGE_MB, len([*(place / "task").iterdir()]), len([*(place / "fd").iterdir()])
        )
    except (OSError, IndexError):
        return Held()


def age_s(pid: int) -> float:
    """Seconds since a process was started; 0 if it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / TICKS
