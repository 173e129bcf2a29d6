"""Simulated pose estimator: confidence, jitter and missed detections.

Constants are fitted to the 77,533 training poses of PoseLift that have a confidence: the histogram
of keypoint confidence, its correlation from frame to frame, and the unsteadiness of keypoints.
"""

from __future__ import annotations

import numpy as np
from scipy import signal, special

from studies.mocap.motions import Float64s
from studies.mocap.truth import Mask

CONFIDENCE_QUANTILES = (
    0.0, 0.095, 0.211, 0.318, 0.405, 0.482, 0.548, 0.602, 0.646, 0.681, 0.709,
    0.733, 0.756, 0.778, 0.798, 0.816, 0.834, 0.852, 0.871, 0.897, 0.98,
)  # fmt: skip
"""Quantiles of PoseLift's keypoint confidence at 0, 5, …, 100 %; the few above 1 count as 0.98."""
JOINT_MEANS = (
    0.645, 0.609, 0.644, 0.689, 0.705, 0.714, 0.719, 0.638, 0.679, 0.544, 0.587, 0.598, 0.601,
    0.588, 0.590, 0.542, 0.546,
)  # fmt: skip
"""PoseLift's mean confidence of each COCO-17 joint."""
FACE_JOINTS = 5
"""Number of leading COCO-17 joints on the face: nose, eyes and ears."""
TRACK_SD, JOINT_SD, POSE_SD, REST_SD, FLICKER_SD = 0.66, 0.36, 0.40, 0.40, 0.16
"""Spread of the normal score of confidence: between people, between joints, of the whole pose and
of a joint over time, and from one frame to the next."""
POSE_MEMORY_S, REST_MEMORY_S = 1.6, 0.5
"""Correlation times of the pose's and a joint's own part of the confidence."""
CENTRE = 0.22
"""Normal score of a visible joint."""
HIDDEN, HIDDEN_FACE = 1.5, 0.9
"""Loss of normal score for a hidden joint, and for one of the face, which estimators guess from
the head."""
SMALL_PX, SMALL = 220.0, 0.45
"""Average height of a person in the image, and the loss of normal score at half of it."""

JITTER_FLOOR, JITTER = 0.006, 0.075
"""Keypoint error σ = floor + jitter * (1 - confidence)³, in heights of the person."""
JITTER_MEMORY_S = 0.05
"""Correlation time of the error."""

GAP_RATE_S = 0.02
"""Gaps in detection per second without a visible cause."""
GAP_S = 0.5
"""Mean length of a gap."""
LOST_BELOW = 0.22
"""A pose with a lower mean confidence is not detected."""


def confidence(
    rng: np.random.Generator, hidden: Mask, height_px: Float64s, *, fps: float
) -> Float64s:
    """Confidence `(n, 17)` of joints, given which are hidden and the person's height in pixels."""
    n, n_joints = hidden.shape
    loss = np.where(np.arange(n_joints) < FACE_JOINTS, HIDDEN_FACE, HIDDEN)
    softly = _decay(hidden.astype(np.float64), 0.1, fps)  # occlusion starts and ends gradually
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
    rng: np.random.Generator, confidence: Float64s, height_px: Float64s, *, fps: float
) -> Float64s:
    """Keypoint errors `(n, 17, 2)` in pixels, larger for lower confidence."""
    n, n_joints = confidence.shape
    noise = _memory(rng, n, 2 * n_joints, JITTER_MEMORY_S * fps).reshape(n, n_joints, 2)
    spread = JITTER_FLOOR + JITTER * (1 - confidence) ** 3
    return noise * (spread * height_px[:, None])[..., None]


def missed(rng: np.random.Generator, confidence: Float64s, *, fps: float) -> Mask:
    """Mask `(n,)` of frames without a detection: at low confidence, and occasionally elsewhere."""
    n = len(confidence)
    lost = confidence.mean(axis=1) < LOST_BELOW
    for start in np.flatnonzero(rng.random(n) < GAP_RATE_S / fps):
        length = 1 + rng.geometric(1 / (GAP_S * fps))
        lost[start : start + length] = True
    return lost


def _quantile(score: Float64s) -> Float64s:
    """Map a normal score to the confidence at the same quantile of PoseLift's distribution."""
    share = special.ndtr(score)
    levels = np.linspace(0, 1, len(CONFIDENCE_QUANTILES))
    return np.interp(share, levels, CONFIDENCE_QUANTILES)


def _normal_score(confidence: Float64s) -> Float64s:
    """The normal score of a confidence, the inverse of `_quantile`."""
    levels = np.linspace(0, 1, len(CONFIDENCE_QUANTILES))
    return special.ndtri(np.interp(confidence, CONFIDENCE_QUANTILES, levels))


def _memory(rng: np.random.Generator, n: int, columns: int, frames: float) -> Float64s:
    """Noise `(n, columns)` of unit variance whose correlation falls to 1/e in `frames` frames."""
    keep = np.exp(-1 / frames)
    noise = rng.standard_normal((n, columns))
    noise[1:] *= np.sqrt(1 - keep**2)
    return signal.lfilter([1.0], [1.0, -keep], noise, axis=0)


def _decay(values: Float64s, seconds: float, fps: float) -> Float64s:
    """Smooth values `(n, …)` forwards and backwards over a short time."""
    width = 2 * round(seconds * fps) + 1
    total = np.cumsum(np.pad(values, ((width // 2 + 1, width // 2), (0, 0)), mode="edge"), axis=0)
    return (total[width:] - total[:-width]) / width
