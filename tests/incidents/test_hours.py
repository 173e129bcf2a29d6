"""Hours: when a camera and a zone may raise events, by the clock on the wall."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from itertools import count
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.incidents.camera_events import CameraEvents, CameraProfile, RecordChange
from stepvad.incidents.events import Rules
from stepvad.incidents.hours import WatchHours
from stepvad.model.scoring import WindowScores
from stepvad.poses import Pose

RATE = 10.0
SIZE = (100, 100)
LEFT = {"left": [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)]}


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's time zone has summer time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str, fold: int = 0) -> float:
    """The Unix time of a local one."""
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    return moment.timestamp()


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        (["08:00-18:00"], ["08:00", "17:59"], ["07:59", "18:00", "00:00"]),
        (["22:00-06:00"], ["22:00", "23:59", "00:00", "05:59"], ["06:00", "21:59"]),
        (["00:00-24:00"], ["00:00", "12:00", "23:59"], []),
        (["18:00-24:00"], ["18:00", "23:59"], ["00:00", "17:59"]),
        (["06:00-07:00", "20:00-21:00"], ["06:30", "20:30"], ["07:00", "12:00"]),
        ([], [], ["00:00", "12:00"]),
    ],
)
def test_a_time_is_inside_from_the_first_minute_to_before_the_last(
    hours: list[str], inside: list[str], outside: list[str]
) -> None:
    watched = WatchHours.parse(hours)
    for clock, expected in [*((c, True) for c in inside), *((c, False) for c in outside)]:
        assert watched.include(at(f"2026-11-17T{clock}")) is expected, clock


def test_a_change_of_the_clock_changes_no_hours() -> None:
    night = WatchHours.parse(["02:30-06:00"])
    # in spring 02:00 is followed by 03:00: half past two never comes, the span starts at three
    assert not night.include(at("2026-03-29T01:59"))
    assert night.include(at("2026-03-29T01:59") + 60)
    # in autumn half past two comes twice, an hour apart; in between it is not yet time again
    first, second = at("2026-10-25T02:30"), at("2026-10-25T02:30", fold=1)
    assert second - first == 3600
    assert night.include(first)
    assert not night.include(at("2026-10-25T02:15", fold=1))
    assert night.include(second)
    day = WatchHours.parse(["08:00-18:00"])
    for date in ("2026-03-28", "2026-03-29", "2026-10-24", "2026-10-25"):
        assert not day.include(at(f"{date}T07:59"))
        assert day.include(at(f"{date}T08:00"))


@pytest.mark.parametrize(
    "text",
    ["8-18", "08:00", "08:00-8:30", "25:00-26:00", "08:00-24:30", "24:00-06:00", "08:00-08:00"],
)
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected hours as HH:MM-HH:MM, got") as raised:
        WatchHours.parse([text])
    assert "22:00-06:00" in raised.value.hint


def events(detector: Detector, wall0: float, **more: object) -> CameraEvents:
    facts: dict[str, object] = {"hours": None, "zone_hours": {}} | more
    profile = CameraProfile(
        camera="door",
        rate=RATE,
        rules=Rules(threshold=3.0, min_s=0.4, gap_s=1.0),
        detector=detector,
        model_id="small",
        model_sha256="0" * 64,
        zones=LEFT,
        **facts,  # type: ignore[arg-type]
    )
    made = CameraEvents(profile, count(1).__next__)
    made.begin(wall0)
    return made


def play(made: CameraEvents, seconds: float, *, x: float = 20.0) -> list[RecordChange]:
    """Somebody moves abnormally all the time, standing at `x`."""
    found: list[RecordChange] = []
    body = np.linspace((x - 1, 50), (x + 1, 90), 17).astype(np.float32)
    for slot in range(round(seconds * RATE)):
        windows = WindowScores(
            A=np.array([9.0], np.float32),
            E=np.ones((1, 4), np.float32),
            c=np.ones(1, np.float32),
            track_id=np.array([1]),
            frame=np.array([slot]),
        )
        pose = Pose(1, body, np.ones(17, np.float32))
        found += made.see(slot, SIZE, [pose], windows)
    return found


def test_events_are_raised_within_the_hours_alone(small_model: Detector) -> None:
    hours = WatchHours.parse(["08:00-18:00"])
    opens = at("2026-11-17T08:00")
    made = events(small_model, opens - 10, hours=hours)
    (first, record), *_ = play(made, 15)
    assert first == "new"
    assert record.start_time == pytest.approx(opens)

    closes = at("2026-11-17T18:00")
    found = play(events(small_model, closes - 5, hours=hours), 15)
    kind, record = found[-1]
    assert (kind, record.ended_by) == ("end", "calm")
    assert record.end_time == pytest.approx(closes, abs=0.2)
    assert [kind for kind, _ in found].count("new") == 1
    assert not play(events(small_model, closes + 60, hours=hours), 15)


def test_a_zone_has_hours_of_its_own(small_model: Detector) -> None:
    noon = at("2026-11-17T12:00")
    night = {"left": WatchHours.parse(["22:00-06:00"])}
    assert not play(events(small_model, noon, zone_hours=night), 5, x=20)
    assert play(events(small_model, noon, zone_hours=night), 5, x=80)
    assert play(events(small_model, at("2026-11-17T23:00"), zone_hours=night), 5, x=20)
    never = {"left": WatchHours.parse([])}
    assert not play(events(small_model, noon, zone_hours=never), 5, x=20)
