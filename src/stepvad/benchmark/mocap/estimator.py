"""What a pose estimator would make of a person: confidence, jitter and missed detections.

Constants are fitted to the 77,533 training poses of PoseLift that have a confidence: the histogram
of its keypoint confidence, its correlation from frame to frame, and how unsteady keypoints are.
"""

from __future__ import annotations

import numpy as np
from scipy import signal, special

from stepvad.benchmark.mocap.motions import Floats
from stepvad.benchmark.mocap.truth import Mask

CONFIDENCE_QUANTILES = (
    0.0, 0.095, 0.211, 0.318, 0.405, 0.482, 0.548, 0.602, 0.646, 0.681, 0.709,
    0.733, 0.756, 0.778, 0.798, 0.816, 0.834, 0.852, 0.871, 0.897, 0.98,
)  # fmt: skip
"""PoseLift's keypoint confidence at 0, 5, …, 100 %; the few above 1 are taken for 0.98."""
JOINT_MEANS = (
    0.645, 0.609, 0.644, 0.689, 0.705, 0.714, 0.719, 0.638, 0.679, 0.544, 0.587, 0.598, 0.601,
    0.588, 0.590, 0.542, 0.546,
)  # fmt: skip
"""PoseLift's mean confidence of each COCO-17 joint."""
FACE_JOINTS = 5
"""COCO-17 begins with nose, eyes and ears."""
TRACK_SD, JOINT_SD, POSE_SD, REST_SD, FLICKER_SD = 0.66, 0.36, 0.40, 0.40, 0.16
"""Spread of the normal score of confidence: between people, between joints, of the whole pose and
of a joint over time, and from one frame to the next."""
POSE_MEMORY_S, REST_MEMORY_S = 1.6, 0.5
"""How long the pose's and a joint's own part of the confidence last."""
CENTRE = 0.22
"""Normal score of a joint that nothing hides."""
HIDDEN, HIDDEN_FACE = 1.5, 0.9
"""How much of the normal score a hidden joint loses, and one of the face, which estimators guess
from the head."""
SMALL_PX, SMALL = 220.0, 0.45
"""A person of this height in the picture is average; half of it costs this much."""

JITTER_FLOOR, JITTER = 0.006, 0.075
"""Keypoints err by σ = floor + jitter * (1 - confidence)³, in heights of the person."""
JITTER_MEMORY_S = 0.05
"""How long an error lasts."""

GAP_RATE_S = 0.02
"""Detections stop this often in a second, for no reason seen in the picture."""
GAP_S = 0.5
"""How long they stop, on average."""
LOST_BELOW = 0.22
"""A pose with a lower mean confidence is not detected."""


def confidence(rng: np.random.Generator, hidden: Mask, height_px: Floats, *, fps: float) -> Floats:
    """Confidence `(n, 17)` of joints, given which are hidden and how tall the person appears."""
    n, n_joints = hidden.shape
    loss = np.where(np.arange(n_joints) < FACE_JOINTS, HIDDEN_FACE, HIDDEN)
    softly = _decay(hidden.astype(np.float64), 0.1, fps)  # things come and go by and by
    score = CENTRE + TRACK_SD * rng.standard_normal() - loss * softly
    score = score + JOINT_SD * rng.standard_normal(n_joints)
    usual = _normal_score(np.array(JOINT_MEANS))
    score = score + usual - usual.mean()
    score = score + SMALL * np.log2(np.clip(height_px, 40, 800) / SMALL_PX)[:, None]
    score = score + POSE_SD * _memory(rng, n, 1, POSE_MEMORY_S * fps)
    score = score + REST_SD * _memory(rng, n, n_joints, REST_MEMORY_S * fps)
    score = score + FLICKER_SD * rng.standard_normal((n, n_joints))
    return _quantile(score)


def jitter(
    rng: np.random.Generator, confidence: Floats, height_px: Floats, *, fps: float
) -> Floats:
    """How far keypoints are off, `(n, 17, 2)` in pixels: the less confident, the further."""
    n, n_joints = confidence.shape
    noise = _memory(rng, n, 2 * n_joints, JITTER_MEMORY_S * fps).reshape(n, n_joints, 2)
    spread = JITTER_FLOOR + JITTER * (1 - confidence) ** 3
    return noise * (spread * height_px[:, None])[..., None]


def missed(rng: np.random.Generator, confidence: Floats, *, fps: float) -> Mask:
    """Frames without a detection, `(n,)`: where confidence is low, and now and then elsewhere."""
    n = len(confidence)
    lost = confidence.mean(axis=1) < LOST_BELOW
    for start in np.flatnonzero(rng.random(n) < GAP_RATE_S / fps):
        length = 1 + rng.geometric(1 / (GAP_S * fps))
        lost[start : start + length] = True
    return lost


def _quantile(score: Floats) -> Floats:
    """Confidence whose share among PoseLift's is that of the normal score."""
    share = special.ndtr(score)
    levels = np.linspace(0, 1, len(CONFIDENCE_QUANTILES))
    return np.interp(share, levels, CONFIDENCE_QUANTILES)


def _normal_score(confidence: Floats) -> Floats:
    """The normal score of a confidence, the inverse of `_quantile`."""
    levels = np.linspace(0, 1, len(CONFIDENCE_QUANTILES))
    return special.ndtri(np.interp(confidence, CONFIDENCE_QUANTILES, levels))


def _memory(rng: np.random.Generator, n: int, columns: int, frames: float) -> Floats:
    """Noise `(n, columns)` of unit variance whose correlation falls to 1/e in so many frames."""
    keep = np.exp(-1 / frames)
    noise = rng.standard_normal((n, columns))
    noise[1:] *= np.sqrt(1 - keep**2)
    return signal.lfilter([1.0], [1.0, -keep], noise, axis=0)


def _decay(values: Floats, seconds: float, fps: float) -> Floats:
    """Values `(n, …)` averaged forwards and backwards over a short time."""
    width = 2 * round(seconds * fps) + 1
    total = np.cumsum(np.pad(values, ((width // 2 + 1, width // 2), (0, 0)), mode="edge"), axis=0)
    return (total[width:] - total[:-width]) / width
