"""Joint angles of people who walk, stand, run, crouch, fight, fall or cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepvad.evaluation.walkers.motion import FPS, Floats, WalkerMotion
from stepvad.evaluation.walkers.noise import drift

TRUNK = 0.288
"""From hips to shoulders, in body heights; all lengths are typical shares of the body height."""
LEG = (0.245, 0.245)
"""Thigh and shank."""
ARM = (0.186, 0.146)
"""Upper arm and forearm."""
CRANK = (0.13, -0.36)
"""Centre of the circle of a cyclist's ankles, ahead of and above the hips."""
PEDAL = 0.10
"""Radius of that circle."""
HANDLEBAR = (0.40, 0.09)
"""Position of a cyclist's wrists, ahead of and above the hips."""

SPEEDS = (0.0, 1.3, 3.6)
"""Standing, walking and running, in m/s; the gait below is interpolated linearly."""
GAIT = {
    "cycles": (0.3, 0.93, 1.45),  # per second
    "hip": (1.0, 24.0, 42.0),  # swing to each side; this and all below in degrees
    "knee": (2.0, 55.0, 95.0),
    "knee_rest": (4.0, 8.0, 25.0),
    "shoulder": (2.0, 20.0, 42.0),
    "elbow": (2.0, 8.0, 15.0),
    "elbow_rest": (14.0, 20.0, 80.0),
    "lean": (1.0, 3.0, 12.0),
}
"""Cadence, and swing of the joints."""
LEFT_RIGHT = np.array([0.0, np.pi])
"""Phases of left and right: legs, arms and pedals are half a cycle apart."""


@dataclass(frozen=True, slots=True)
class Posture:
    """Angles in degrees: `lean (n,)` of the trunk, all others `(n, 2)`, left and right.

    Lean, thigh and arm are forward of the vertical; knees bend backwards, elbows forwards; `out`
    is the sideways angle of the arms.
    """

    lean: Floats
    thigh: Floats
    knee: Floats
    arm: Floats
    elbow: Floats
    out: Floats

    def towards(self, other: Posture, level: Floats) -> Posture:
        """A posture between this one (level 0) and another (level 1), frame by frame."""
        both = level[:, None]
        return Posture(
            self.lean + level * (other.lean - self.lean),
            self.thigh + both * (other.thigh - self.thigh),
            self.knee + both * (other.knee - self.knee),
            self.arm + both * (other.arm - self.arm),
            self.elbow + both * (other.elbow - self.elbow),
            self.out + both * (other.out - self.out),
        )


def of_motion(rng: np.random.Generator, motion: WalkerMotion) -> Posture:
    """The posture of a person in every frame."""
    usual = _gait(rng, motion)
    match motion.event:
        case "fall":
            return _crumpled(usual, motion.level)
        case "crouch":
            return usual.towards(_crouch(rng, usual), motion.level)
        case "fight":
            return usual.towards(_fight(rng, usual), motion.level)
        case "cycle":
            return _ride(rng, len(motion.level))
        case _:
            return usual


def _gait(rng: np.random.Generator, motion: WalkerMotion) -> Posture:
    """Posture of walking and running; backwards is walking played in reverse."""
    pace = np.abs(motion.speed)
    gait = {k: rng.normal(1, 0.08) * np.interp(pace, SPEEDS, v)[:, None] for k, v in GAIT.items()}
    cycles = np.where(motion.speed[:, None] < 0, -1, 1) * gait["cycles"]
    beat = rng.uniform(0, 2 * np.pi) + 2 * np.pi * np.cumsum(cycles, axis=0) / FPS + LEFT_RIGHT
    unrest = 2.0 * drift(rng, len(pace), 5, 25)
    return Posture(
        lean=gait["lean"][:, 0] + unrest[:, 4],
        thigh=gait["hip"] * (np.sin(beat) + 0.3),
        knee=gait["knee_rest"] + gait["knee"] * np.maximum(np.cos(beat + 0.2), 0) ** 1.5,
        arm=-gait["shoulder"] * np.sin(beat) + unrest[:, :2],
        elbow=gait["elbow_rest"] - gait["elbow"] * np.sin(beat) + unrest[:, 2:4],
        out=np.zeros_like(beat),
    )


def _crumpled(usual: Posture, fallen: Floats) -> Posture:
    """Posture during a fall: the knees buckle and the arms reach out."""
    crumple = 4 * fallen * (1 - fallen)
    return Posture(
        lean=usual.lean + 20 * crumple,
        thigh=usual.thigh + 30 * crumple[:, None],
        knee=usual.knee + 60 * crumple[:, None],
        arm=usual.arm + 50 * fallen[:, None],
        elbow=usual.elbow,
        out=30 * fallen[:, None] + usual.out,
    )


def _crouch(rng: np.random.Generator, usual: Posture) -> Posture:
    """Posture of crouching: hips almost on the heels, trunk forward, arms on the knees."""
    deep = rng.uniform(0.85, 1.0)
    return Posture(
        lean=30 + usual.lean,
        thigh=deep * np.array([90.0, 80.0]) + 0.3 * usual.thigh,
        knee=deep * np.array([128.0, 122.0]) + 0.3 * usual.knee,
        arm=30 + 0.3 * usual.arm,
        elbow=35 + 0.3 * usual.elbow,
        out=10 + usual.out,
    )


def _fight(rng: np.random.Generator, usual: Posture) -> Posture:
    """Posture of fighting: fists in front of the face, alternating punches."""
    n = len(usual.lean)
    pace = rng.uniform(1.2, 2.0) * (1 + 0.15 * drift(rng, n, 1, 10))
    beat = 2 * np.pi * np.cumsum(pace, axis=0) / FPS + LEFT_RIGHT
    blow = np.maximum(np.sin(beat), 0) ** 1.5
    return Posture(
        lean=6 + usual.lean,
        thigh=0.5 * usual.thigh + np.array([18.0, -12.0]),
        knee=15 + 0.5 * usual.knee,
        arm=45 + 60 * blow + 0.3 * usual.arm,
        elbow=120 - 110 * blow,
        out=35 - 25 * blow,
    )


def _ride(rng: np.random.Generator, n: int) -> Posture:
    """Posture of cycling: feet on the pedals, hands on the handlebar."""
    lean = rng.uniform(28, 36) + 1.5 * drift(rng, n, 1, 25)[:, 0]
    turns = rng.uniform(0.8, 1.4) * np.arange(1, n + 1) / FPS
    beat = rng.uniform(0, 2 * np.pi) + 2 * np.pi * turns[:, None] + LEFT_RIGHT
    ankle = np.stack([CRANK[0] + PEDAL * np.sin(beat), CRANK[1] + PEDAL * np.cos(beat)], axis=-1)
    shoulder = TRUNK * np.stack([np.sin(np.radians(lean)), np.cos(np.radians(lean))], axis=-1)
    thigh, knee = _reach(ankle, LEG, side=1)
    arm, elbow = _reach(HANDLEBAR - shoulder[:, None], ARM, side=-1)
    arm, elbow = np.repeat(arm, 2, axis=1), np.repeat(elbow, 2, axis=1)
    return Posture(lean, thigh, knee, arm, elbow, np.zeros_like(arm))


def _reach(
    target: Floats, lengths: tuple[float, float], *, side: Literal[1, -1]
) -> tuple[Floats, Floats]:
    """Angle of the upper of two bones and the bend between them that put their end at `target`.

    `target (…, 2)` is ahead of and above the root; the joint in between lies in front of the
    straight line (side 1, a knee) or behind it (-1, an elbow).
    """
    upper, lower = lengths
    distance = np.clip(np.linalg.norm(target, axis=-1), abs(upper - lower) + 1e-3, upper + lower)
    at_root = (upper**2 + distance**2 - lower**2) / (2 * upper * distance)
    at_joint = (upper**2 + lower**2 - distance**2) / (2 * upper * lower)
    line = np.arctan2(target[..., 0], -target[..., 1])
    inner, bend = np.arccos(np.clip([at_root, -at_joint], -1, 1))
    return np.degrees(line + side * inner), np.degrees(bend)
