"""How many alerts were right, by camera and week, as far as people judged them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from stepvad.incidents.record import Record
from stepvad.incidents.review import Review


@dataclass(frozen=True, slots=True)
class WeekOfAlerts:
    """The alerts of one camera in one week."""

    camera: str
    week: str
    """Its Monday, as YYYY-MM-DD in the machine's time zone."""
    alerts: int
    right: int
    normal: int

    @property
    def unjudged(self) -> int:
        """Alerts that nobody judged."""
        return self.alerts - self.right - self.normal

    @property
    def precision(self) -> float | None:
        """Share of right alerts among those that were judged; None if none was."""
        judged = self.right + self.normal
        return self.right / judged if judged else None


def by_week(events: Iterable[Record], reviews: Mapping[str, Review]) -> list[WeekOfAlerts]:
    """Count alerts by camera and week, the latest week first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for event in events:
        key = monday_of(event.start_time), event.camera
        mark = reviews[event.id].mark if event.id in reviews else None
        counts[*key, "alerts"] += 1
        counts[*key, mark or "unjudged"] += 1
    keys = sorted({(week, camera) for week, camera, _ in counts}, key=lambda key: key[1])
    return [
        WeekOfAlerts(camera, week, *(counts[week, camera, what] for what in WHAT))
        for week, camera in sorted(keys, key=lambda key: key[0], reverse=True)
    ]


WHAT = ("alerts", "right", "normal")


def monday_of(unix: float) -> str:
    """The Monday of the week of a time."""
    day = datetime.fromtimestamp(unix).date()
    return str(day - timedelta(days=day.weekday()))
