"""Alerts against labels, worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from stepvad.evaluation.endtoend.alerts import EventOutcome, judge, raised
from stepvad.evaluation.endtoend.footageset import FootageClip, Times
from stepvad.incidents.events import Rules
from stepvad.model.scoring import Scores
from stepvad.poses import Clip
from tests.video import scored as made

RULES = Rules(threshold=2.0)
N = 200
"""Twenty seconds."""


def footage(*peaks: int) -> tuple[Clip, Scores]:
    """A person whose score is high for a second from each of these frames on."""
    poses = made.clip(made.track(1, (100.0, 100.0), range(N)), n_frames=N)
    A = np.zeros(N, np.float32)
    for first in peaks:
        A[first : first + 10] = 3.0
    return poses, made.scored(poses, {1: A[made.T - 1 :]})


def labelled(events: Times | Literal["whole"]) -> FootageClip:
    return FootageClip(name="yard", path=Path("yard.mp4"), events=events)


def test_an_alert_is_raised_when_it_has_lasted() -> None:
    poses, scores = footage(50, 150)
    alerts = raised(poses, scores, RULES)
    assert [alert.raised_s for alert in alerts] == pytest.approx([5.4, 15.4])
    assert [alert.last_s for alert in alerts] == pytest.approx([5.9, 15.9])


@pytest.mark.parametrize(
    ("begin", "outcome", "delay"),
    [
        (5.0, "found", 0.4),
        (2.5, "found", 2.9),
        (5.8, "found", -0.4),
        (2.3, "late", None),
        (5.95, "missed", None),
        (10.0, "missed", None),
    ],
)
def test_an_event_is_found_in_time_or_not(begin: float, outcome: str, delay: float | None) -> None:
    poses, scores = footage(50)
    (event,) = judge(labelled(((begin, begin + 4),)), poses, scores, RULES).events
    assert event.outcome == outcome
    assert event.delay_s == (None if delay is None else pytest.approx(delay))


def test_an_alert_that_is_open_when_the_event_begins() -> None:
    poses, scores = footage(50, 70, 90)  # one alert, as the gaps are short
    (event,) = judge(labelled(((7.0, 9.0),)), poses, scores, RULES).events
    assert event == EventOutcome(7.0, "open before")


def test_false_alerts_are_those_outside_of_events() -> None:
    poses, scores = footage(10, 60, 120)
    result = judge(labelled(((6.0, 8.0),)), poses, scores, RULES)
    assert [alert.raised_s for alert in result.alerts] == pytest.approx([1.4, 6.4, 12.4])
    assert result.false_alerts == 2
    assert result.normal_s == pytest.approx(20 - 5.6)  # from 5.5 to 11, both included
    assert result.peak == 3.0
    assert result.peak_s == pytest.approx(1.0)

    normal = judge(labelled(()), poses, scores, RULES)
    assert (normal.false_alerts, normal.normal_s, normal.events) == (3, 20.0, ())


def test_a_label_of_the_whole_clip_knows_no_delay() -> None:
    poses, scores = footage(120)
    result = judge(labelled("whole"), poses, scores, RULES)
    assert result.events == (EventOutcome(0.0, "found"),)
    assert (result.false_alerts, result.normal_s) == (0, 0.0)
    quiet = judge(labelled("whole"), *footage(), RULES)
    assert quiet.events == (EventOutcome(0.0, "missed"),)


def test_a_clip_without_people_scores_lowest() -> None:
    poses = made.clip(n_frames=N)
    _, scores = footage()
    nobody = Scores("yard", N, made.T, scores.windows.part(np.empty(0, np.int64)), scores.counts, 0)
    result = judge(labelled("whole"), poses, nobody, RULES)
    assert (result.peak, result.peak_s, result.alerts) == (-np.inf, None, ())
