"""Body parts: the joints of arms, legs, head and torso."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.skeletons import Skeleton

BODY: Mapping[str, tuple[str, ...]] = {
    "head": ("nose", "left_eye", "right_eye", "left_ear", "right_ear"),
    "torso": ("neck", "left_shoulder", "right_shoulder", "left_hip", "right_hip"),
    "left arm": ("left_elbow", "left_wrist"),
    "right arm": ("right_elbow", "right_wrist"),
    "left leg": ("left_knee", "left_ankle"),
    "right leg": ("right_knee", "right_ankle"),
}
"""Joints by part; shoulders and hips, where arms and legs begin, belong to the torso."""
LIMBS: Mapping[str, tuple[str, str]] = {
    "left arm": ("left_shoulder", "left_wrist"),
    "right arm": ("right_shoulder", "right_wrist"),
    "left leg": ("left_hip", "left_ankle"),
    "right leg": ("right_hip", "right_ankle"),
}
"""First and last joint of each limb."""


@dataclass(frozen=True, slots=True)
class BodyPart:
    """The contribution of a part of the body to a score, and the frames with most of it.

    With several views also that of what motion and place mean, such as the speed.
    """

    name: str
    contribution: float
    share: float
    """Fraction of all contributions that raise the score; 0 for a part that lowers it."""
    first_frame: int
    last_frame: int


def parts_of(skeleton: Skeleton) -> dict[str, list[int]]:
    """Joint numbers by part; a joint outside all parts is a part of its own."""
    parts = {
        name: [skeleton.joints.index(joint) for joint in joints if joint in skeleton.joints]
        for name, joints in BODY.items()
    }
    known = {number for numbers in parts.values() for number in numbers}
    alone = {
        joint.replace("_", " "): [number]
        for number, joint in enumerate(skeleton.joints)
        if number not in known
    }
    return {name: numbers for name, numbers in parts.items() if numbers} | alone


def rank(
    contributions: NDArray[np.float64],
    frames: NDArray[np.int64],
    skeleton: Skeleton,
    meanings: Mapping[str, float] | None = None,
) -> tuple[BodyPart, ...]:
    """Parts of the body by their contributions `(T, V)`, and `meanings`, the largest first."""
    over_time = {
        name: contributions[:, joints].sum(axis=1) for name, joints in parts_of(skeleton).items()
    }
    for name, total in (meanings or {}).items():
        over_time[name] = np.full(len(frames), total / len(frames))
    raising = sum(max(float(part.sum()), 0.0) for part in over_time.values())
    found = []
    for name, part in over_time.items():
        total = float(part.sum())
        share = max(total, 0.0) / raising if raising > 0 else 0.0
        first, last = strong_span(part)
        found.append(BodyPart(name, total, share, int(frames[first]), int(frames[last])))
    return tuple(sorted(found, key=lambda part: -part.contribution))


def strong_span(over_time: NDArray[np.float64]) -> tuple[int, int]:
    """First and last frame that contribute at least a third of the strongest one."""
    if over_time.max() <= 0:
        return 0, len(over_time) - 1
    strong = np.flatnonzero(over_time >= over_time.max() / 3)
    return int(strong[0]), int(strong[-1])
