"""World joints of a moving person, bone by bone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepvad.evaluation.walkers import posture
from stepvad.evaluation.walkers.motion import Floats, WalkerMotion
from stepvad.evaluation.walkers.posture import ARM, LEG, TRUNK, Posture
from stepvad.skeletons import COCO17

ANKLE_M = 0.06
"""Height of the ankle when the foot is on the ground."""
SADDLE = 0.55
"""Height of the hips on a bicycle, in body heights."""


@dataclass(frozen=True, slots=True)
class Person:
    """Constants of a person: their height, and the side to which they would fall."""

    height_m: float
    falls_toward: float

    @classmethod
    def of(cls, rng: np.random.Generator) -> Person:
        """A random person between 1.55 and 1.92 m."""
        return cls(rng.uniform(1.55, 1.92), rng.uniform(0, 2 * np.pi))


def joints(rng: np.random.Generator, motion: WalkerMotion) -> Floats:
    """COCO-17 joints in the world, `(n, 17, 3)` in metres.

    The lowest joint is on the ground; a cyclist sits on a saddle above it.
    """
    person = Person.of(rng)
    body = person.height_m * _about_the_hips(posture.of_motion(rng, motion))
    if motion.event == "cycle":
        body[..., 2] += SADDLE * person.height_m
    else:
        body[..., 2] -= body[..., 2].min(axis=1, keepdims=True) - ANKLE_M
    body = _topple(body, motion.level_of("fall"), toward=person.falls_toward)
    cos, sin = np.cos(motion.heading)[:, None], np.sin(motion.heading)[:, None]
    ahead, left, up = np.moveaxis(body, -1, 0)
    x = motion.position[:, :1] + cos * ahead - sin * left
    y = motion.position[:, 1:] + sin * ahead + cos * left
    return np.stack([x, y, up], axis=-1)


def _about_the_hips(pose: Posture) -> Floats:
    """Joints relative to the middle of the hips, `(n, 17, 3)` ahead, left, up, in body heights."""
    lean = np.radians(pose.lean)
    spine = np.stack([np.sin(lean), np.zeros_like(lean), np.cos(lean)], axis=1)
    brow = np.array([np.cos(0.1), 0, -np.sin(0.1)])
    found = {"nose": 0.40 * spine + 0.065 * brow}
    for number, (side, sign) in enumerate((("left", 1), ("right", -1))):
        across = np.array([0, sign, 0])
        hip = np.tile(0.055 * across, (len(lean), 1))
        shoulder = TRUNK * spine + 0.115 * across
        thigh, arm = pose.thigh[:, number], pose.arm[:, number]
        knee, ankle = _limb(hip, LEG, (thigh, thigh - pose.knee[:, number]))
        out = sign * pose.out[:, number]
        elbow, wrist = _limb(shoulder, ARM, (arm, arm + pose.elbow[:, number]), out)
        found[f"{side}_hip"], found[f"{side}_knee"], found[f"{side}_ankle"] = hip, knee, ankle
        found[f"{side}_shoulder"] = shoulder
        found[f"{side}_elbow"], found[f"{side}_wrist"] = elbow, wrist
        found[f"{side}_eye"] = 0.42 * spine + 0.05 * brow + 0.02 * across
        found[f"{side}_ear"] = 0.41 * spine + 0.045 * across
    return np.stack([found[name] for name in COCO17.joints], axis=1)


def _limb(
    root: Floats,
    lengths: tuple[float, float],
    angles: tuple[Floats, Floats],
    out: Floats | float = 0.0,
) -> tuple[Floats, Floats]:
    """Ends of two bones that hang from `root`, each at an angle forward of straight down.

    `out` is the angle of the upper bone to the left; the lower bone returns by half of it.
    """
    ends = []
    for length, angle, side in zip(lengths, np.radians(angles), (out, -0.5 * out), strict=True):
        cos, sin = np.cos(np.radians(side)), np.sin(np.radians(side))
        across = np.broadcast_to(sin, angle.shape)
        root = root + length * np.stack([cos * np.sin(angle), across, -cos * np.cos(angle)], axis=1)
        ends.append(root)
    return ends[0], ends[1]


def _topple(body: Floats, fallen: Floats, *, toward: float) -> Floats:
    """Rotate a body about its feet until it lies with its head in the direction `toward`."""
    angle = np.radians(88) * fallen[:, None]
    direction = np.array([np.cos(toward), np.sin(toward)])
    along, up = body[..., :2] @ direction, body[..., 2]
    moved = along * np.cos(angle) + up * np.sin(angle) - along
    height = np.maximum(up * np.cos(angle) - along * np.sin(angle), 0.0) + 0.1 * np.sin(angle)
    return np.concatenate([body[..., :2] + moved[..., None] * direction, height[..., None]], axis=2)
