"""Marks change thresholds, training and the normal set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import StepvadError
from stepvad.events.calibration import (
    RULES,
    Calibration,
    calibrate_cameras,
    calibration_path,
    find_calibration,
    from_counts,
    rules_for,
    write_calibration,
)
from stepvad.events.marks import (
    Marks,
    recalibrate,
    repeated,
)
from stepvad.events.threshold import Counted, Marked, NormalClip, with_marked
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Track


@pytest.fixture(scope="module")
def before() -> Calibration:
    """One camera, ten hours, scores of which every threshold lets some through."""
    A = np.repeat(np.random.default_rng(0).exponential(size=7200), 5).astype(np.float32)
    n = len(A)
    windows = WindowScores(
        np.zeros(n, np.int64),
        np.arange(n) * 10,
        np.ones(n, np.float32),
        np.zeros((n, 1), np.float32),
        A,
    )
    footage = {"door": [NormalClip(windows, 10 * n, 10.0)]}
    return calibrate_cameras(footage, model_sha256="a" * 64, alerts_per_hour=1.0)


def test_marked_events_raise_the_threshold_and_unmarked_ones_lower_it(before: Calibration) -> None:
    marks = {f"event-{n}": Marked(camera="door", peak=30.0) for n in range(9)}
    after = recalibrate(before, Marks(normal=marks))
    assert after.threshold.value > before.threshold.value
    assert (after.block_stats, after.rules.gap_s) == (before.block_stats, before.rules.gap_s)
    again = recalibrate(after, Marks(not_normal=[*marks]))
    assert again.threshold.value == before.threshold.value
    assert not again.marked


def test_the_calibration_beside_a_model_gives_its_rules(
    before: Calibration, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "model.safetensors"
    with pytest.raises(StepvadError, match="expected a calibration next to the model, got none"):
        rules_for(model, "a" * 64)
    write_calibration(before, calibration_path(model))
    rules, promise = rules_for(model, "a" * 64)
    assert (rules.threshold, promise) == (before.threshold.value, before.threshold)
    by_hand, nothing = rules_for(model, "a" * 64, threshold=7.0)
    assert (by_hand.threshold, nothing) == (7.0, None)
    with pytest.raises(StepvadError, match="got 'roof'; it has door"):
        rules_for(model, "a" * 64, camera="roof")
    assert find_calibration(model, "b" * 64) is None
    assert "belongs to another model and is ignored" in caplog.text


LEVELS = np.geomspace(1.0, 4.0, 50)


def counted(hours: float = 100.0, seed: int = 0) -> Counted:
    """Exponential peaks in blocks of an hour."""
    rng = np.random.default_rng(seed)
    blocks = [rng.exponential(0.3, rng.poisson(3)) + 1 for _ in range(round(hours))]
    events = np.array([[(block >= level).sum() for level in LEVELS] for block in blocks])
    return Counted(LEVELS, events, np.ones(len(blocks)))


def threshold(marked: dict[str, Marked], **cameras: Counted) -> float:
    found = from_counts(
        cameras or {"door": counted()},
        model_sha256="",
        alerts_per_hour=0.1,
        confidence=0.95,
        rules=RULES,
        marked=marked,
    )
    return found.threshold.value


def alerts(n: int, peak: float, camera: str = "door") -> dict[str, Marked]:
    return {f"e{number}": Marked(camera=camera, peak=peak) for number in range(n)}


def test_thresholds_rise_with_what_is_marked_and_never_fall() -> None:
    without = threshold({})
    values = [threshold(alerts(n, 3.5)) for n in (1, 4, 12)]
    assert without <= values[0] < values[1] < values[2]
    assert values[2] > 3.5  # so many may not alert again


def test_alerts_below_the_threshold_change_little() -> None:
    assert threshold(alerts(3, 1.05)) == pytest.approx(threshold({}), rel=0.05)


def test_an_alert_is_one_more_event_up_to_its_peak_even_beyond_all_levels() -> None:
    before = counted()
    after = with_marked({"door": before}, alerts(2, 9.0))["door"]
    assert after.levels[-1] == pytest.approx(9.0)
    assert np.array_equal(after.levels[: len(LEVELS)], LEVELS)
    assert (after.totals[: len(LEVELS)] == before.totals + 2).all()
    assert (after.totals[len(LEVELS) :] == 2).all()
    assert after.total_hours == before.total_hours


def test_an_alert_counts_for_its_camera_and_an_unknown_one_for_somebody() -> None:
    both = {"door": counted(), "hall": counted(seed=1)}
    after = with_marked(both, alerts(3, 3.0, "hall"))
    assert (after["door"].events == both["door"].events).all()
    assert after["hall"].totals[0] == both["hall"].totals[0] + 3
    after = with_marked(both, alerts(4, 3.0, ""))
    assert [after[name].totals[0] - both[name].totals[0] for name in both] == [2, 2]


def clip() -> Clip:
    def track(id: int, first: int, n: int) -> Track:
        frames = np.arange(first, first + n)
        keypoints = np.zeros((n, 17, 2), np.float32) + frames[:, None, None]
        return Track(id, frames, keypoints, np.ones((n, 17), np.float32))

    return Clip("a", 10.0, 200, (track(1, 0, 150), track(2, 50, 100), track(3, 0, 200)))


def test_marked_clips_are_repeated_to_a_share_of_the_training() -> None:
    cut = replace(clip(), tracks=(clip().tracks[0].between(9, 62),))  # 42 windows
    again = list(repeated([cut], 8400, 12, share=0.05))
    assert len(again) == 10
    assert len({one.name for one in again}) == 10
    assert len(list(repeated([cut], 10, 12))) == 1
