"""Normal windows with one limb moved abnormally, to test whether explanations find the limb."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad.explain.words import LIMBS, parts_of
from stepvad.skeletons import Skeleton

LimbChange = Literal["raised", "shaken", "displaced"]
KINDS: tuple[LimbChange, ...] = get_args(LimbChange)
RAISED_DEGREES = (70.0, 170.0)
"""Rotation of a limb about its root, in either direction."""
SHAKEN = (0.2, 0.4)
"""Amplitude of shaking at the end of a limb, in body heights; half of it at the middle joint."""
PERIOD = (6.0, 14.0)
"""Frames per shake."""
DISPLACED = (0.25, 0.6)
"""Displacement of a limb, in body heights."""


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """A window's keypoints `(T, V, 2)` in pixels after one limb was moved."""

    keypoints: NDArray[np.float32]
    limb: str
    kind: LimbChange


def move_limb(
    keypoints: NDArray[np.float32], skeleton: Skeleton, rng: np.random.Generator
) -> Moved:
    """A window `(T, V, 2)` with a random limb moved in a random way; the others stay."""
    limb, kind = str(rng.choice([*LIMBS])), KINDS[rng.integers(len(KINDS))]
    joints = parts_of(skeleton)[limb]
    root = keypoints[:, [skeleton.joints.index(LIMBS[limb][0])]]
    height = float(np.median(np.ptp(keypoints[..., 1], axis=1)))
    angle = rng.uniform(0, 2 * np.pi)
    direction = height * np.array([np.cos(angle), np.sin(angle)])
    moved = keypoints.astype(np.float64)
    match kind:
        case "raised":
            turn = np.radians(rng.uniform(*RAISED_DEGREES)) * rng.choice([-1, 1])
            rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
            moved[:, joints] = root + (moved[:, joints] - root) @ rotation
        case "shaken":
            phase = 2 * np.pi * (np.arange(len(moved)) / rng.uniform(*PERIOD) + rng.uniform())
            reach = rng.uniform(*SHAKEN) * np.array([0.5, 1.0])  # elbow or knee, then the end
            moved[:, joints] += np.sin(phase)[:, None, None] * reach[:, None] * direction
        case "displaced":
            moved[:, joints] += rng.uniform(*DISPLACED) * direction
    return Moved(moved.astype(np.float32), limb, kind)
