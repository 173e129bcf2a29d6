"""The events that a score finds at a rate of false alarms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepvad.events.calibration import RULES
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import WindowScores
from studies.measures.event_recall import ALARMED, EventsFound, WatchedClip, thresholds_at

FPS = 10.0
N = 6000
"""Ten minutes."""


def clip(*peaks: tuple[int, float], abnormal: tuple[tuple[int, int], ...] = ()) -> WatchedClip:
    """Scores below 0.1, and for a second from each frame on those of a peak."""
    A = np.random.default_rng(0).uniform(0.0, 0.1, N).astype(np.float32)
    for first, score in peaks:
        A[first : first + 10] = score
    truth = np.zeros(N, np.bool_)
    for first, end in abnormal:
        truth[first:end] = True
    ones = np.ones(N, np.float32)
    windows = WindowScores(
        np.ones(N, np.int64), np.arange(N), ones, np.empty((N, 0), np.float32), A
    )
    return WatchedClip(windows, FrameLabels.all_counted(truth), FPS)


NORMAL = clip((1000, 9.0), (2000, 8.0), (3000, 7.0), (4000, 6.0))
"""Ten minutes with four peaks: 6 an hour are one of them, 18 an hour three, 1 an hour none."""


def test_a_rate_allows_as_many_false_alarms_as_it_says() -> None:
    none, one, three = thresholds_at([NORMAL], (1.0, 6.0, 18.0))
    assert none > 9.0
    assert one == pytest.approx(8.0)
    assert three == pytest.approx(6.0)
    assert [NORMAL.false_alarms(replace(RULES, threshold=t)) for t in (none, one, three)] == [
        *(0, 1, 3)
    ]


def test_twice_the_footage_allows_twice_as_many() -> None:
    quiet = clip()
    (at,) = thresholds_at([NORMAL, quiet], (6.0,))
    assert at == pytest.approx(7.0)


def test_events_are_found_where_an_alert_overlaps() -> None:
    test = clip(
        *((500, 9.5), (1500, 8.5), (2500, 6.5), (3500, 9.5), (4500, 9.5)),
        abnormal=((505, 520), (1400, 1501), (2500, 2510), (3510, 3520), (4490, 4500)),
    )  # the fourth begins when its alert is over, the fifth is over when its alert begins
    thresholds = thresholds_at([NORMAL], (1.0, 6.0, 18.0))
    found = EventsFound.at([NORMAL, test], thresholds)
    assert found.shares().tolist() == [0.2, 0.4, 0.6]
    assert found.hits[0].tolist() == [True, *(4 * [False])]
    assert found.clip.tolist() == 5 * [1]
    np.testing.assert_allclose(found.seconds, [1.5, 10.1, 1.0, 1.0, 1.0])


def test_frames_that_do_not_count() -> None:
    both = clip((500, 9.5), abnormal=((500, 510), (900, 910)))
    assert EventsFound.at([both], [9.0]).shares() == 0.5
    part = replace(both, labels=replace(both.labels, counted=np.arange(N) < 800))
    assert EventsFound.at([part], [9.0]).shares() == 1.0
    assert part.normal_hours == pytest.approx(790 / 36_000)
    assert np.isnan(EventsFound.at([NORMAL], [9.0]).shares()).all()


def test_on_test_clips_alerts_on_anomalies_are_not_false() -> None:
    own = clip((500, 9.5), (1500, 8.5), abnormal=((505, 520),))
    assert own.false_alarms(replace(RULES, threshold=8.0)) == 1
    none, one = thresholds_at([own], (1.0, 6.1))  # one alarm in ten minutes less the anomaly
    assert 8.5 < none < 9.0
    assert one <= 8.5
    (within,) = thresholds_at([own], (5.9,))
    assert within == none


def test_no_threshold_is_so_low_that_an_alarm_never_ends() -> None:
    (at,) = thresholds_at([NORMAL], (1000.0,))
    assert (at <= NORMAL.windows.A).mean() <= ALARMED
    half = replace(NORMAL.windows, A=np.where(NORMAL.windows.A > 1, 9, 2).astype(np.float32))
    (at,) = thresholds_at([replace(NORMAL, windows=half)], (1000.0,))
    assert at == pytest.approx(2.0)
    assert at > 2.0  # which is the score of nearly all


def test_scores_that_are_never_positive_find_nothing() -> None:
    low = clip((10, -1.0))
    low = replace(low, windows=replace(low.windows, A=low.windows.A - 5))
    seen = clip((10, 1.0), abnormal=((10, 20),))
    assert EventsFound.at([seen], thresholds_at([low], (1.0,))).shares() == 1.0
    nobody = replace(low, windows=low.windows.part(slice(0, 0)))
    assert thresholds_at([nobody], (1.0,))[0] > 0
