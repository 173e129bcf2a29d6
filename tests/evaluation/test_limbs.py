"""One limb is moved and nothing else, and explanations find it."""

from __future__ import annotations

import numpy as np

from stepvad.evaluation.limbs import KINDS, move_limb
from stepvad.explain.parts import LIMBS, parts_of
from stepvad.skeletons import COCO17


def test_one_limb_moves_by_as_much_as_it_says() -> None:
    rng = np.random.default_rng(0)
    keypoints = rng.uniform(0, 200, size=(12, 17, 2)).astype(np.float32)
    height = float(np.median(np.ptp(keypoints[..., 1], axis=1)))
    seen = set()
    for _ in range(100):
        moved = move_limb(keypoints, COCO17, rng)
        way = np.linalg.norm(moved.keypoints - keypoints, axis=2)  # (T, V)
        joints = parts_of(COCO17)[moved.limb]
        assert np.delete(way, joints, axis=1).max() == 0
        match moved.kind:
            case "displaced":
                assert np.ptp(way[:, joints]) < 1e-3
                assert 0.24 * height < way[0, joints[0]] < 0.61 * height
            case "shaken":
                assert way[:, joints[1]].max() < 0.41 * height
                np.testing.assert_allclose(way[:, joints[1]], 2 * way[:, joints[0]], atol=1e-3)
            case "raised":
                root = keypoints[:, COCO17.joints.index(LIMBS[moved.limb][0])]
                before, after = (
                    np.linalg.norm(window[:, joints[1]] - root, axis=1)
                    for window in (keypoints, moved.keypoints)
                )
                np.testing.assert_allclose(before, after, rtol=1e-4)
        seen.add((moved.limb, moved.kind))
    assert len(seen) == len(LIMBS) * len(KINDS)


def test_the_same_seed_moves_the_same_limb() -> None:
    keypoints = np.random.default_rng(1).uniform(0, 200, size=(12, 17, 2)).astype(np.float32)
    first, second = (move_limb(keypoints, COCO17, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(first.keypoints, second.keypoints)
    assert (first.limb, first.kind) == (second.limb, second.kind)
