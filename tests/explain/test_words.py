"""Words for differences made by hand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.explain.parts import BodyPart
from stepvad.explain.words import Finding, describe, join
from stepvad.skeletons import BOX, COCO17, Skeleton

Floats = NDArray[np.float32]
FRAMES = np.arange(120, 132)
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
