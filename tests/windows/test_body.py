"""Joints not found, jumps from body to body, noise, and standardised windows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.model.footage import Footage
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17, STEP18, convert, of_size
from stepvad.stream import Stream
from stepvad.windows import runs
from stepvad.windows.body import (
    SMALLEST_EXTENT,
    Repairs,
    body_of,
    extent,
    jumped,
    measure_noise,
    noise_at,
    place,
    prepare,
    standardise,
)
from stepvad.windows.runs import clip_runs, cut
from stepvad.windows.views import ViewSettings
from tests.tracks import all_windows, clip_of, config, floats, random_track, with_config
from tests.windows.test_sampling import V
from tests.windows.test_views import crossing


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


BODY = body_of(COCO17)


@pytest.fixture(scope="module")
def poses() -> NDArray[np.float32]:
    """Poses of walkers, `(n, 17, 2)`."""
    clips: list[Clip] = [clip for clip, _ in make_clips(2, seed=1, seconds=3.0)]
    return np.concatenate([track.keypoints for clip in clips for track in clip.tracks])


def fill(poses: NDArray[np.float32], found: NDArray[np.bool_]) -> NDArray[np.float32]:
    assert BODY is not None
    return BODY.settle(poses, np.where(found, 0.0, np.inf))


def hidden(poses: NDArray[np.float32], share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Which joints are found."""
    return np.random.default_rng(seed).random(poses.shape[:2]) > share


def test_hidden_joints_come_back_near_where_they_were(poses: NDArray[np.float32]) -> None:
    found = hidden(poses, 0.3)
    filled = fill(np.where(found[..., None], poses, 0), found)
    np.testing.assert_array_equal(filled[found], poses[found])
    height = np.ptp(poses[..., 1], axis=1)[:, None]
    error = (np.linalg.norm(filled - poses, axis=2) / height)[~found]
    middle = np.where(found[..., None], poses, 0).sum(axis=1) / found.sum(axis=1)[:, None]
    before = (np.linalg.norm(middle[:, None] - poses, axis=2) / height)[~found]
    assert np.median(error) < 0.06
    assert np.median(error) < np.median(before) / 4


@given(st.floats(0.2, 50.0), st.floats(-5000, 5000), st.integers(0, 99))
def test_place_and_size_of_the_picture_do_not_matter(scale: float, shift: float, seed: int) -> None:
    assert BODY is not None
    pose = (BODY.mean[None] * 100).astype(np.float32)
    found = hidden(pose, 0.4, seed)
    found[:, [5, 12]] = True  # two joints at least
    first = fill(np.where(found[..., None], pose, 0), found)
    other = (pose.astype(np.float64) * scale + shift).astype(np.float32)
    second = fill(np.where(found[..., None], other, 0), found)
    np.testing.assert_allclose(second, first * scale + shift, atol=0.01 * scale + 0.01)


def test_any_batching_gives_the_same_bits(poses: NDArray[np.float32]) -> None:
    found = hidden(poses, 0.4)
    whole = fill(poses, found)
    for size in (1, 7, 100):
        parts = [
            fill(poses[first : first + size], found[first : first + size])
            for first in range(0, len(poses), size)
        ]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_poses_of_one_joint_or_none_are_finite() -> None:
    pose = np.full((2, 17, 2), 50, np.float32)
    found = np.zeros((2, 17), np.bool_)
    found[1, 3] = True
    filled = fill(pose, found)
    np.testing.assert_array_equal(filled[0], pose[0])
    assert np.isfinite(filled).all()


def test_a_joint_that_is_alone_gets_the_mean_body_around_it() -> None:
    assert BODY is not None
    found = np.zeros((1, 17), np.bool_)
    found[0, 3] = True
    around = fill(np.zeros((1, 17, 2), np.float32), found)[0] / SMALLEST_EXTENT
    np.testing.assert_allclose(around, BODY.mean - BODY.mean[3], atol=1e-5)


def test_both_skeletons_have_the_same_body_and_boxes_have_none(
    poses: NDArray[np.float32],
) -> None:
    ours, papers = body_of(COCO17), body_of(STEP18)
    assert ours is not None
    assert papers is not None
    np.testing.assert_allclose(papers.mean, convert(ours.mean[None], COCO17, STEP18)[0])
    assert body_of(of_size(4)) is None


def test_settings_choose_where_missing_joints_go(poses: NDArray[np.float32]) -> None:
    seen = poses[:5].copy()
    confidence = np.ones((5, 17), np.float32)
    seen[:, 9], confidence[:, 9] = 0, 0
    by_body, _, counts = prepare(seen, confidence, COCO17, COCO17)
    middle, _, _ = prepare(seen, confidence, COCO17, COCO17, "middle")
    assert counts.missing_joints == 5
    np.testing.assert_allclose(middle[:, 9], np.delete(seen, 9, axis=1).mean(axis=1), rtol=1e-5)
    off = [np.linalg.norm(found[:, 9] - poses[:5, 9], axis=1).mean() for found in (by_body, middle)]
    assert off[0] < off[1]
    assert Config().joints == "body"


def test_an_unsure_joint_moves_towards_the_body_and_a_sure_one_stays(
    poses: NDArray[np.float32],
) -> None:
    assert BODY is not None
    shaken = poses.copy()
    height = np.ptp(poses[..., 1], axis=1)[:, None]
    shaken[:, 9] += 0.3 * height  # a wrist far off
    spread = np.zeros(poses.shape[:2])
    off = []
    for noise in (0.0, 0.05, 0.3, np.inf):
        spread[:, 9] = noise**2
        settled = BODY.settle(shaken, spread)
        np.testing.assert_array_equal(np.delete(settled, 9, 1), np.delete(shaken, 9, 1))
        off.append(np.median(np.linalg.norm(settled[:, 9] - poses[:, 9], axis=1) / height[:, 0]))
    assert off[0] > off[1] > off[2]
    assert off[-1] < off[0] / 3


def test_noise_is_measured_by_confidence(poses: NDArray[np.float32]) -> None:
    rng = np.random.default_rng(0)
    height = float(np.ptp(poses[0, :, 1]))
    n = 4000
    confidence = rng.uniform(0, 1, (n, 17)).astype(np.float32)
    spread = 0.1 * (1 - confidence[..., None])  # of the height
    still = poses[:1] + height * spread * rng.normal(size=(n, 17, 2))
    sure = Track(1, np.arange(n), still.astype(np.float32), confidence)
    noise = measure_noise([sure])
    assert len(noise) == 10
    assert list(noise) == sorted(noise, reverse=True)
    assert noise[-1] == 0.0
    around = extent(poses[:1], np.ones((1, 17, 1), np.bool_))[1].item()
    # neighbours are as likely sure: their variance is the mean over all confidences
    assert 0.05 < noise[0] * around / height < 0.12
    assert measure_noise([]) == (0.0,) * 10
    assert noise_at(np.array([[0.0, 0.55, 1.0]], np.float32), noise)[0].tolist() == [
        noise[0] ** 2, noise[5] ** 2, noise[9] ** 2,
    ]  # fmt: skip


def test_settings_that_weigh_joints_settle_them(poses: NDArray[np.float32]) -> None:
    noise = (0.2, *(0.0,) * 9)
    shaken, confidence = poses[:20].copy(), np.full((20, 17), 0.9, np.float32)
    shaken[:, 9] += 30
    confidence[:, 9] = 0.05
    settled, _, _ = prepare(shaken, confidence, COCO17, COCO17, "weighed", noise)
    assert BODY is not None
    np.testing.assert_array_equal(settled, BODY.settle(shaken, noise_at(confidence, noise)))
    assert not np.array_equal(settled[:, 9], shaken[:, 9])


MOTION = Config(T=8, least=2, K=2, view="motion", split_jumps=True, fps=10.0)
SECOND = np.ones(1)


def moved(track: Track, rows: slice, by: float, growth: float = 1.0) -> Clip:
    """A clip of the track, some of whose poses are somewhere else and larger."""
    there = track.keypoints.copy()
    middle = there[rows].mean(axis=(1, 2), keepdims=True)
    there[rows] = (there[rows] - middle) * np.float32(growth) + middle + np.float32(by)
    moved = Track(track.id, track.frames, there, track.confidence)
    return Clip("x", 10.0, int(track.frames[-1]) + 1, (moved,), of_size(V))


def body(at: float = 0.0, size: float = 1.0) -> np.ndarray:
    """One pose of a body with a spread of `size`, `(1, V, 2)`."""
    rng = np.random.default_rng(0)
    pose = rng.standard_normal((1, V, 2))
    pose -= pose.mean(axis=1, keepdims=True)
    pose *= size / np.sqrt(np.square(pose).sum(axis=2).mean())
    return (pose + np.array([at, 0])).astype(np.float32)


@pytest.mark.parametrize(
    ("seconds", "at", "size", "is_other"),
    [
        (0.0, 0.9, 1.0, False),
        (0.0, 1.1, 1.0, True),
        (1.0, 3.9, 1.0, False),
        (1.0, 4.1, 1.0, True),
        (0.0, 0.0, 1.4, False),
        (0.0, 0.0, 1.5, True),
        (0.0, 0.0, 0.65, True),
        (1.0, 0.0, 1.5, False),
        (1.0, 0.0, 2.0, True),
    ],
)
def test_who_moves_or_grows_too_much_is_somebody_else(
    seconds: float, at: float, size: float, *, is_other: bool
) -> None:
    assert jumped(body(), body(at, size), seconds * SECOND).tolist() == [is_other]


def test_a_track_begins_again_where_its_body_jumps() -> None:
    (track,) = crossing((3.0, -1.0)).tracks
    steady, _ = cut(moved(track, slice(0), 0.0), [ViewSettings(MOTION)], of_size(V))
    index, counts = cut(moved(track, slice(0, 4), 300.0), [ViewSettings(MOTION)], of_size(V))
    assert counts.jumps == 1
    last = index.windows(slice(None)).x[-1:]
    np.testing.assert_allclose(last[:, :, 0], steady.windows(slice(None)).x[-1:, :, 0], atol=1e-5)
    plain, none = cut(
        moved(track, slice(0, 4), 300.0),
        [ViewSettings(replace(MOTION, split_jumps=False))],
        of_size(V),
    )
    assert none.jumps == 0
    assert np.abs(plain.windows(slice(None)).x[-1:, :, 0]).max() > 3


def test_one_pose_of_somebody_else_gives_no_window_with_both() -> None:
    (track,) = crossing((3.0, -1.0)).tracks
    index, counts = cut(moved(track, slice(4, 5), 300.0), [ViewSettings(MOTION)], of_size(V))
    assert counts.jumps == 2
    assert index.frame.tolist() == [1, 2, 3, 6, 7]
    speed = np.abs(index.windows(slice(None)).x[:, :, 0, 0])
    assert speed.max() < 1


def test_a_body_that_swells_at_once_is_another_one() -> None:
    (track,) = crossing((0.0, 0.0)).tracks
    index, counts = cut(
        moved(track, slice(4, 8), 0.0, growth=1.6), [ViewSettings(MOTION)], of_size(V)
    )
    assert counts.jumps == 1
    growth = index.windows(slice(None)).x[:, 0, 1, 0]
    np.testing.assert_allclose(growth, 0, atol=1e-5)


def test_parts_of_any_size_have_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (track,) = crossing((3.0, -1.0)).tracks
    clip = moved(track, slice(3, 4), 300.0)
    whole, _ = cut(clip, [ViewSettings(MOTION)], of_size(V))
    monkeypatch.setattr(runs, "PIECE", 1)
    pieces = [*clip_runs(clip, [ViewSettings(MOTION)], of_size(V))]
    assert sum((one for _, one in pieces), Repairs()).jumps == 2, "at the model's rate"
    parts, counts = cut(clip, [ViewSettings(MOTION)], of_size(V))
    assert counts.jumps == 2
    np.testing.assert_array_equal(parts.frame, whole.frame)


@pytest.mark.parametrize("own", [10.0, 25.0, None])
@pytest.mark.parametrize("stated", [10.0, None])
@pytest.mark.parametrize("clock", [False, True])
@pytest.mark.parametrize("by", [300.0, 14.0])  # 14 pixels along both axes: 1.2 sizes of the body
def test_a_fit_cuts_the_windows_that_are_scored(
    own: float | None, stated: float | None, by: float, *, clock: bool
) -> None:
    (track,) = crossing((0.0, 0.0), n=40).tracks
    clip = replace(moved(track, slice(17, 40), by), fps=own)
    config = replace(MOTION, fps=stated, clock=clock)
    if clock and stated:
        clip = replace(clip, fps=stated)
    footage = Footage.from_clips([clip, clip], [ViewSettings(config)])
    index, counts = cut(clip, [footage.view], of_size(V))
    assert footage.counts.jumps == 2 * counts.jumps
    assert counts.jumps == (by == 300 or 10 not in (own, stated))
    scored = index.windows(slice(None)).x
    np.testing.assert_array_equal(
        footage.index.windows(slice(None)).x, np.tile(scored, (2, 1, 1, 1))
    )


def test_a_fit_at_a_common_rate_learns_no_jump_of_a_faster_camera() -> None:
    (track,) = crossing((0.0, 0.0), n=40).tracks
    calm, quick = (replace(moved(track, slice(17, 40), by), fps=20.0) for by in (0.0, 300.0))
    footage = Footage.from_clips(
        [replace(calm, fps=10.0), quick], [ViewSettings(replace(MOTION, clock=True))]
    )
    assert footage.counts.jumps == 1
    numbers = footage.index.windows(slice(None)).x[:, :, 0, 0]
    np.testing.assert_allclose(numbers, 0, atol=1e-5)


def test_what_is_usual_of_a_motion_is_taken_from_no_jump() -> None:
    tracks = [crossing((speed, 0.5), n=60).tracks[0] for speed in np.linspace(1.0, 4.0, 20)]
    config = [replace(one, K=1) for one in Config.usual(10.0)]
    fastest = []
    for by in (0.0, 300.0):
        clips = [moved(track, slice(30, 60), by) for track in tracks]
        models = [view.model for view in Detector.fit(clips, config).views]
        fastest.append([one.usual[0, -1] for one in models if one.usual is not None])
    assert len(fastest[0]) == 1
    np.testing.assert_allclose(fastest[1], fastest[0], rtol=0.05)


def test_a_stream_counts_what_a_clip_counts(small_model: Detector) -> None:
    config = replace(small_model.config, split_jumps=True)
    detector = with_config(small_model, config)
    rng = np.random.default_rng(1)
    shape = rng.normal(0, 20, (17, 2)).astype(np.float32)
    where = np.repeat([0, 500, 0], [20, 1, 30])[:, None, None]
    track = Track(3, np.arange(51), shape + where.astype(np.float32), np.ones((51, 17), np.float32))
    clip = Clip("x", 25.0, 51, (track,))
    stream = Stream(detector, fps=25.0)
    frames = [
        at for slot, poses in clip.by_frame() for at in stream.push(slot, poses).frame.tolist()
    ]
    index, counts = cut(clip, [ViewSettings(config)], detector.skeleton)
    assert frames == index.frame.tolist()
    assert counts.jumps == stream.counts.jumps == 2
