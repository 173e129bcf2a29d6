"""Poses are mended and windows standardised, against examples worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.poses import Track
from stepvad.skeletons import COCO17, STEP18, of_size
from stepvad.windows import (
    Repairs,
    place,
    prepare,
    standardise,
)
from tests.tracks import all_windows, clip_of, config, floats, random_track


def test_a_window_is_centred_per_axis_and_divided_by_the_spread_of_y() -> None:
    # x: 1 3 5 7, mean 4; y: 10 10 20 20, mean 15, standard deviation 5
    x = floats(1, 3, 5, 7, 10, 10, 20, 20).reshape(1, 2, 2, 2)
    got, flat = standardise(x, config(2))
    expected = floats(-3 / 5, -1 / 5, 1 / 5, 3 / 5, -1, -1, 1, 1).reshape(1, 2, 2, 2)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert got.dtype == np.float32
    assert flat.tolist() == [False]


def test_mean_and_spread_run_over_joints_and_time_together() -> None:
    x = np.random.default_rng(0).normal(300, 40, size=(5, 2, 7, 4)).astype(np.float32)
    got, _ = standardise(x, config(4))
    for before, after in zip(x.astype(np.float64), got, strict=True):
        mean = [before[0].mean(), before[1].mean()]
        expected = (before - np.reshape(mean, (2, 1, 1))) / before[1].std()
        np.testing.assert_allclose(after, expected, rtol=1e-5, atol=1e-6)


def test_standardised_windows_do_not_depend_on_place_and_distance() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 5, 4)).astype(np.float32)
    moved = x * np.float32(32) + np.reshape(floats(400, -250), (2, 1, 1))
    np.testing.assert_allclose(
        standardise(moved, config(4))[0], standardise(x, config(4))[0], atol=1e-4
    )


def test_placing_undoes_standardising() -> None:
    keypoints = np.random.default_rng(0).normal(300, 40, size=(4, 5, 3, 2)).astype(np.float32)
    settings = config(5)
    x, _ = standardise(keypoints.transpose(0, 3, 2, 1), settings)
    np.testing.assert_allclose(place(x, keypoints, settings), keypoints, rtol=1e-5)
    larger = place(2 * x, keypoints, settings)
    np.testing.assert_allclose(larger.mean(axis=(1, 2)), keypoints.mean(axis=(1, 2)), rtol=1e-4)
    np.testing.assert_allclose(np.ptp(larger[..., 0]), 2 * np.ptp(keypoints[..., 0]), rtol=0.2)


@pytest.mark.parametrize("point", [(0.0, 0.0), (100.3, 50.7), (-3.1, 1e6 / 7)])
def test_a_window_without_any_spread_is_flat_and_stays_at_zero(
    point: tuple[float, float],
) -> None:
    x = np.broadcast_to(np.reshape(floats(*point), (2, 1, 1)), (1, 2, 18, 12))
    got, flat = standardise(x, config(12))
    assert flat.tolist() == [True]
    assert not got.any()


def test_a_window_with_spread_in_x_alone_is_divided_by_the_floor() -> None:
    x = floats(1, 3, 5, 7, 10, 10, 10, 10).reshape(1, 2, 4, 1)
    got, flat = standardise(x, config(1, spread_floor=0.1))
    spread_x = np.sqrt((9 + 1 + 1 + 9) / 4)
    np.testing.assert_allclose(got[0, 0, :, 0], floats(-3, -1, 1, 3) / (0.1 * spread_x), rtol=1e-5)
    assert not got[0, 1].any()
    assert flat.tolist() == [True]


def test_a_spread_just_above_the_floor_is_used_and_just_below_is_not() -> None:
    x = np.zeros((2, 2, 2, 1), dtype=np.float32)
    x[:, 0, :, 0] = (-100, 100)
    x[0, 1, :, 0] = (-1.01, 1.01)
    x[1, 1, :, 0] = (-0.99, 0.99)
    got, flat = standardise(x, config(1, spread_floor=0.01))
    assert flat.tolist() == [False, True]
    assert got[0, 1, 1, 0] == 1
    assert got[1, 1, 1, 0] == pytest.approx(0.99)
    assert got[0, 0, 1, 0] == pytest.approx(100 / 1.01)
    assert got[1, 0, 1, 0] == pytest.approx(100)


def test_without_a_floor_a_level_window_is_finite() -> None:
    x = floats(1, 3, 5, 7, 10, 10, 10, 10).reshape(1, 2, 4, 1)
    got, flat = standardise(x, config(1, spread_floor=0.0))
    assert np.isfinite(got).all()
    assert flat.tolist() == [True]


def test_standardising_leaves_the_poses_alone() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 5, 4)).astype(np.float32)
    before = x.copy()
    standardise(x, config(4))
    np.testing.assert_array_equal(x, before)


def test_negative_zero_has_the_bits_of_zero() -> None:
    x = floats(-1, 1, 0.0, -0.0, 5, 6, 7, 6, -2, 2, 0.0, 0.0, 5, 6, 7, 6).reshape(2, 2, 4, 1)
    got, _ = standardise(x, config(1))
    assert not np.signbit(got[got == 0]).any()


def test_extreme_but_allowed_coordinates_stay_finite() -> None:
    x = np.full((1, 2, 3, 2), 1e7, dtype=np.float32)
    x[0, :, 0] = -1e7
    x[0, :, 1, 0] = 1e-30
    got, _ = standardise(x, config(2))
    assert np.isfinite(got).all()


def test_the_confidence_of_a_window_is_the_mean_over_joints_and_frames() -> None:
    confidence = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]], dtype=np.float32)
    track = Track(1, np.arange(3), random_track([0, 1, 2]).keypoints, confidence)
    windows = all_windows(clip_of(track), config(2))
    np.testing.assert_allclose(windows.c, [2.1 / 6, 3.9 / 6], rtol=1e-6)
    assert windows.c.dtype == np.float32


def test_nan_confidence_counts_as_zero_and_others_are_clipped_and_both_are_counted() -> None:
    confidence = np.array([[0.5, np.nan, 2.0], [-1.0, 1.0, np.inf]], dtype=np.float32)
    keypoints = np.ones((2, 3, 2), dtype=np.float32)
    before = confidence.copy()
    _, mean, counts = prepare(keypoints, confidence, of_size(3), of_size(3))
    np.testing.assert_allclose(mean, [(0.5 + 0 + 1) / 3, (0 + 1 + 1) / 3], rtol=1e-6)
    assert counts == Repairs(poses=2, nan_confidences=1, clipped_confidences=3)
    np.testing.assert_array_equal(confidence, before)


def test_confidences_of_zero_and_one_are_in_range() -> None:
    _, _, counts = prepare(
        np.ones((1, 2, 2), np.float32), np.array([[0, 1]], np.float32), of_size(2), of_size(2)
    )
    assert counts == Repairs(poses=1)


def test_a_missing_joint_goes_to_the_middle_of_the_others() -> None:
    keypoints = np.array([[[0, 0], [10, 20], [30, 60]]], dtype=np.float32)
    before = keypoints.copy()
    moved, _, counts = prepare(keypoints, floats(0, 0.5, 0.9)[None], of_size(3), of_size(3))
    np.testing.assert_array_equal(moved, [[[20, 40], [10, 20], [30, 60]]])
    assert counts.missing_joints == 1
    np.testing.assert_array_equal(keypoints, before)


@pytest.mark.parametrize(
    ("point", "confidence"), [((0, 0), 0.1), ((0, 1), 0.0), ((5, 0), 0.0), ((-3, 4), 0.0)]
)
def test_a_joint_is_missing_only_at_the_origin_with_confidence_zero(
    point: tuple[float, float], confidence: float
) -> None:
    keypoints = np.array([[point, (10, 20)]], dtype=np.float32)
    kept, _, counts = prepare(keypoints, floats(confidence, 1)[None], of_size(2), of_size(2))
    np.testing.assert_array_equal(kept, keypoints)
    assert counts.missing_joints == 0


def test_a_joint_at_the_origin_with_nan_confidence_is_missing() -> None:
    keypoints = np.array([[[0, 0], [10, 20]]], dtype=np.float32)
    moved, _, counts = prepare(keypoints, floats(np.nan, 1)[None], of_size(2), of_size(2))
    np.testing.assert_array_equal(moved[0, 0], [10, 20])
    assert (counts.missing_joints, counts.nan_confidences) == (1, 1)


def test_a_pose_without_any_joint_stays_at_the_origin() -> None:
    keypoints = np.zeros((1, 4, 2), dtype=np.float32)
    moved, mean, counts = prepare(keypoints, np.zeros((1, 4), np.float32), of_size(4), of_size(4))
    assert not moved.any()
    assert mean.tolist() == [0]
    assert counts.missing_joints == 4


def test_the_neck_is_the_mean_of_the_shoulders_in_place_and_confidence() -> None:
    rng = np.random.default_rng(0)
    keypoints = rng.normal(300, 50, size=(4, 17, 2)).astype(np.float32)
    confidence = rng.uniform(size=(4, 17)).astype(np.float32)
    moved, mean, _ = prepare(keypoints, confidence, COCO17, STEP18)
    assert moved.shape == (4, 18, 2)
    np.testing.assert_allclose(moved[:, 1], (keypoints[:, 5] + keypoints[:, 6]) / 2, rtol=1e-6)
    with_neck = confidence.sum(axis=1) + (confidence[:, 5] + confidence[:, 6]) / 2
    np.testing.assert_allclose(mean, with_neck / 18, rtol=1e-5)


def test_a_missing_shoulder_does_not_pull_the_neck_to_the_origin() -> None:
    keypoints = np.full((1, 17, 2), 100, dtype=np.float32)
    keypoints[0, 5] = 0
    confidence = np.ones((1, 17), dtype=np.float32)
    confidence[0, 5] = 0
    moved, _, _ = prepare(keypoints, confidence, COCO17, STEP18)
    np.testing.assert_allclose(moved, 100, rtol=1e-6)
