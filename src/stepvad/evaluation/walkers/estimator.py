"""Simulated pose estimator: confidence, errors that depend on it, missed detections."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.evaluation.walkers.motion import FPS, Floats, WalkerMotion
from stepvad.evaluation.walkers.noise import drift
from stepvad.skeletons import COCO17

LOW = COCO17.joints.index("left_hip")
"""First joint hidden by an obstacle that covers the legs."""


def confidence_of(rng: np.random.Generator, motion: WalkerMotion) -> Floats:
    """Confidence `(n, 17)`: lower on the far side, for a face turned away, and behind obstacles."""
    n, n_joints = len(motion.heading), COCO17.V
    to_camera = np.arctan2(-motion.position[:, 1], -motion.position[:, 0])
    view = motion.heading - to_camera  # 0: facing the camera
    hidden = np.zeros((n, n_joints))
    for joint, name in enumerate(COCO17.joints):
        side = 1 if name.startswith("left") else -1 if name.startswith("right") else 0
        hidden[:, joint] = np.maximum(side * np.sin(view), 0) * 0.2
        if name.endswith(("nose", "eye")):
            hidden[:, joint] += np.maximum(-np.cos(view), 0) * 0.4
    confidence = 0.93 - hidden + 0.04 * drift(rng, n, n_joints, 8)
    for _ in range(rng.poisson(n / (8 * FPS))):  # about one obstacle per eight seconds
        start, length = rng.integers(n), round(rng.uniform(0.2, 1.0) * FPS)
        first_joint = rng.choice([0, LOW])  # the whole body, or the legs
        confidence[start : start + length, first_joint:] *= rng.uniform(0.1, 0.5)
    return np.clip(confidence, 0.02, 0.99)


def error(rng: np.random.Generator, confidence: Floats, scale: Floats) -> Floats:
    """Keypoint errors `(n, 17, 2)` in pixels, larger for lower confidence."""
    course = [drift(rng, len(confidence), COCO17.V, 3) for _ in range(2)]
    return (0.13 * scale * (1 - confidence))[..., None] * np.stack(course, axis=-1)


def missed(rng: np.random.Generator, confidence: Floats) -> NDArray[np.bool_]:
    """Mask `(n,)` of missed frames: one in a hundred, one in ten behind an obstacle."""
    return rng.random(len(confidence)) < np.where(confidence.mean(axis=1) < 0.5, 0.1, 0.01)
