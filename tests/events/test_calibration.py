"""A threshold from a detector and normal clips, and the events above it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stepvad import Clip, Detector
from stepvad.errors import DataError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.calibration import RULES, calibrate, calibrate_cameras
from stepvad.events.rules import Rules, events_in, find_events
from stepvad.events.threshold import NormalClip, Threshold
from stepvad.formats.labels import FrameLabels

A_LOT = 400.0
"""Alerts per hour that half a minute of footage can promise."""


def test_it_is_the_threshold_that_a_site_of_this_footage_has(
    small_model: Detector, walkers: list[Clip]
) -> None:
    rules = replace(RULES, gap_s=1.0)
    found = calibrate(small_model, iter(walkers), alerts_per_hour=A_LOT, rules=rules)
    footage = [
        NormalClip(small_model.score(clip).windows, clip.n_frames, 25.0, clip.first_frame)
        for clip in walkers
    ]
    same = calibrate_cameras({"door": footage}, model_sha256="", alerts_per_hour=A_LOT, rules=rules)
    assert isinstance(found, Threshold)
    assert found == same.threshold
    assert found.alerts_per_hour == A_LOT
    assert found.hours == pytest.approx(sum(clip.n_frames for clip in walkers) / 25 / 3600)


def test_more_alerts_lower_the_threshold_and_more_confidence_raises_it(
    small_model: Detector,
) -> None:
    clips = [clip for clip, _ in make_clips(6, seed=5, seconds=30.0)]
    few, many = (calibrate(small_model, clips, alerts_per_hour=rate).value for rate in (200, 400))
    sure = calibrate(small_model, clips, alerts_per_hour=200, confidence=0.99).value
    assert many < few < sure


def test_the_frame_rate_may_be_told(small_model: Detector, walkers: list[Clip]) -> None:
    silent = [replace(clip, fps=None) for clip in walkers]
    with pytest.raises(DataError, match=r"expected a frame rate.*fps=25"):
        calibrate(small_model, silent, alerts_per_hour=A_LOT)
    told = calibrate(small_model, silent, alerts_per_hour=A_LOT, fps=25.0)
    assert told == calibrate(small_model, walkers, alerts_per_hour=A_LOT)


def test_footage_that_cannot_carry_the_promise_says_how_much_is_needed(
    small_model: Detector, walkers: list[Clip]
) -> None:
    with pytest.raises(DataError, match=r"hours"):
        calibrate(small_model, walkers, alerts_per_hour=0.01)
    with pytest.raises(DataError, match="got 0 windows"):
        calibrate(small_model, [], alerts_per_hour=A_LOT)


def test_events_are_found_above_a_threshold_or_by_rules(
    small_model: Detector, walker_test: list[tuple[Clip, FrameLabels]]
) -> None:
    odd, fps = 0, 25.0
    for clip, _ in walker_test:
        scores = small_model.score(clip)
        found = find_events(clip, scores, 2.0)
        assert found == find_events(clip, scores, Rules(threshold=2.0))
        assert found == events_in(scores.windows, fps, Rules(threshold=2.0), clip)
        assert find_events(clip, scores, 1e6) == []
        untold = replace(clip, fps=None)
        assert find_events(untold, scores, 2.0, fps=fps) == found
        odd += len(found)
        assert all(0 <= event.first_s <= event.peak_s <= event.last_s <= 8 for event in found)
    assert odd >= 3
