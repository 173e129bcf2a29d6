"""Promises are judged by footage that they have not seen."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.calibration import RULES, Counted, NormalClip
from stepvad.evaluation import promises
from stepvad.evaluation.promises import at_threshold, keep_promises, percentile_of_frames
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import WindowScores
from tests.calibration.test_promise import drawn


def test_honest_promises_are_kept_and_those_of_chance_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = drawn(np.random.default_rng(0), 60.0)
    (line,) = keep_promises(counted, [1.0], splits=30)
    assert (line.promised, line.refused) == (30, 0)
    assert line.kept >= 0.9
    assert 0 < line.observed < 1
    assert line.interval[0] <= line.observed <= line.interval[1]
    monkeypatch.setattr(promises, "threshold_for", _too_low)
    (line,) = keep_promises(counted, [1.0], splits=30)
    assert line.kept == 0
    assert line.observed > 1


def _too_low(counted: Counted, rate: float, *, confidence: float) -> object:
    from stepvad.calibration.promise import threshold_for

    return threshold_for(counted, 8 * rate, confidence=confidence)


def test_what_no_footage_carries_is_refused_in_every_split() -> None:
    (line,) = keep_promises(drawn(np.random.default_rng(0), 6.0), [0.001], splits=4)
    assert (line.promised, line.refused) == (0, 4)
    assert np.isnan(line.kept)


def scored(values: list[float]) -> NormalClip:
    n = len(values)
    A = np.array(values, dtype=np.float32)
    nothing = np.empty((n, 0), np.float32)
    ones = np.ones(n, np.float32)
    return NormalClip(WindowScores(np.ones(n, np.int64), np.arange(n), ones, nothing, A), n, 10.0)


def test_a_true_event_is_found_if_one_overlaps_it() -> None:
    clip = scored([0.0] * 20 + [5.0] * 10 + [0.0] * 70)
    truth = np.zeros(100, np.bool_)
    truth[22:28] = truth[60:70] = True
    labels = FrameLabels(truth, np.ones(100, np.bool_))
    counted = Counted(np.array([1.0, 8.0]), np.array([[3, 0]]), np.array([2.0]))
    found = at_threshold(3.0, counted, [(clip, labels)], RULES, 12)
    assert (found.recall, found.false_per_hour) == (0.5, 1.5)
    late = np.zeros(100, np.bool_)
    late[5:9] = True  # windows that end up to T frames later still show it
    found = at_threshold(3.0, counted, [(clip, FrameLabels(late, labels.counted))], RULES, 12)
    assert found.recall == 1.0
    found = at_threshold(3.0, counted, [(clip, FrameLabels(late, labels.counted))], RULES, 10)
    assert found.recall == 0.0


def test_a_percentile_is_of_frames_with_a_score() -> None:
    clip = NormalClip(scored([*range(101)]).windows, 500, 10.0)
    assert percentile_of_frames([clip], 12, 99.0) == pytest.approx(99.0)
