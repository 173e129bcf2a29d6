"""Body parts: the joints of arms, legs, head and torso."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.skeletons import Skeleton

WORDS: Mapping[str, frozenset[str]] = {
    "head": frozenset({"head", "face", "nose", "eye", "ear", "mouth"}),
    "torso": frozenset({"neck", "shoulder", "hip"}),
    "leg": frozenset({"knee", "ankle", "heel", "toe", "foot"}),
    "arm": frozenset({"elbow", "wrist", "hand", "thumb", "index", "pinky", "finger", "forefinger"}),
}
"""Words in the names of joints, by part; the first that fits decides.

Shoulders and hips, where arms and legs begin, belong to the torso.
"""
ORDER = ("head", "torso", "left arm", "right arm", "left leg", "right leg")
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


def part_of(joint: str) -> str:
    """The part of the body that a joint belongs to by its name, or the name in words.

    >>> part_of("left_elbow"), part_of("right_big_toe"), part_of("tail_tip")
    ('left arm', 'right leg', 'tail tip')
    """
    words = joint.split("_")
    part = next((part for part, known in WORDS.items() if known & {*words}), None)
    if part in ("leg", "arm"):
        side = next((side for side in ("left", "right") if side in words), None)
        part = part and side and f"{side} {part}"
    return part or " ".join(words)


def parts_of(skeleton: Skeleton) -> dict[str, list[int]]:
    """Joint numbers by part; a joint outside all parts is a part of its own."""
    parts: dict[str, list[int]] = {name: [] for name in ORDER}
    for number, joint in enumerate(skeleton.joints):
        parts.setdefault(part_of(joint), []).append(number)
    return {name: numbers for name, numbers in parts.items() if numbers}


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
