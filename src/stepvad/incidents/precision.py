"""How many alerts were right, by camera and week, as far as people judged them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from stepvad.incidents.record import Record
from stepvad.incidents.review import Mark, Review


@dataclass(frozen=True, slots=True)
class WeekOfAlerts:
    """The alerts of one camera in one week."""

    camera: str
    week: str
    """Its Monday, as YYYY-MM-DD in the machine's time zone."""
    alerts: int
    right: int
    normal: int
    unjudged: int
    precision: float | None
    """Share of right alerts among those that were judged; None if none was."""


def by_week(events: Iterable[Record], reviews: Mapping[str, Review]) -> list[WeekOfAlerts]:
    """Count alerts by camera and week, the latest week first."""
    marks: dict[tuple[str, str], list[Mark | None]] = {}
    for event in events:
        review = reviews.get(event.id)
        key = monday_of(event.start_time), event.camera
        marks.setdefault(key, []).append(review.mark if review else None)
    by_camera = sorted(marks, key=lambda key: key[1])
    return [
        _week(camera, week, marks[week, camera])
        for week, camera in sorted(by_camera, key=lambda key: key[0], reverse=True)
    ]


def _week(camera: str, week: str, marks: list[Mark | None]) -> WeekOfAlerts:
    right, normal, unjudged = (marks.count(one) for one in ("right", "normal", None))
    precision = right / (right + normal) if right + normal else None
    return WeekOfAlerts(camera, week, len(marks), right, normal, unjudged, precision)


def monday_of(unix: float) -> str:
    """The Monday of the week of a time."""
    day = datetime.fromtimestamp(unix).date()
    return str(day - timedelta(days=day.weekday()))
