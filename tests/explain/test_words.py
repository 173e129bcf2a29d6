"""Parts of the body, and phrases about poses, motion and place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import Clip, Detector
from stepvad.explain import explain
from stepvad.explain.words import (
    LIMBS,
    PARTS,
    BodyPart,
    Finding,
    ViewedNumbers,
    describe,
    join,
    part_of,
    parts_of,
    rank,
    strong_span,
)
from stepvad.skeletons import BUILT_IN, COCO17, HALPE26, STEP18, Skeleton
from studies.unpack import BOX

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
    assert list(parts_of(skeleton)) == [*PARTS]


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


Floats = NDArray[np.float32]
T = len(FRAMES)


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def joint(name: str) -> int:
    return COCO17.joints.index(name)


def standing() -> Floats:
    """A person of 200 pixels who faces the camera and does nothing, `(T, 17, 2)`."""
    places = {"nose": (0, 0), "eye": (3, -3), "ear": (6, 0), "shoulder": (20, 30)}
    places |= {"elbow": (25, 60), "wrist": (25, 90), "hip": (14, 95), "knee": (14, 145)}
    places |= {"ankle": (14, 190)}
    pose = np.zeros((17, 2), dtype=np.float32)
    for number, name in enumerate(COCO17.joints):
        side, _, kind = name.partition("_")
        x, y = places[kind or side]
        pose[number] = (x if side == "left" else -x, y)
    return np.repeat(pose[None] + 300, T, axis=0)


def walking(pixels_a_frame: float) -> Floats:
    motion = standing()
    motion[..., 0] += pixels_a_frame * np.arange(T)[:, None]
    return motion


def said(
    observed: Floats,
    ghost: Floats,
    *names: str,
    share: float = 0.6,
    frames: tuple[int, int] = (122, 128),
    skeleton: Skeleton = COCO17,
) -> list[str]:
    parts = [BodyPart(name, 5.0, share, *frames) for name in names]
    return [finding.words for finding in describe(observed, ghost, parts, FRAMES, skeleton)]


def test_an_arm_above_its_normal_place_is_raised() -> None:
    observed = standing()
    observed[:, joint("left_elbow"), 1] -= 40
    observed[:, joint("left_wrist"), 1] -= 110
    assert said(observed, standing(), "left arm") == ["left arm raised, frames 122-128"]
    assert said(standing(), observed, "left arm") == ["left arm lowered, frames 122-128"]


def test_an_arm_that_moves_has_a_speed() -> None:
    observed, ghost = standing(), standing()
    sway = np.sin(np.arange(T))
    ghost[:, joint("right_wrist"), 0] += 8 * sway
    observed[:, joint("right_wrist"), 0] += 24 * sway
    assert said(observed, ghost, "right arm") == [
        "right arm moving 3x faster than normal, frames 122-128"
    ]
    assert said(ghost, observed, "right arm") == [
        "right arm moving less than half as fast as normal, frames 122-128"
    ]
    assert said(observed, standing(), "right arm") == [
        "right arm moving more than 10x faster than normal, frames 122-128"
    ]


def test_both_are_said_together() -> None:
    observed, ghost = standing(), standing()
    sway = np.sin(np.arange(T))
    observed[:, joint("left_wrist"), 1] -= 60
    ghost[:, joint("left_wrist"), 0] += 8 * sway
    observed[:, joint("left_wrist"), 0] += 24 * sway
    assert said(observed, ghost, "left arm", frames=(120, 131)) == [
        "left arm raised and moving 3x faster than normal, frames 120-131"
    ]


def test_a_leg_is_bent_stretched_or_held_aside() -> None:
    bent, aside = standing(), standing()
    bent[:, joint("left_ankle")] = bent[:, joint("left_hip")] + floats(55, 5)
    aside[:, joint("left_ankle"), 0] += 40
    assert said(bent, standing(), "left leg") == ["left leg raised, frames 122-128"]
    assert said(aside, standing(), "left leg") == ["left leg held aside, frames 122-128"]
    folded = standing()
    folded[:, joint("right_wrist")] = folded[:, joint("right_shoulder")] + floats(0, 5)
    assert said(standing(), folded, "right arm") == [
        "right arm lowered and stretched, frames 122-128"
    ]


def test_without_a_clear_difference_only_the_part_is_named() -> None:
    assert said(standing(), standing(), "left leg") == [
        "unusual posture of the left leg, frames 122-128"
    ]
    assert said(standing(), standing(), "head", frames=(125, 125)) == [
        "unusual posture of the head, frame 125"
    ]


def test_who_lies_is_said_to_lie_and_limbs_have_no_direction_then() -> None:
    lying = standing()[..., ::-1].copy()
    assert said(lying, standing(), "left leg") == ["whole body lying, frames 120-131"]
    assert said(standing(), lying, "left leg")[0].startswith("left leg lowered")


def test_who_leans_crouches_or_turns_round() -> None:
    leaning, crouched = standing(), standing()
    leaning[:, : joint("left_elbow"), 0] += 40
    crouched[:, joint("left_knee") :, 1] -= 40
    turned = standing()
    turned[..., 0] = 600 - turned[..., 0]
    assert said(leaning, standing(), "torso") == ["whole body leaning over, frames 120-131"]
    assert said(crouched, standing(), "torso") == ["whole body crouched, frames 120-131"]
    assert said(turned, standing(), "torso") == ["whole body turned round, frames 120-131"]


def test_a_body_that_goes_faster_or_the_other_way() -> None:
    assert said(walking(12), walking(4), "torso") == [
        "whole body moving 3x faster than normal, frames 120-131"
    ]
    assert said(walking(-5), walking(5), "torso") == [
        "whole body going the other way, frames 120-131"
    ]
    falling = standing()
    falling[..., 1] += 5 * np.arange(T)[:, None]
    (words,) = said(falling, standing(), "torso")
    assert words.startswith("whole body going down in the picture and moving more than 10x faster")


def test_two_parts_at_most_and_only_those_that_matter() -> None:
    names = ("left leg", "right leg", "head")
    observed = standing()
    observed[:, [joint("left_ankle"), joint("right_ankle")], 0] += 40
    observed[:, joint("nose"), 0] += 40
    assert len(said(observed, standing(), *names, share=0.33)) == 2
    assert len(said(observed, standing(), *names, share=0.2)) == 1


def test_where_nothing_raises_the_score_nothing_is_said() -> None:
    parts = [BodyPart("head", -0.1, 0.0, 120, 131)]
    assert describe(standing(), standing(), parts, FRAMES, COCO17) == ()


def test_other_skeletons_have_words_too() -> None:
    box = np.repeat(floats(0, 0, 50, 0, 50, 200, 0, 200).reshape(1, 4, 2), T, axis=0)
    moving = box + np.arange(T, dtype=np.float32)[:, None, None] * floats(10, 0)
    assert said(moving, box, "top left", skeleton=BOX) == [
        "whole body moving more than 10x faster than normal, frames 120-131"
    ]
    assert said(box, box, "top left", skeleton=BOX) == [
        "unusual posture of the top left, frames 122-128"
    ]


def test_a_single_frame_has_no_speed() -> None:
    parts = [BodyPart("left leg", 5.0, 1.0, 120, 120)]
    (finding,) = describe(standing()[:1], standing()[:1], parts, FRAMES[:1], COCO17)
    assert finding.speed is None


def test_findings_about_one_part_are_joined_over_time() -> None:
    joined = join(
        [
            Finding("left arm", ("raised",), 2.0, 120, 131),
            Finding("head", (), None, 120, 131),
            Finding("left arm", ("raised", "stretched"), 3.0, 132, 134),
        ]
    )
    assert [finding.words for finding in joined] == [
        "left arm raised, stretched and moving 3x faster than normal, frames 120-134",
        "unusual posture of the head, frames 120-131",
    ]


USUAL = np.array(
    [
        [0.0, 0.01, 0.10, 0.20],  # speed
        [-0.02, -0.01, 0.01, 0.02],  # growth
        [0.2, 0.25, 0.40, 0.50],  # width
    ]
)
STEADY = (0.05, 0.0, 0.0, 0.3)


def motion(*seen: float, meaning: str) -> str:
    viewed = ViewedNumbers(np.array(seen), np.array(STEADY), USUAL, 0.001, 500)
    return viewed.motion(meaning)


def place(size: float = 0.0, wide: float = 0.3, *, meaning: str, rarity: float = 1e-9) -> str:
    seen, normal = np.array([9, 9, size, wide]), np.array([0, 0, 0, 0.3])
    viewed = ViewedNumbers(seen, normal, np.empty((0, 0)), rarity, 500)
    return viewed.place(meaning, leads=rarity < 0.5)


@pytest.mark.parametrize(
    ("velocity", "says"),
    [
        ((0.62, 0.0), "crosses the picture 3.1x as fast as anybody before"),
        ((0.0, -0.21), "crosses the picture faster than anybody before"),
        ((9.0, 0.0), "crosses the picture more than 10x as fast as anybody before"),
        ((0.09, 0.12), "crosses the picture faster than 99 % of people"),
        ((0.003, 0.004), "moves more slowly than 99 % of people"),
        ((-0.06, 0.0), "goes to the left as few people do"),
        ((0.01, 0.05), "goes down in the picture as few people do"),
    ],
)
def test_speed_is_compared_with_everybody(velocity: tuple[float, float], says: str) -> None:
    assert motion(*velocity, 0, 0.3, meaning="speed") == says


def test_growth_and_width_are_compared_too() -> None:
    grown = motion(0.05, 0, 0.03, 0.3, meaning="growth")
    assert grown == "gets larger in the picture faster than anybody before"
    shrunk = motion(0.05, 0, -0.015, 0.3, meaning="growth")
    assert shrunk == "gets smaller in the picture faster than 99 % of people"
    assert motion(0.05, 0, 0, 0.45, meaning="width").startswith("is wider for the height")
    assert motion(0.05, 0, 0, 0.21, meaning="width").startswith("is narrower for the height")
    assert motion(*STEADY, meaning="growth") == "moves with an unusual growth"


def test_a_place_is_as_rare_as_it_is_said_to_be() -> None:
    assert place(meaning="place") == "is where nobody was before"
    assert place(meaning="place", rarity=0.005) == "is where hardly anybody was before"
    assert place(meaning="place", rarity=0.02) == "is in an unusual place"
    assert place(meaning="place", rarity=0.9) == "is in an unusual place"


def test_a_size_is_compared_with_that_of_people_there() -> None:
    assert place(np.log(1.8), meaning="size") == "is 1.8x as large as people are there"
    assert place(np.log(0.6), meaning="size") == "is only 60 % as large as people are there"
    assert place(0.01, meaning="size") == "has an unusual size for the place"
    assert place(wide=0.5, meaning="width") == "is wider for the height than people are there"
    assert place(wide=0.1, meaning="width") == "is narrower for the height than people are there"
