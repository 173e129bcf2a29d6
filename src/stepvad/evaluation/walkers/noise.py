"""Correlated noise for people and pose estimators."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def drift(rng: np.random.Generator, n: int, columns: int, width: int) -> NDArray[np.float64]:
    """Noise `(n, columns)` of unit variance that decorrelates within `width` frames."""
    total = np.cumsum(rng.standard_normal((n + width, columns)), axis=0)
    return (total[width:] - total[:-width]) / np.sqrt(width)


def moving_mean(values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """Mean over `width` frames around each frame, with the ends repeated."""
    padded = np.pad(values, (width // 2, width - 1 - width // 2), mode="edge")
    return np.convolve(padded, np.full(width, 1 / width), mode="valid")
