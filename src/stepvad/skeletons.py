"""Joint names and bones: the paper's 18 joints (Sec. 4.1), those of pose estimators, any other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError

Float = TypeVar("Float", np.float32, np.float64)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Names of the V joints and the bones between them, as pairs of joint numbers.

    Examples:
        >>> clip.skeleton.V, clip.skeleton.joints[0]
        (17, 'nose')
    """

    name: str
    joints: tuple[str, ...]
    bones: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        """Reject an empty skeleton and bones to joints that do not exist."""
        if not self.joints:
            raise DataError(
                f"skeleton {self.name}: expected at least one joint, got none",
                hint="name the joints",
            )
        ends = [end for bone in self.bones for end in bone]
        if any(not 0 <= end < self.V for end in ends):
            raise DataError(
                f"skeleton {self.name}: bones must join joints 0 to {self.V - 1}, got {self.bones}",
                hint="number the joints from 0",
            )

    @property
    def V(self) -> int:
        """Number of joints."""
        return len(self.joints)


def _named(name: str, joints: str, bones: str) -> Skeleton:
    """A skeleton from names of joints and bones; `*_knee-*_ankle` is a bone on both sides."""
    names = tuple(joints.split())
    both = (bone.replace("*", side) for bone in bones.split() for side in ("left", "right"))
    pairs = (bone.split("-") for bone in dict.fromkeys(both))
    return Skeleton(name, names, tuple((names.index(a), names.index(b)) for a, b in pairs))


_FACE = "nose-*_eye *_eye-*_ear"
_LIMBS = "*_shoulder-*_elbow *_elbow-*_wrist *_hip-*_knee *_knee-*_ankle"
_FEET = "*_ankle-*_heel *_ankle-*_big_toe *_big_toe-*_small_toe"
_TRUNK = "left_shoulder-right_shoulder *_shoulder-*_hip left_hip-right_hip"

COCO17 = _named(
    "coco17",
    "nose left_eye right_eye left_ear right_ear left_shoulder right_shoulder left_elbow "
    "right_elbow left_wrist right_wrist left_hip right_hip left_knee right_knee left_ankle "
    "right_ankle",
    f"{_FACE} left_shoulder-right_shoulder left_shoulder-left_elbow left_elbow-left_wrist "
    "right_shoulder-right_elbow right_elbow-right_wrist *_shoulder-*_hip left_hip-right_hip "
    "left_hip-left_knee left_knee-left_ankle right_hip-right_knee right_knee-right_ankle",
)

STEP18 = _named(
    "step18",
    "nose neck right_shoulder right_elbow right_wrist left_shoulder left_elbow left_wrist "
    "right_hip right_knee right_ankle left_hip left_knee left_ankle right_eye left_eye right_ear "
    "left_ear",
    "nose-neck neck-right_shoulder right_shoulder-right_elbow right_elbow-right_wrist "
    "neck-left_shoulder left_shoulder-left_elbow left_elbow-left_wrist neck-right_hip "
    "right_hip-right_knee right_knee-right_ankle neck-left_hip left_hip-left_knee "
    "left_knee-left_ankle nose-right_eye right_eye-right_ear nose-left_eye left_eye-left_ear",
)
"""The paper's joints, with a neck."""

HALPE26 = _named(
    "halpe26",
    " ".join(COCO17.joints) + " head neck hip left_big_toe right_big_toe left_small_toe "
    "right_small_toe left_heel right_heel",
    f"{_FACE} head-neck neck-nose neck-*_shoulder neck-hip hip-*_hip {_LIMBS} {_FEET}",
)
"""AlphaPose's and RTMPose's 26 joints of the body, with feet."""

BODY25 = _named(
    "body25",
    "nose neck right_shoulder right_elbow right_wrist left_shoulder left_elbow left_wrist mid_hip "
    "right_hip right_knee right_ankle left_hip left_knee left_ankle right_eye left_eye right_ear "
    "left_ear left_big_toe left_small_toe left_heel right_big_toe right_small_toe right_heel",
    f"neck-nose {_FACE} neck-*_shoulder neck-mid_hip mid_hip-*_hip {_LIMBS} {_FEET}",
)
"""OpenPose's BODY_25."""

_FINGERS = ("thumb", "forefinger", "middle_finger", "ring_finger", "pinky_finger")
_FOOT = ["*_big_toe", "*_small_toe", "*_heel"]
_HAND = ["*_hand_root", *(f"*_{finger}_{at}" for finger in _FINGERS for at in (1, 2, 3, 4))]
_HAND_BONES = [f"*_hand_root-*_{finger}_1" for finger in _FINGERS]
_HAND_BONES += [f"*_{finger}_{at}-*_{finger}_{at + 1}" for finger in _FINGERS for at in (1, 2, 3)]


def _both(joints: list[str]) -> list[str]:
    """The joints of the left side, then those of the right."""
    return [joint.replace("*", side) for side in ("left", "right") for joint in joints]


WHOLEBODY133 = _named(
    "wholebody133",
    " ".join((*COCO17.joints, *_both(_FOOT), *(f"face_{n}" for n in range(68)), *_both(_HAND))),
    f"{_FACE} {_TRUNK} {_LIMBS} {_FEET} *_wrist-*_hand_root {' '.join(_HAND_BONES)}",
)
"""COCO-WholeBody: body, feet, 68 points of the face and 21 of each hand."""

MEDIAPIPE33 = _named(
    "mediapipe33",
    "nose left_eye_inner left_eye left_eye_outer right_eye_inner right_eye right_eye_outer "
    "left_ear right_ear mouth_left mouth_right left_shoulder right_shoulder left_elbow right_elbow "
    "left_wrist right_wrist left_pinky right_pinky left_index right_index left_thumb right_thumb "
    "left_hip right_hip left_knee right_knee left_ankle right_ankle left_heel right_heel "
    "left_foot_index right_foot_index",
    "nose-*_eye_inner *_eye_inner-*_eye *_eye-*_eye_outer *_eye_outer-*_ear mouth_left-mouth_right "
    f"{_TRUNK} {_LIMBS} *_wrist-*_pinky *_wrist-*_index *_wrist-*_thumb *_pinky-*_index "
    "*_ankle-*_heel *_heel-*_foot_index *_ankle-*_foot_index",
)
"""The 33 landmarks of MediaPipe's pose."""

NOSE, LEFT_SHOULDER, RIGHT_SHOULDER = map(
    COCO17.joints.index, ("nose", "left_shoulder", "right_shoulder")
)
NECK = STEP18.joints.index("neck")
STEP18_OF_COCO17 = [
    COCO17.joints.index("nose" if joint == "neck" else joint) for joint in STEP18.joints
]
"""COCO-17 index of each of the paper's joints; the neck, which COCO lacks, is a placeholder."""

BUILT_IN = {
    skeleton.name: skeleton
    for skeleton in (COCO17, STEP18, HALPE26, BODY25, WHOLEBODY133, MEDIAPIPE33)
}
"""Skeletons with a name; poses of as many joints in files that name none are of these."""


def of_size(V: int) -> Skeleton:
    """The built-in skeleton with V joints, or V joints without names or bones."""
    return next((known for known in BUILT_IN.values() if known.V == V), unnamed(V))


def unnamed(V: int) -> Skeleton:
    """V joints without names or bones."""
    return Skeleton(f"joints{V}", tuple(f"joint_{v}" for v in range(V)))


def strokes(skeleton: Skeleton) -> list[list[int]]:
    """Lines to draw a skeleton: pairs of joints, plus a line of three for COCO-17's missing neck.

    A line of three joints runs from the first to the midpoint of the others.
    """
    lines = [[a, b] for a, b in skeleton.bones]
    if skeleton == COCO17:
        lines.append([NOSE, LEFT_SHOULDER, RIGHT_SHOULDER])
    return lines


def modelled(skeleton: Skeleton) -> Skeleton:
    """The skeleton a model sees: the paper's 18 joints for COCO-17, any other unchanged."""
    return STEP18 if skeleton == COCO17 else skeleton


def part_for(source: Skeleton, target: Skeleton) -> Skeleton:
    """The part of a skeleton that a model of another reads: joints of the same names.

    For the paper's joints it is COCO-17, so that every neck is the mean of the shoulders.
    """
    if _alike(source, target):
        return source
    part = _read_by(target)
    if part.joints == source.joints:  # the common case, without sets
        return source
    return part if {*part.joints} <= {*source.joints} else source


def missing_joints(source: Skeleton, target: Skeleton) -> list[str]:
    """Joints that `convert` needs and the source lacks; none if it can convert."""
    if _alike(source, target):
        return []
    return [joint for joint in _read_by(target).joints if joint not in source.joints]


def _read_by(target: Skeleton) -> Skeleton:
    """The joints that a model computes its own from; the paper's neck comes from the shoulders."""
    return COCO17 if target.joints == STEP18.joints else target


def convert(joints: NDArray[Float], source: Skeleton, target: Skeleton) -> NDArray[Float]:
    """Convert values per joint, `(n, V, …)`, from one skeleton to another.

    Joints keep their names. COCO-17, and all skeletons with its joints, become the paper's 18
    joints, with the neck as the mean of both shoulders.
    """
    if _alike(source, target):
        return joints
    part = part_for(source, target)
    if part.joints != source.joints:
        joints = joints.take([source.joints.index(joint) for joint in part.joints], axis=1)
    if part.joints == target.joints:
        return joints
    if missing_joints(source, target):
        raise DataError(
            f"expected poses of skeleton {target.name} (V = {target.V}), "
            f"got {source.name} (V = {source.V})",
            hint="score a model on the skeleton it was fitted on",
        )
    converted = joints.take(STEP18_OF_COCO17, axis=1, mode="clip")  # "raise" takes twice as long
    converted[:, NECK] = (joints[:, LEFT_SHOULDER] + joints[:, RIGHT_SHOULDER]) / 2
    return converted


def _alike(one: Skeleton, other: Skeleton) -> bool:
    """True if two have the same joints, by name or, where one has no names, by number."""
    if one.joints == other.joints:
        return True
    return one.V == other.V and unnamed(one.V) in (one, other)


def restore(joints: NDArray[Float], source: Skeleton, target: Skeleton) -> NDArray[Float]:
    """Undo `convert` for joint positions `(n, V, …)`: drop the neck."""
    if _alike(source, target):
        return joints
    return joints[:, [target.joints.index(joint) for joint in source.joints]]


def give_back(
    shares: NDArray[np.float64], source: Skeleton, target: Skeleton
) -> NDArray[np.float64]:
    """Map shares of a total, `(n, V, …)`, from the joints that `convert` returns back to its input.

    The neck's share is split between the shoulders it is the mean of, so the total is unchanged.
    """
    restored = restore(shares, source, target)
    if not _alike(source, target):
        half = shares[:, target.joints.index("neck")] / 2
        restored[:, LEFT_SHOULDER] += half
        restored[:, RIGHT_SHOULDER] += half
    return restored
