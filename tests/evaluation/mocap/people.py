"""Hand-made motions in the manner of CMU's archive, for tests that need no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.evaluation.mocap.motions import FPS, JOINTS, METRES

Floats = NDArray[np.float64]

STANDING = {
    "Head": (0.0, 0.0, 1.52), "Neck1": (0.0, 0.0, 1.42), "Hips": (0.0, 0.0, 0.92),
    "LeftArm": (0.0, 0.18, 1.38), "LeftForeArm": (0.0, 0.2, 1.1), "LeftHand": (0.05, 0.2, 0.88),
    "LeftUpLeg": (0.0, 0.09, 0.9), "LeftLeg": (0.0, 0.09, 0.49), "LeftFoot": (0.0, 0.09, 0.08),
}  # fmt: skip
"""Joints in metres: ahead, to the left, up; the right side mirrors the left."""


def standing(n: int = 90) -> Floats:
    """Somebody who stands and faces along +x, `(n, 15, 3)`."""
    pose = np.empty((len(JOINTS), 3))
    for number, name in enumerate(JOINTS):
        if name.startswith("Right"):
            pose[number] = np.array(STANDING[name.replace("Right", "Left")]) * (1, -1, 1)
        else:
            pose[number] = STANDING[name]
    return np.repeat(pose[None], n, axis=0)


def index(name: str) -> int:
    return JOINTS.index(name)


def walking(n: int = 150, speed: float = 1.2, phase: float = 0.0) -> Floats:
    """Somebody who walks along +x, the feet in turn ahead and behind."""
    joints, t = standing(n), np.arange(n) / FPS
    swing = np.sin(2 * np.pi * 0.9 * t + phase)
    for side, sign in (("Left", 1), ("Right", -1)):
        joints[:, index(f"{side}Leg"), 0] += 0.12 * sign * swing
        joints[:, index(f"{side}Foot"), 0] += 0.28 * sign * swing
        joints[:, index(f"{side}Hand"), 0] -= 0.12 * sign * swing
    joints[..., 0] += (speed * t)[:, None]
    return joints


def jumping(n: int = 150, at: int = 75, height: float = 0.4) -> Floats:
    """Somebody who stands, is in the air about frame `at`, and stands again."""
    joints, t = standing(n), (np.arange(n) - at) / FPS
    flight = np.maximum(height - 0.5 * 9.81 * t**2, 0)
    joints[..., 2] += flight[:, None]
    return joints


def lying_down(n: int = 150, at: int = 75) -> Floats:
    """Somebody who stands, and from frame `at` on lies on the floor within half a second."""
    joints = standing(n)
    angle = np.pi / 2 * np.clip((np.arange(n) - at) / (0.5 * FPS), 0, 1)[:, None]
    x, z = joints[..., 0].copy(), joints[..., 2].copy()
    joints[..., 0] = x * np.cos(angle) + z * np.sin(angle)
    joints[..., 2] = np.maximum(z * np.cos(angle) - x * np.sin(angle), 0) + 0.08 * np.sin(angle)
    return joints


def punching(n: int = 150, at: int = 75) -> Floats:
    """Somebody who stands and strikes ahead with the right hand at frame `at`."""
    joints, t = standing(n), (np.arange(n) - at) / FPS
    reach = 0.6 * np.exp(-((t / 0.1) ** 2))
    joints[:, index("RightHand"), 0] += reach
    joints[:, index("RightHand"), 2] += reach / 2
    return joints


def archived(joints: Floats, floor_m: float = 0.0) -> NDArray[np.float16]:
    """Joints as the archive stores them: y up, in CMU's units, on a floor at some height."""
    x, y, z = np.moveaxis(joints, -1, 0)
    return (np.stack([x, z + floor_m, -y], axis=-1) / METRES).astype(np.float16)


def motions() -> dict[str, Floats]:
    """Motions under names of the lists, for both halves and for validation."""
    found = {}
    for number, name in enumerate(("16_11", "35_01", "14_24", "69_01", "15_01", "141_19")):
        found[name] = walking(240, 0.9 + 0.1 * number, phase=number)
    for name in ("16_01", "118_01", "131_03"):
        found[name] = jumping()
    for name in ("111_12", "114_11"):
        found[name] = lying_down()
    for name in ("02_05", "17_10", "141_14"):
        found[name] = punching()
    for name in ("35_17", "09_01", "38_03"):
        found[name] = walking(45, 3.5)
    return found


def write_archive(path: Path) -> Path:
    """An archive with the motions above."""
    found = motions()
    np.savez_compressed(
        path,
        xyz=np.concatenate([archived(j, 0.1 * k) for k, j in enumerate(found.values())]),
        lengths=np.array([len(joints) for joints in found.values()]),
        names=np.array(list(found)),
        labels=np.array([""] * len(found)),
        joints=np.array(JOINTS),
    )
    return path
