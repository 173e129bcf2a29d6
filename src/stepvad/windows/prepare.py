"""Prepare poses for a model: its joints, none missing, confidences in [0, 1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Missing
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Body, body_of
from stepvad.windows.values import Repairs


def prepare(
    keypoints: NDArray[np.float32],
    confidence: NDArray[np.float32],
    source: Skeleton,
    target: Skeleton,
    missing: Missing = "body",
) -> tuple[NDArray[np.float32], NDArray[np.float32], Repairs]:
    """Convert poses to a model's skeleton: keypoints `(n, V, 2)` and mean confidence `(n,)`.

    A NaN confidence becomes 0, others are clipped to [0, 1]. A missing joint, at (0, 0) with
    confidence 0, is placed where a body has it whose other joints are where they were found, or at
    their mean (`middle`, and for skeletons without a known body).
    """
    counts = Repairs(poses=len(keypoints))
    if not (confidence.size and confidence.min() > 0 and confidence.max() <= 1):  # NaN is neither
        keypoints, confidence, counts = _mend(
            keypoints, confidence, body_of(source) if missing == "body" else None
        )
    converted = skeletons.convert(confidence, source, target).astype(np.float64)
    mean_confidence = np.ascontiguousarray(converted).mean(axis=1).astype(np.float32)
    return skeletons.convert(keypoints, source, target), mean_confidence, counts


def _mend(
    keypoints: NDArray[np.float32], confidence: NDArray[np.float32], body: Body | None
) -> tuple[NDArray[np.float32], NDArray[np.float32], Repairs]:
    """Clip confidences to [0, 1], place missing joints, and count these repairs."""
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
    if missing.any() and body is not None:
        keypoints = body.fill(keypoints, ~missing)
    elif missing.any():
        found = np.maximum((~missing).sum(axis=1, dtype=np.float32), 1)[:, None]
        middle = keypoints.sum(axis=1) / found  # missing joints add (0, 0)
        keypoints = np.where(missing[..., None], middle[:, None], keypoints)
    return keypoints, in_range, counts
