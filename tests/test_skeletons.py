"""Joint names, and the way from COCO-17 to the paper's 18 joints."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.skeletons import (
    BODY25,
    BUILT_IN,
    COCO17,
    HALPE26,
    MEDIAPIPE33,
    STEP18,
    WHOLEBODY133,
    Skeleton,
    convert,
    give_back,
    missing_joints,
    modelled,
    of_size,
    part_for,
    restore,
    unnamed,
)


def test_the_built_in_skeletons_have_the_joints_that_their_names_say() -> None:
    assert [*BUILT_IN] == ["coco17", "step18", "halpe26", "body25", "wholebody133", "mediapipe33"]
    for name, skeleton in BUILT_IN.items():
        assert name == skeleton.name
        assert name.endswith(str(skeleton.V))
        joined = {skeleton.joints[end] for bone in skeleton.bones for end in bone}
        assert {joint for joint in skeleton.joints if "face" not in joint} == joined


@pytest.mark.parametrize("skeleton", [HALPE26, BODY25, WHOLEBODY133, MEDIAPIPE33])
def test_poses_with_more_joints_become_what_a_model_of_the_paper_reads(skeleton: Skeleton) -> None:
    values = np.arange(2 * skeleton.V, dtype=np.float32).reshape(2, -1)
    got = dict(zip(STEP18.joints, convert(values, skeleton, STEP18).T, strict=True))
    of = dict(zip(skeleton.joints, values.T, strict=True))
    for joint in COCO17.joints:
        np.testing.assert_array_equal(got[joint], of[joint])
    np.testing.assert_array_equal(got["neck"], (of["left_shoulder"] + of["right_shoulder"]) / 2)
    assert part_for(skeleton, STEP18) == COCO17
    assert part_for(skeleton, skeleton) == skeleton
    assert part_for(COCO17, skeleton) == COCO17  # some are missing: convert refuses


def test_a_model_that_knew_no_names_reads_poses_of_as_many_joints() -> None:
    values = np.ones((2, 26, 2), dtype=np.float32)
    assert convert(values, HALPE26, unnamed(26)) is values
    assert restore(values, HALPE26, unnamed(26)) is values
    with pytest.raises(DataError, match="expected poses of skeleton joints25"):
        convert(values, HALPE26, unnamed(25))


def test_the_18_joints_are_in_the_order_of_the_paper_notes() -> None:
    limbs = [f"right_{j}" for j in ("shoulder", "elbow", "wrist")]
    limbs += [f"left_{j}" for j in ("shoulder", "elbow", "wrist")]
    limbs += [f"right_{j}" for j in ("hip", "knee", "ankle")]
    limbs += [f"left_{j}" for j in ("hip", "knee", "ankle")]
    head = ["right_eye", "left_eye", "right_ear", "left_ear"]
    assert list(STEP18.joints) == ["nose", "neck", *limbs, *head]


@pytest.mark.parametrize("skeleton", BUILT_IN.values())
def test_bones_join_different_joints_of_the_same_side(skeleton: Skeleton) -> None:
    assert len(set(skeleton.joints)) == skeleton.V
    for a, b in skeleton.bones:
        assert a != b
        sides = {skeleton.joints[end].split("_")[0] for end in (a, b)}
        paired = {skeleton.joints[end].split("_")[-1] for end in (a, b)}
        assert sides != {"left", "right"} or len(paired) == 1


def test_every_joint_of_coco_lands_on_the_joint_of_the_same_name() -> None:
    values = np.arange(2 * 17, dtype=np.float32).reshape(2, 17)
    got = convert(values, COCO17, STEP18)
    assert got.shape == (2, 18)
    for v, joint in enumerate(STEP18.joints):
        if joint != "neck":
            np.testing.assert_array_equal(got[:, v], values[:, COCO17.joints.index(joint)])


def test_the_neck_is_the_mean_of_both_shoulders() -> None:
    keypoints = np.zeros((1, 17, 2), dtype=np.float32)
    keypoints[0, 5] = (10, 40)  # left shoulder
    keypoints[0, 6] = (30, 80)  # right shoulder
    got = convert(keypoints, COCO17, STEP18)
    np.testing.assert_array_equal(got[0, STEP18.joints.index("neck")], [20, 60])
    assert got.dtype == np.float32


def test_converting_leaves_its_input_alone() -> None:
    keypoints = np.ones((3, 17, 2), dtype=np.float32)
    convert(keypoints, COCO17, STEP18)[:] = 7
    assert (keypoints == 1).all()


def test_no_poses_convert_to_no_poses() -> None:
    assert convert(np.empty((0, 17, 2), np.float32), COCO17, STEP18).shape == (0, 18, 2)


def test_the_same_joints_stay_as_they_are_whatever_the_name() -> None:
    values = np.ones((1, 18, 2), dtype=np.float32)
    mine = Skeleton("mine", STEP18.joints)
    np.testing.assert_array_equal(convert(values, STEP18, mine), values)


@pytest.mark.parametrize(
    ("source", "target"), [(STEP18, HALPE26), (of_size(5), STEP18), (COCO17, of_size(18 + 1))]
)
def test_other_skeletons_are_not_converted(source: Skeleton, target: Skeleton) -> None:
    with pytest.raises(DataError) as error:
        convert(np.zeros((1, source.V, 2), np.float32), source, target)
    assert error.value.problem == (
        f"expected poses of skeleton {target.name} (V = {target.V}), "
        f"got {source.name} (V = {source.V})"
    )
    assert error.value.hint == "score a model on the skeleton it was fitted on"
    assert missing_joints(source, target)


def test_the_joints_that_a_model_misses_are_those_without_which_nothing_is_converted() -> None:
    assert missing_joints(COCO17, HALPE26)[:3] == ["head", "neck", "hip"]
    assert missing_joints(STEP18, STEP18) == missing_joints(COCO17, STEP18) == []
    for skeleton in (HALPE26, BODY25, WHOLEBODY133, MEDIAPIPE33):
        assert missing_joints(skeleton, STEP18) == missing_joints(skeleton, COCO17) == []


def test_the_joints_of_the_paper_are_the_same_by_another_name() -> None:
    values = np.arange(34, dtype=np.float32).reshape(1, 17, 2)
    mine = Skeleton("mine", STEP18.joints)
    np.testing.assert_array_equal(convert(values, COCO17, mine), convert(values, COCO17, STEP18))


def test_a_model_sees_coco_as_18_joints_and_any_other_skeleton_as_it_is() -> None:
    assert modelled(COCO17) == STEP18
    assert modelled(STEP18) == STEP18
    assert modelled(of_size(6)) == of_size(6)


def test_a_number_of_joints_names_a_built_in_skeleton_or_a_plain_one() -> None:
    assert of_size(17) == COCO17
    assert of_size(18) == STEP18
    assert of_size(26) == HALPE26
    assert of_size(2) == Skeleton("joints2", ("joint_0", "joint_1"))


def test_a_skeleton_without_joints_is_refused() -> None:
    with pytest.raises(DataError, match="skeleton void: expected at least one joint, got none"):
        Skeleton("void", ())


@pytest.mark.parametrize("bone", [(0, 2), (-1, 0)])
def test_a_bone_that_leads_nowhere_is_refused(bone: tuple[int, int]) -> None:
    with pytest.raises(DataError, match=r"skeleton s: bones must join joints 0 to 1, got") as error:
        Skeleton("s", ("a", "b"), (bone,))
    assert error.value.hint == "number the joints from 0"


def test_places_come_back_as_they_were() -> None:
    places = np.random.default_rng(0).normal(size=(3, 17, 2)).astype(np.float32)
    there = convert(places, COCO17, STEP18)
    np.testing.assert_array_equal(restore(there, COCO17, STEP18), places)
    np.testing.assert_array_equal(restore(places, COCO17, COCO17), places)


def test_the_share_of_the_neck_goes_to_both_shoulders_and_nothing_is_lost() -> None:
    shares = np.zeros((1, 18))
    shares[0, STEP18.joints.index("neck")] = 3.0
    shares[0, STEP18.joints.index("left_wrist")] = 1.0
    shares[0, STEP18.joints.index("left_shoulder")] = 0.25
    got = dict(zip(COCO17.joints, give_back(shares, COCO17, STEP18)[0], strict=True))
    assert {joint: share for joint, share in got.items() if share} == {
        "left_shoulder": 1.75,
        "right_shoulder": 1.5,
        "left_wrist": 1.0,
    }
    np.testing.assert_array_equal(give_back(shares, STEP18, STEP18), shares)
