"""Joint names and bones: COCO-17, the paper's 18 joints (Sec. 4.1), or any other set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError

Float = TypeVar("Float", np.float32, np.float64)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """Names of the V joints and the bones between them, as pairs of joint numbers."""

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


COCO17 = Skeleton(
    "coco17",
    (
        "nose",
        "left_eye",
        "right_eye",
        "left_ear",
        "right_ear",
        "left_shoulder",
        "right_shoulder",
        "left_elbow",
        "right_elbow",
        "left_wrist",
        "right_wrist",
        "left_hip",
        "right_hip",
        "left_knee",
        "right_knee",
        "left_ankle",
        "right_ankle",
    ),
    (
        (0, 1),
        (0, 2),
        (1, 3),
        (2, 4),
        (5, 6),
        (5, 7),
        (7, 9),
        (6, 8),
        (8, 10),
        (5, 11),
        (6, 12),
        (11, 12),
        (11, 13),
        (13, 15),
        (12, 14),
        (14, 16),
    ),
)

STEP18 = Skeleton(
    "step18",
    (
        "nose",
        "neck",
        "right_shoulder",
        "right_elbow",
        "right_wrist",
        "left_shoulder",
        "left_elbow",
        "left_wrist",
        "right_hip",
        "right_knee",
        "right_ankle",
        "left_hip",
        "left_knee",
        "left_ankle",
        "right_eye",
        "left_eye",
        "right_ear",
        "left_ear",
    ),
    (
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
        (1, 5),
        (5, 6),
        (6, 7),
        (1, 8),
        (8, 9),
        (9, 10),
        (1, 11),
        (11, 12),
        (12, 13),
        (0, 14),
        (14, 16),
        (0, 15),
        (15, 17),
    ),
)

NOSE, LEFT_SHOULDER, RIGHT_SHOULDER = map(
    COCO17.joints.index, ("nose", "left_shoulder", "right_shoulder")
)
NECK = STEP18.joints.index("neck")
STEP18_OF_COCO17 = [
    COCO17.joints.index("nose" if joint == "neck" else joint) for joint in STEP18.joints
]
"""COCO-17 index of each of the paper's joints; the neck, which COCO lacks, is a placeholder."""

BOX = Skeleton(
    "box",
    ("top_left", "top_right", "bottom_right", "bottom_left"),
    ((0, 1), (1, 2), (2, 3), (3, 0)),
)
"""A person's bounding box, by corners and sides. Other four-joint skeletons are not boxes."""

BUILT_IN = {skeleton.name: skeleton for skeleton in (COCO17, STEP18)}


def of_size(V: int) -> Skeleton:
    """The built-in skeleton with V joints, or V joints without names or bones."""
    for skeleton in BUILT_IN.values():
        if skeleton.V == V:
            return skeleton
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


def convert(joints: NDArray[Float], source: Skeleton, target: Skeleton) -> NDArray[Float]:
    """Convert values per joint, `(n, V, …)`, from one skeleton to another.

    COCO-17 becomes the paper's 18 joints, with the neck as the mean of both shoulders.
    """
    if source.joints == target.joints:
        return joints
    if (source, target) != (COCO17, STEP18):
        raise DataError(
            f"expected poses of skeleton {target.name} (V = {target.V}), "
            f"got {source.name} (V = {source.V})",
            hint="score a model on the skeleton it was fitted on",
        )
    converted = joints.take(STEP18_OF_COCO17, axis=1, mode="clip")  # "raise" takes twice as long
    converted[:, NECK] = (joints[:, LEFT_SHOULDER] + joints[:, RIGHT_SHOULDER]) / 2
    return converted


def restore(joints: NDArray[Float], source: Skeleton, target: Skeleton) -> NDArray[Float]:
    """Undo `convert` for joint positions `(n, V, …)`: drop the neck."""
    if source.joints == target.joints:
        return joints
    return joints[:, [target.joints.index(joint) for joint in source.joints]]


def give_back(
    shares: NDArray[np.float64], source: Skeleton, target: Skeleton
) -> NDArray[np.float64]:
    """Map shares of a total, `(n, V, …)`, from the joints that `convert` returns back to its input.

    The neck's share is split between the shoulders it is the mean of, so the total is unchanged.
    """
    restored = restore(shares, source, target)
    if source.joints != target.joints:
        half = shares[:, target.joints.index("neck")] / 2
        restored[:, LEFT_SHOULDER] += half
        restored[:, RIGHT_SHOULDER] += half
    return restored
