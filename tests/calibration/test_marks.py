"""Calibrations that follow what operators said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad.calibration import Calibration, Marked, NormalClip, beside, calibrate_cameras, file
from stepvad.calibration.marks import Marks, recalibrate
from stepvad.errors import StepvadError
from stepvad.model.scoring import WindowScores


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
    assert (after.looks, after.rules.gap_s) == (before.looks, before.rules.gap_s)
    again = recalibrate(after, Marks(not_normal=[*marks]))
    assert again.threshold.value == before.threshold.value
    assert not again.marked


def test_the_calibration_beside_a_model_gives_its_rules(
    before: Calibration, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tmp_path / "model.safetensors"
    with pytest.raises(StepvadError, match="expected a calibration next to the model, got none"):
        beside.rules_for(model, "a" * 64)
    file.write(before, file.beside(model))
    rules, promise = beside.rules_for(model, "a" * 64)
    assert (rules.threshold, promise) == (before.threshold.value, before.threshold)
    by_hand, nothing = beside.rules_for(model, "a" * 64, threshold=7.0)
    assert (by_hand.threshold, nothing) == (7.0, None)
    with pytest.raises(StepvadError, match="got 'roof'; it has door"):
        beside.rules_for(model, "a" * 64, camera="roof")
    assert beside.find(model, "b" * 64) is None
    assert "belongs to another model and is ignored" in caplog.text
