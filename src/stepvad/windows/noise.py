"""How noisy joints are at each confidence, measured on tracks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from stepvad.poses import Track
from stepvad.windows.body import extent

BINS = 10
"""Ranges of confidence, of equal width."""
FEWEST = 200
"""Joints needed to measure the noise of a range; those with fewer take that of the next surer."""
MEDIAN = 0.4549
"""Median of the square of a standard normal variable."""


def noise_at(confidence: NDArray[np.float32], noise: Sequence[float]) -> NDArray[np.float64]:
    """The variance of joints of these confidences; `noise` holds their spread in each range."""
    if not noise:
        return np.zeros(confidence.shape)
    at = np.minimum((confidence * len(noise)).astype(np.int64), len(noise) - 1)
    return np.asarray(np.square(np.array(noise, np.float64))[at])


def measure_noise(tracks: Iterable[Track]) -> tuple[float, ...]:
    """The spread of joints in each range of confidence, relative to the extent of the pose.

    A joint that was found is compared with the mean of itself a frame before and after. What the
    surest joints deviate is taken for motion; the rest is noise, never less for a lower confidence.
    """
    sure, square = [np.empty(0)], [np.empty(0)]
    for track in tracks:
        around = np.flatnonzero(np.diff(track.frames[:-1]) + np.diff(track.frames[1:]) == 2) + 1
        if len(around):
            x = track.keypoints.astype(np.float64)
            off = x[around] - (x[around - 1] + x[around + 1]) / 2
            there = (track.keypoints != 0).any(axis=2)
            size = extent(track.keypoints[around], np.ones_like(off, np.bool_)[..., :1])[1]
            thrice = there[around] & there[around - 1] & there[around + 1]
            square.append((np.square(off / size).mean(axis=2) / 1.5)[thrice])
            sure.append(np.nan_to_num(track.confidence[around].astype(np.float64))[thrice])
    return _by_confidence(np.concatenate(sure), np.concatenate(square))


def _by_confidence(
    confidence: NDArray[np.float64], square: NDArray[np.float64]
) -> tuple[float, ...]:
    """Typical deviations in each range, less those of the surest joints."""
    at = np.minimum((np.clip(confidence, 0, 1) * BINS).astype(np.int64), BINS - 1)
    spread: list[float] = [0.0]
    surest: float | None = None
    for number in range(BINS - 1, -1, -1):
        own = square[at == number]
        if len(own) >= FEWEST:
            variance = float(np.median(own)) / MEDIAN
            surest = variance if surest is None else surest
            spread.append(max(float(np.sqrt(max(variance - surest, 0.0))), spread[-1]))
        else:
            spread.append(spread[-1])
    return tuple(round(one, 5) for one in spread[:0:-1])
