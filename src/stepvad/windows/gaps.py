"""The gap rule: a gap of at most T frames is filled, a longer one ends the run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PoseArrays = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Keypoints `(n, V, 2)` and mean confidence `(n,)`."""


def ends_run(missed: NDArray[np.int64], longest: int) -> NDArray[np.bool_]:
    """Whether a gap of this many missed frames is too long to fill."""
    return missed > longest


def fill_gaps(
    missed: NDArray[np.int64], poses: PoseArrays, earlier: PoseArrays
) -> tuple[NDArray[np.int64], NDArray[np.int64], PoseArrays]:
    """Insert the `missed (n,)` poses before each pose, interpolated linearly in time.

    `earlier` holds the pose before each gap, one for every `missed` above 0. Returns for each
    resulting pose the row of the pose it leads to, the frames from it to that pose, and the pose.
    """
    (keypoints, confidence), gap = poses, np.flatnonzero(missed)
    row = np.repeat(np.arange(len(missed)), missed + 1)
    ahead = np.cumsum(missed + 1)[row] - np.arange(len(row)) - 1
    keypoints, confidence = keypoints[row], confidence[row]
    new = np.flatnonzero(ahead)
    span = missed[row[new]] + 1
    share = ((span - ahead[new]) / span).astype(np.float32)
    from_keypoints, from_confidence = (np.repeat(one, missed[gap], axis=0) for one in earlier)
    keypoints[new] = from_keypoints + (keypoints[new] - from_keypoints) * share[:, None, None]
    confidence[new] = from_confidence + (confidence[new] - from_confidence) * share
    return row, ahead, (keypoints, confidence)
