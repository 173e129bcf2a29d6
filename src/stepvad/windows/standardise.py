"""Each window is centred and scaled by its own spread (Sec. 4.1), and put back in place."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config

STGNF_SIZE = (856.0, 480.0)
"""What profile `stgnf` divides x and y by, whatever the video's size."""
AT_ONCE = 128
"""Windows standardised at once: they fit the caches."""
ROUNDING = float(np.finfo(np.float32).eps)
"""A spread below this share of the coordinates themselves is their rounding, not motion."""


def standardise(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Windows `(N, 2, V, T)`, centred, both axes divided by the spread of y; and which were flat.

    A spread below `spread_floor` of the spread of x counts as that much; a window without any
    spread stays at zero. Each window is computed alone, so a batch gives the same bits.
    """
    standardised, flat = np.empty(x.shape, np.float32), np.empty(len(x), np.bool_)
    for first in range(0, len(x), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        rows, _, scale, flat[part] = _centred(x[part], config)
        rows /= scale[:, None, None]
        rows += 0.0  # -0 becomes 0, so that equal windows are equal bits
        standardised[part] = rows.reshape(x[part].shape)
    return standardised, flat


def place(
    x: NDArray[np.float32], keypoints: NDArray[np.float32], config: Config
) -> NDArray[np.float32]:
    """Standardised windows `(N, 2, V, T)` in pixels `(N, T, V, 2)`.

    They go where, and get as large as, the windows of `keypoints (N, T, V, 2)` are: with these very
    windows it undoes `standardise`.
    """
    _, mean, scale, _ = _centred(keypoints.transpose(0, 3, 2, 1), config)
    rows = x.reshape(len(x), 2, -1) * scale[:, None, None] + mean
    if config.profile == "stgnf":
        rows = rows * np.reshape(STGNF_SIZE, (2, 1))
    return rows.reshape(x.shape).transpose(0, 3, 2, 1).astype(np.float32)


def _centred(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Windows about their mean `(N, 2, V T)`, the mean `(N, 2, 1)`, their scale, who is flat."""
    N, size = len(x), STGNF_SIZE if config.profile == "stgnf" else (1.0, 1.0)
    rows = np.array(x, dtype=np.float64, order="C").reshape(N, 2, x.shape[2] * x.shape[3])
    if config.profile == "stgnf":
        rows /= np.reshape(size, (2, 1))
    mean = rows.mean(axis=2, keepdims=True)  # sums run along the last, dense axis
    rows -= mean
    spread = np.sqrt(np.square(rows).mean(axis=2))  # (N, 2)
    # the largest coordinate is within √n spreads of the mean: few windows need a closer look
    still = spread <= 1.01 * ROUNDING * (np.abs(mean[..., 0]) + np.sqrt(rows.shape[2]) * spread)
    if still.any():
        still &= spread <= ROUNDING * (np.abs(x).max(axis=(2, 3)).astype(np.float64) / size)
        rows[still], spread[still] = 0, 0
    spread_x, spread_y = spread.T
    floor = config.spread_floor * spread_x
    flat = spread_y <= floor
    scale = np.where(flat, floor, spread_y)
    scale[scale == 0] = 1.0
    return rows, mean, scale, flat
