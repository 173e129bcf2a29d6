"""Centre and scale each window by its own spread (Sec. 4.1), and map it back to pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config

AT_ONCE = 128
"""Windows standardised at once; they fit into the caches."""
ROUNDING = float(np.finfo(np.float32).eps)
"""A spread below this fraction of the coordinates is rounding error, not motion."""


def standardise(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Windows `(N, 2, V, T)`, centred, both axes divided by the spread of y; and which were flat.

    The divisor is at least `spread_floor` times the spread of x; a window without any spread
    becomes zero. Windows are computed independently, so any batching gives the same bits.
    """
    standardised, flat = np.empty(x.shape, np.float32), np.empty(len(x), np.bool_)
    for first in range(0, len(x), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        rows, mean, scale, flat[part] = _centred(x[part], config)
        if not mean.all():  # only -0 less a mean of 0 is -0
            rows += 0.0  # -0 becomes 0: equal windows have equal bits
        rows /= scale[:, None, None]
        standardised[part] = rows.reshape(x[part].shape)
    return standardised, flat


def place(
    x: NDArray[np.float32], keypoints: NDArray[np.float32], config: Config
) -> NDArray[np.float32]:
    """Map standardised windows `(N, 2, V, T)` to pixels `(N, T, V, 2)`.

    Position and scale are those of the windows `keypoints (N, T, V, 2)`; for the same windows this
    inverts `standardise`.
    """
    _, mean, scale, _ = _centred(keypoints.transpose(0, 3, 2, 1), config)
    rows = x.reshape(len(x), 2, -1) * scale[:, None, None] + mean
    return rows.reshape(x.shape).transpose(0, 3, 2, 1).astype(np.float32)


def _centred(
    x: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """Centred windows `(N, 2, V T)`, their mean `(N, 2, 1)`, their scale, and which are flat."""
    rows = np.array(x, dtype=np.float64, order="C").reshape(len(x), 2, x.shape[2] * x.shape[3])
    n = rows.shape[2]
    # sums run along the last, dense axis; the method `mean` takes as long again for small arrays
    mean = np.add.reduce(rows, axis=2, keepdims=True) / n
    rows -= mean
    spread = np.sqrt(np.add.reduce(np.square(rows), axis=2) / n)  # (N, 2)
    # the largest coordinate is within √n spreads of the mean: few windows need the exact check
    still = spread <= 1.01 * ROUNDING * (np.abs(mean[..., 0]) + np.sqrt(n) * spread)
    if still.any():
        still &= spread <= ROUNDING * np.abs(x).max(axis=(2, 3)).astype(np.float64)
        rows[still], spread[still] = 0, 0
    spread_x, spread_y = spread.T
    floor = config.spread_floor * spread_x
    flat = spread_y <= floor
    scale = np.where(flat, floor, spread_y)
    scale[scale == 0] = 1.0
    return rows, mean, scale, flat
