"""Frames with their scores: figures per seed and per class, worked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.frames import FrameScores


def mask(*values: int) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


@pytest.fixture
def frames() -> FrameScores:
    """Two clips of three frames; a run is found, a fall half of the time."""
    return FrameScores(
        clips=("yard", "door"),
        clip=np.array([0, 0, 0, 1, 1, 1]),
        abnormal=mask(1, 0, 0, 1, 1, 0),
        score=np.array([[9, 1, 3, 2, 2, 2]], dtype=np.float32),
        classes={"run": mask(1, 0, 0, 0, 0, 0), "fall": mask(0, 0, 0, 1, 1, 0)},
    )


def test_a_class_is_measured_against_all_normal_frames_and_no_other_anomaly(
    frames: FrameScores,
) -> None:
    # the run's 9 beats 1 3 2; each fall's 2 beats 1, ties with 2 and loses to 3
    assert frames.by_class() == {"run": 1.0, "fall": 0.5}
    alone = frames.of_class("fall")
    assert alone.abnormal.tolist() == [False, False, True, True, False]
    assert alone.clip.tolist() == [0, 0, 1, 1, 1]
    assert alone.clips == frames.clips


def test_all_classes_together_are_the_figure(frames: FrameScores) -> None:
    assert frames.measure() == pytest.approx((1.0 + 0.5 + 0.5) / 3)
    # down to 9: 1 of 1; down to 3: 1 of 2; down to 2: 3 of 5
    assert frames.measure("ap") == pytest.approx((1 + 3 / 5 + 3 / 5) / 3)


def test_a_class_that_nobody_named_is_refused(frames: FrameScores) -> None:
    with pytest.raises(DataError, match="class: expected one of run, fall, got jump"):
        frames.of_class("jump")


def test_seeds_are_rows_and_the_figure_is_their_mean(frames: FrameScores) -> None:
    worst = replace(frames, score=-frames.score)
    both = FrameScores.of_seeds([frames, worst])
    assert both.score.shape == (2, 6)
    assert both.measure_each() == [frames.measure(), worst.measure()]
    assert both.measure() == pytest.approx(0.5)


def test_seeds_on_different_frames_are_refused(frames: FrameScores) -> None:
    fewer = frames.select(mask(1, 1, 1, 1, 1, 0))
    with pytest.raises(DataError, match="got 6 of 2 clips and 5 of 2"):
        FrameScores.of_seeds([frames, fewer])


def test_frames_of_different_number_are_refused(frames: FrameScores) -> None:
    with pytest.raises(DataError, match=r"expected scores of shape \(S, 6\)"):
        replace(frames, score=frames.score[0])
    with pytest.raises(DataError, match=r"expected scores of shape \(S, 6\)"):
        replace(frames, clip=frames.clip[1:])
    with pytest.raises(DataError, match="clips numbered from 0 to 0, got 0 to 1"):
        replace(frames, clips=("yard",))
