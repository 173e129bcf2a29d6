"""Joints make parts, and parts are ranked by what they add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepvad import Clip, Detector
from stepvad.explain import explain
from stepvad.explain.parts import LIMBS, ORDER, part_of, parts_of, rank, strong_span
from stepvad.skeletons import BOX, BUILT_IN, COCO17, HALPE26, STEP18, Skeleton

FRAMES = np.arange(120, 132)


@pytest.mark.parametrize("skeleton", [COCO17, STEP18, BOX])
def test_every_joint_is_in_one_part(skeleton: Skeleton) -> None:
    numbers = [number for joints in parts_of(skeleton).values() for number in joints]
    assert sorted(numbers) == list(range(skeleton.V))


def test_people_have_six_parts_and_other_joints_are_their_own() -> None:
    assert set(parts_of(COCO17)) == {"head", "torso", *LIMBS}
    assert [COCO17.joints[v] for v in parts_of(COCO17)["torso"]] == [
        *("left_shoulder", "right_shoulder", "left_hip", "right_hip")
    ]
    assert list(parts_of(BOX)) == ["top left", "top right", "bottom right", "bottom left"]


def test_parts_are_ranked_by_the_sum_over_joints_and_frames() -> None:
    contributions = np.zeros((12, 17))
    contributions[4:7, COCO17.joints.index("left_wrist")] = 2.0
    contributions[0, COCO17.joints.index("left_elbow")] = 0.1
    contributions[:, COCO17.joints.index("nose")] = 1.0 / 6
    contributions[3, COCO17.joints.index("right_knee")] = -5.0
    first, second, *_, last = rank(contributions, FRAMES, COCO17)
    assert (first.name, second.name, last.name) == ("left arm", "head", "right leg")
    assert first.contribution == pytest.approx(6.1)
    assert first.share == pytest.approx(6.1 / 8.1)  # of what raises the score
    assert last.share == 0
    assert (first.first_frame, first.last_frame) == (124, 126)
    assert (second.first_frame, second.last_frame) == (120, 131)


def test_a_window_without_anything_has_no_shares() -> None:
    assert {part.share for part in rank(np.zeros((12, 17)), FRAMES, COCO17)} == {0.0}
    assert strong_span(np.zeros(4)) == (0, 3)


@pytest.mark.parametrize("skeleton", BUILT_IN.values(), ids=lambda skeleton: skeleton.name)
def test_every_joint_of_a_built_in_skeleton_is_of_a_part_of_the_body(skeleton: Skeleton) -> None:
    assert list(parts_of(skeleton)) == [*ORDER]


def test_toes_and_fingers_belong_to_legs_and_arms_of_their_side() -> None:
    assert part_of("left_foot_index") == part_of("left_big_toe") == "left leg"
    assert part_of("right_hand_root") == part_of("right_ring_finger_3") == "right arm"
    assert part_of("mouth_left") == part_of("face_12") == "head"
    assert part_of("elbow") == "elbow"  # of no known side
    assert part_of("joint_5") == "joint 5"


def test_a_model_of_coco_scores_and_explains_poses_with_more_joints(
    small_model: Detector, walkers: list[Clip]
) -> None:
    clip = walkers[0]
    more = [
        replace(
            track,
            keypoints=np.pad(track.keypoints, ((0, 0), (0, 9), (0, 0)), mode="edge"),
            confidence=np.pad(track.confidence, ((0, 0), (0, 9)), mode="edge"),
        )
        for track in clip.tracks
    ]
    larger = replace(clip, tracks=tuple(more), skeleton=HALPE26)
    np.testing.assert_array_equal(small_model.score(larger).A, small_model.score(clip).A)
    (ours,), (theirs,) = (explain(small_model, one) for one in (clip, larger))
    assert (theirs.words, theirs.skeleton) == (ours.words, COCO17)
    np.testing.assert_array_equal(theirs.contributions, ours.contributions)
