"""Prepare poses for a model: its joints, none missing, confidences in [0, 1]."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Config
from stepvad.skeletons import Skeleton
from stepvad.windows.body import body_of
from stepvad.windows.noise import noise_at
from stepvad.windows.values import Repairs


def prepare(
    keypoints: NDArray[np.float32],
    confidence: NDArray[np.float32],
    source: Skeleton,
    target: Skeleton,
    config: Config = Config(),
) -> tuple[NDArray[np.float32], NDArray[np.float32], Repairs]:
    """Convert poses to a model's skeleton: keypoints `(n, V, 2)` and mean confidence `(n,)`.

    A NaN confidence becomes 0, others are clipped to [0, 1]. A missing joint, at (0, 0) with
    confidence 0, is placed where a body has it whose other joints are where they were found, or at
    their mean (`middle`, and for skeletons without a known body). Where the settings know the noise
    of joints by confidence, unsure ones move towards where the body has them.
    """
    if keypoints.size and keypoints.max() <= 1:
        _warn_of_fractions(keypoints)
    part = skeletons.part_for(source, target)
    keypoints, confidence = (
        skeletons.convert(values, source, part) for values in (keypoints, confidence)
    )
    counts, found = Repairs(poses=len(keypoints)), None
    if not (confidence.size and confidence.min() > 0 and confidence.max() <= 1):  # NaN is neither
        confidence, found, counts = _checked(keypoints, confidence)
    body = body_of(part) if config.missing == "body" else None
    if body is not None and (config.noise or found is not None):
        variance = noise_at(confidence, config.noise)
        variance = variance if found is None else np.where(found, variance, np.inf)
        keypoints = body.settle(keypoints, variance)
    elif found is not None:
        keypoints = _in_the_middle(keypoints, found)
    converted = skeletons.convert(confidence, part, target).astype(np.float64)
    mean_confidence = np.ascontiguousarray(converted).mean(axis=1).astype(np.float32)
    return skeletons.convert(keypoints, part, target), mean_confidence, counts


def _warn_of_fractions(keypoints: NDArray[np.float32]) -> None:
    """Warn, once for each caller, of coordinates that look like fractions of the image."""
    if keypoints.min() >= 0 and np.ptp(keypoints) > 0:
        warnings.warn(
            "expected coordinates in pixels, got all of them within 0 to 1; multiply x by the "
            "width and y by the height of the image",
            stacklevel=3,
        )


def _checked(
    keypoints: NDArray[np.float32], confidence: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None, Repairs]:
    """Confidences in [0, 1]; which joints were found, None if all were; counts of repairs."""
    nan = np.isnan(confidence)
    in_range = np.clip(np.where(nan, np.float32(0), confidence), np.float32(0), np.float32(1))
    in_range += np.float32(0)  # -0 becomes 0
    missing = (keypoints == 0).all(axis=-1) & (in_range == 0)
    counts = Repairs(
        poses=len(keypoints),
        nan_confidences=int(nan.sum()),
        clipped_confidences=int((in_range != confidence)[~nan].sum()),
        missing_joints=int(missing.sum()),
    )
    return in_range, ~missing if missing.any() else None, counts


def _in_the_middle(keypoints: NDArray[np.float32], found: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Poses whose missing joints, at (0, 0), are at the mean of the others."""
    n_found = np.maximum(found.sum(axis=1, dtype=np.float32), 1)[:, None]
    middle = keypoints.sum(axis=1) / n_found  # missing joints add (0, 0)
    return np.where(found[..., None], keypoints, middle[:, None])
