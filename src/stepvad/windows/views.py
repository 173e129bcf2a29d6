"""Views of a window: the pose as the paper sees it, and what standardising takes from it.

A window of the paper is centred and scaled: where a person is, how large, and how fast the body
crosses the picture are gone. `motion` and `place` keep them, as pairs of numbers in the shape of
windows, `(N, 2, pairs, 1)`, so that everything behind is the same for all views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config, View
from stepvad.windows.standardise import standardise

PAIRS = {"motion": 3, "place": 2}
"""Pairs of numbers of the views that are not poses."""
MEANINGS: Mapping[View, Mapping[str, tuple[int, ...]]] = {
    "motion": {"speed": (0, 1), "growth": (2,), "width": (3,), "change of pace": (4, 5)},
    "place": {"place": (0, 1), "size": (2,), "width": (3,)},
}
"""What the numbers of these views mean, in the order in which `_motion` and `_place` give them."""
FloatT = TypeVar("FloatT", bound=np.floating)
SMALLEST = 1e-3
"""Smallest size of a body, in pixels."""


def view_shape(config: Config, V: int) -> tuple[int, int, int]:
    """The shape of one window of V joints in this view."""
    return (2, V, config.T) if config.view == "pose" else (2, PAIRS[config.view], 1)


def look(
    keypoints: NDArray[np.float32], config: Config
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Windows `(N, T, V, 2)` in pixels as this view sees them, and which were flat."""
    if config.view == "pose":
        return standardise(keypoints.transpose(0, 3, 2, 1), config)
    centre, spread = _bodies(keypoints)
    numbers = (_motion if config.view == "motion" else _place)(keypoints, centre, spread)
    pairs = numbers.reshape(len(keypoints), PAIRS[config.view], 2, 1).transpose(0, 2, 1, 3)
    return pairs.astype(np.float32), np.zeros(len(keypoints), np.bool_)


def numbers(x: NDArray[FloatT]) -> NDArray[FloatT]:
    """The numbers of windows `(N, 2, pairs, 1)` in their order, `(N, 2 pairs)`."""
    return x[..., 0].transpose(0, 2, 1).reshape(len(x), -1)


def amounts(x: NDArray[np.float32], view: View) -> NDArray[np.float32]:
    """How much there is of each meaning in windows of a view, `(N, meanings)`.

    The number itself, or the length of a pair.
    """
    values = numbers(x)
    columns = [
        np.hypot(*values[:, which].T) if len(which) > 1 else values[:, which[0]]
        for which in MEANINGS[view].values()
    ]
    return np.column_stack(columns)


def _bodies(
    keypoints: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and spread of the joints along x and y in every frame, `(N, T, 2)` each."""
    N, T, V, _ = keypoints.shape
    joints = np.array(keypoints.transpose(0, 1, 3, 2), np.float64, order="C").reshape(-1, V)
    centre = joints.mean(axis=1)  # sums run along the last, dense axis: any batching, same bits
    spread = np.sqrt(np.square(joints - centre[:, None]).mean(axis=1))
    return centre.reshape(N, T, 2), spread.reshape(N, T, 2)


def _size(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """The size of the body in every frame, `(N, T)`: the spread of all its joints."""
    return np.maximum(np.sqrt(np.square(spread[..., 0]) + np.square(spread[..., 1])), SMALLEST)


def _motion(
    keypoints: NDArray[np.float32], centre: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Velocity, growth, shape and change of velocity of the body, `(N, 6)`.

    Velocities are in sizes of the body per frame, by least squares over the window and its halves;
    growth is the slope of the logarithm of the size, the shape is how wide the body is.
    """
    size, T = _size(spread), centre.shape[1]
    path = centre / np.exp(_mean(np.log(size)))[:, None, None]
    half = max(T // 2, 1)
    growth, wide = _slope(np.log(size)[..., None])[:, 0], _mean(spread[..., 0] / size)
    change = _slope(path[:, -half:]) - _slope(path[:, :half])
    return np.column_stack([_slope(path), growth, wide, change])


def _place(
    keypoints: NDArray[np.float32], centre: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Where the feet are, how large the body is and how wide, `(N, 4)`: means over the window."""
    size = _size(spread)
    lowest = keypoints[..., 1].max(axis=2).astype(np.float64)
    wide = _mean(spread[..., 0] / size)
    return np.column_stack([_mean(centre[..., 0]), _mean(lowest), _mean(np.log(size)), wide])


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over time of values `(N, T)`."""
    return np.ascontiguousarray(values).mean(axis=1)


def _slope(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Change per frame of values `(N, T, n)`, by least squares, `(N, n)`."""
    T = values.shape[1]
    time = np.arange(T) - (T - 1) / 2
    weights = time / max(float(np.square(time).sum()), 1.0)
    return np.asarray((np.ascontiguousarray(values.transpose(0, 2, 1)) * weights).sum(axis=2))
