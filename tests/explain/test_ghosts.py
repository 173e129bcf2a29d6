"""The nearest normal motion is normal, near, and where the person is."""

from __future__ import annotations

import numpy as np

from stepvad.detector import Detector
from stepvad.explain import ghosts
from stepvad.explain.explanation import attribute
from stepvad.explain.words import rank
from stepvad.model.pcspace import PCSpace
from stepvad.skeletons import COCO17, STEP18, Skeleton
from stepvad.windows.body import standardise
from stepvad.windows.runs import WindowIndex
from studies.limbs import move_limb


def space_of(detector: Detector) -> PCSpace:
    assert isinstance(detector.model.space, PCSpace)
    return detector.model.space


def test_odd_windows_end_in_the_normal_range(detector: Detector, index: WindowIndex) -> None:
    pi_x = space_of(detector).project(index.windows(slice(0, None, 5)).x)
    odd = pi_x[ghosts.standardised(detector, pi_x).max(axis=1) > ghosts.NORMAL_RANGE]
    assert len(odd) > 20
    found = ghosts.nearest_normal(detector, odd)
    after = ghosts.standardised(detector, found).max(axis=1)
    assert (after <= ghosts.NORMAL_RANGE).mean() >= 0.95
    # far nearer to where it came from than another odd window's end is
    way = np.linalg.norm(found - odd, axis=1)
    assert (way < np.linalg.norm(np.roll(found, 1, axis=0) - odd, axis=1)).mean() > 0.8


def test_windows_at_the_goal_stay_and_other_normal_ones_hardly_move(
    detector: Detector, index: WindowIndex
) -> None:
    pi_x = space_of(detector).project(index.windows(slice(0, None, 5)).x)
    before = ghosts.standardised(detector, pi_x).max(axis=1)
    found = ghosts.nearest_normal(detector, pi_x)
    np.testing.assert_array_equal(found[before <= ghosts.GOAL], pi_x[before <= ghosts.GOAL])
    way = np.linalg.norm(found - pi_x, axis=1)
    assert np.median(way[before <= 1]) < 0.2 * np.median(way[before > 4])


def test_a_batch_gives_what_each_window_gives_alone(detector: Detector, index: WindowIndex) -> None:
    pi_x = space_of(detector).project(index.windows(slice(0, None, 60)).x)
    together = ghosts.nearest_normal(detector, pi_x)
    alone = [ghosts.nearest_normal(detector, z[None])[0] for z in pi_x]
    np.testing.assert_allclose(together, alone, atol=1e-2)


def test_the_callers_windows_are_left_alone(detector: Detector, index: WindowIndex) -> None:
    pi_x = space_of(detector).project(index.windows(slice(0, None, 60)).x)
    kept = pi_x.copy()
    ghosts.nearest_normal(detector, pi_x)
    np.testing.assert_array_equal(pi_x, kept)


def test_the_necks_of_ghosts_are_between_their_shoulders(
    detector: Detector, index: WindowIndex
) -> None:
    space = space_of(detector)
    pi_x = space.project(index.windows(slice(0, None, 60)).x)
    ghost = space.reconstruct(ghosts.nearest_normal(detector, pi_x), (2, 18, 12))
    neck, left, right = (
        ghost[:, :, STEP18.joints.index(joint)]
        for joint in ("neck", "left_shoulder", "right_shoulder")
    )
    np.testing.assert_allclose(neck, (left + right) / 2, atol=1e-3)


def test_a_ghost_gets_the_size_and_place_of_the_person() -> None:
    observed = np.random.default_rng(0).normal(300, 40, size=(2, 5, 17, 2)).astype(np.float32)
    found = ghosts.align(observed * np.float32(0.25) - 70, observed, COCO17)
    np.testing.assert_allclose(found, observed, rtol=1e-4)


def test_without_bones_or_a_torso_the_middle_decides() -> None:
    dots = Skeleton("dots", ("a", "b", "c"))
    observed = np.random.default_rng(0).normal(300, 40, size=(2, 5, 3, 2)).astype(np.float32)
    np.testing.assert_allclose(ghosts.align(observed + 9, observed, dots), observed, rtol=1e-4)


def test_one_part_moves_alone_and_the_one_that_was_moved_is_found(
    detector: Detector, index: WindowIndex
) -> None:
    space, skeleton, config = space_of(detector), detector.skeleton, detector.config
    rng = np.random.default_rng(0)
    rows = rng.choice(len(index), 150, replace=False)
    usual = detector.score_windows(index.windows(rows)).E.max(axis=1) < 1
    rows = rows[usual]
    keypoints = index.keypoints[index.start[rows][:, None] + np.arange(config.T)]
    cases = [move_limb(window, skeleton, rng) for window in keypoints]
    moved = np.stack([case.keypoints for case in cases])
    x, _ = standardise(moved.transpose(0, 3, 2, 1), config)
    pi_x = space.project(x)
    seen = ghosts.standardised(detector, pi_x).max(axis=1) > ghosts.NORMAL_RANGE
    assert seen.sum() > 40
    names = [case.limb for case, is_seen in zip(cases, seen, strict=True) if is_seen]
    pi_x, x = pi_x[seen], x[seen]
    alone = ghosts.move_one_part(detector, pi_x)
    before, after = (ghosts.standardised(detector, z).max(axis=1) for z in (pi_x, alone))
    assert (after < before).mean() > 0.9
    assert np.median(after) < 0.4 * np.median(before)  # not any part does that
    normal = ghosts.nearest_normal(detector, pi_x)
    weight = np.ones(len(x), dtype=np.float32)
    contributions = attribute(detector, x, weight, normal).contributions
    frames = np.arange(config.T)
    first = [rank(one.T, frames, skeleton)[0].name for one in contributions]
    assert np.mean([a == b for a, b in zip(first, names, strict=True)]) >= 0.9
