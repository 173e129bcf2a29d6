"""Joints that were not found are placed where a body has them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import ConfigError
from stepvad.evaluation.walkers import make_clips
from stepvad.poses import Clip, Track
from stepvad.skeletons import BOX, COCO17, STEP18, convert
from stepvad.windows import prepare
from stepvad.windows.body import SMALLEST, body_of, extent
from stepvad.windows.noise import measure_noise, noise_at

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
    around = fill(np.zeros((1, 17, 2), np.float32), found)[0] / SMALLEST
    np.testing.assert_allclose(around, BODY.mean - BODY.mean[3], atol=1e-5)


def test_both_skeletons_have_the_same_body_and_boxes_have_none(
    poses: NDArray[np.float32],
) -> None:
    ours, papers = body_of(COCO17), body_of(STEP18)
    assert ours is not None
    assert papers is not None
    np.testing.assert_allclose(papers.mean, convert(ours.mean[None], COCO17, STEP18)[0])
    assert body_of(BOX) is None


def test_settings_choose_where_missing_joints_go(poses: NDArray[np.float32]) -> None:
    seen = poses[:5].copy()
    confidence = np.ones((5, 17), np.float32)
    seen[:, 9], confidence[:, 9] = 0, 0
    by_body, _, counts = prepare(seen, confidence, COCO17, COCO17)
    middle, _, _ = prepare(seen, confidence, COCO17, COCO17, Config(missing="middle"))
    assert counts.missing_joints == 5
    np.testing.assert_allclose(middle[:, 9], np.delete(seen, 9, axis=1).mean(axis=1), rtol=1e-5)
    off = [np.linalg.norm(found[:, 9] - poses[:5, 9], axis=1).mean() for found in (by_body, middle)]
    assert off[0] < off[1]
    assert Config().missing == "body"


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
    config = Config(weigh_joints=True, noise=noise)
    shaken, confidence = poses[:20].copy(), np.full((20, 17), 0.9, np.float32)
    shaken[:, 9] += 30
    confidence[:, 9] = 0.05
    settled, _, _ = prepare(shaken, confidence, COCO17, COCO17, config)
    assert BODY is not None
    np.testing.assert_array_equal(settled, BODY.settle(shaken, noise_at(confidence, noise)))
    assert not np.array_equal(settled[:, 9], shaken[:, 9])
    with pytest.raises(ConfigError, match="noise"):
        Config(noise=noise)
