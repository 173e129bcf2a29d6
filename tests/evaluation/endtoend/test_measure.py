"""Counts over test clips, and thresholds with and without a promise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepvad.calibration import NormalClip
from stepvad.evaluation.endtoend.alerts import Alert, ClipResult, EventOutcome
from stepvad.evaluation.endtoend.measure import Counts, Summary, choose_threshold
from stepvad.model.scoring import WindowScores

NORMAL = ClipResult(
    name="a",
    fold="all",
    group="a",
    is_abnormal=False,
    duration_s=36.0,
    normal_s=36.0,
    peak=1.0,
    peak_s=1.0,
    threshold=2.0,
    alerts=(),
    events=(),
    false_alerts=0,
)
ABNORMAL = replace(NORMAL, is_abnormal=True, normal_s=0.0)


def test_counts_over_clips() -> None:
    alert = (Alert(1.0, 2.0),)
    found = (EventOutcome(1.0, "found", 0.5), EventOutcome(9.0, "found", 2.5))
    clips = [
        *(replace(NORMAL, name=f"n{n}", group=f"n{n}", peak=n / 10) for n in range(18)),
        replace(NORMAL, name="n18", group="n18", peak=2.5, alerts=alert, false_alerts=1),
        replace(NORMAL, name="n19", group="n19", peak=3.5, alerts=alert, false_alerts=1),
        replace(ABNORMAL, name="p0", group="p0", peak=3.0, alerts=alert, events=found),
        replace(ABNORMAL, name="p1", group="p1", peak=1.65, events=(EventOutcome(0, "missed"),)),
        replace(ABNORMAL, name="p2", group="p2", peak=1.75, events=(EventOutcome(0, "late"),)),
    ]
    summary = Summary.of(clips)
    assert summary.found == Counts(2, 4)
    assert summary.delays_s == (0.5, 2.5)
    assert summary.normal_hours == pytest.approx(0.2)
    assert summary.false_per_hour == pytest.approx(10.0)
    assert str(summary.false_clips) == "2 of 20"
    assert summary.found_at == Counts(2, 3)  # two of twenty may be above: 1.7 is the limit
    assert summary.auroc.value == pytest.approx((19 + 17 + 18) / 60)


def test_the_interval_is_over_groups() -> None:
    rng = np.random.default_rng(0)
    peaks, groups = rng.normal(size=40), [f"g{n // 8}" for n in range(40)]
    clips = [
        replace(NORMAL if n % 2 else ABNORMAL, group=group, peak=float(peak) + 2 * (n % 16 < 8))
        for n, (peak, group) in enumerate(zip(peaks, groups, strict=True))
    ]
    alone = [replace(clip, group=str(n)) for n, clip in enumerate(clips)]
    together, apart = Summary.of(clips).auroc, Summary.of(alone).auroc
    assert together.value == apart.value
    assert (together.low, together.high) != (apart.low, apart.high)


def test_without_normal_clips_nothing_is_false() -> None:
    summary = Summary.of([replace(ABNORMAL, events=(EventOutcome(0, "missed"),))])
    assert np.isnan(summary.false_per_hour)
    assert np.isnan(summary.auroc.value)
    assert (summary.delays_s, str(summary.false_clips)) == ((), "0 of 0")


def normal_clip(hours: float, *, seed: int = 0) -> NormalClip:
    """Footage of a person whose score jumps every minute for a second."""
    n = round(hours * 36_000)
    A = np.zeros(n, np.float32)
    rng = np.random.default_rng(seed)
    for first in range(300, n - 10, 600):
        A[first : first + 10] = rng.exponential() + 1
    ones = np.ones(n, np.float32)
    windows = WindowScores(
        np.ones(n, np.int64), np.arange(n), ones, np.empty((n, 0), np.float32), A
    )
    return NormalClip(windows, n, 10.0)


def test_long_footage_promises_a_rate() -> None:
    chosen = choose_threshold([normal_clip(4.0)], 6.0)
    assert chosen.is_promised
    assert "at most 6 false events per hour" in chosen.words
    assert 0 < chosen.value < normal_clip(4.0).windows.A.max()


def test_short_footage_gives_its_highest_score() -> None:
    clips = [normal_clip(0.02, seed=1), normal_clip(0.02, seed=2)]
    chosen = choose_threshold(clips, 0.1)
    assert not chosen.is_promised
    assert chosen.value == max(float(clip.windows.A.max()) for clip in clips)
    assert "highest score of the calibration clips" in chosen.words


def test_a_threshold_is_positive() -> None:
    clip = normal_clip(0.02)
    still = replace(clip, windows=replace(clip.windows, A=np.zeros_like(clip.windows.A)))
    assert choose_threshold([still], 1.0).value > 0
