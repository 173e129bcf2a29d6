"""Views of a window: the pose as the paper sees it, and what standardising takes from it.

A window of the paper is centred and scaled: where a person is, how large, and how fast the body
crosses the picture are gone. `motion` and `place` keep them, as pairs of numbers in the shape of
windows, `(N, 2, pairs, 1)`, so that everything behind is the same for all views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config, ViewKind
from stepvad.windows.body import Bodies, standardise

PAIRS = {"motion": 2, "place": 2}
"""Pairs of numbers of the views that are not poses."""
MEANINGS: Mapping[ViewKind, Mapping[str, tuple[int, ...]]] = {
    "motion": {"speed": (0, 1), "growth": (2,), "width": (3,)},
    "place": {"place": (0, 1), "size": (2,), "width": (3,)},
}
"""What the numbers of these views mean, in the order in which `_motion` and `_place` give them."""
FloatT = TypeVar("FloatT", bound=np.floating)


@dataclass(frozen=True, slots=True, eq=False)
class ViewSettings:
    """How one view shows a window: its settings, and what was measured on the training clips."""

    config: Config
    noise: tuple[float, ...] = ()
    """Spread of joints by confidence, from unsure to sure, in extents of the body; empty if joints
    are not weighed."""
    pace: Pace | None = None
    """Usual speeds, which a motion is told in; None if they are not known yet."""


Views = Sequence[ViewSettings]
"""All views of a window, the longest first. They share the joints, the noise and the clock."""


def n_columns(views: Views) -> int:
    """Numbers behind a window's score: one per noise scale, or one per view."""
    return len(views) if len(views) > 1 else views[0].config.L


def view_shape(config: Config, V: int) -> tuple[int, int, int]:
    """The shape of one window of V joints in this view."""
    return (2, V, config.T) if config.view == "pose" else (2, PAIRS[config.view], 1)


def apply_view(
    view: ViewSettings,
    keypoints: NDArray[np.float32],
    n_poses: NDArray[np.int64],
    bodies: Bodies | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Windows `(N, T, V, 2)` in pixels as this view sees them, and which were flat.

    Only the latest `n_poses (N,)` of each were seen; before them the first one is repeated.
    `bodies` are those of the windows, if they are known.
    """
    config, smooth = view.config, view.config.reference.smooth
    if config.view == "pose":
        shown = _smoothed(keypoints, smooth) if smooth else keypoints
        return standardise(shown.transpose(0, 3, 2, 1), config)
    bodies = bodies or Bodies.of_windows(keypoints)
    if config.view == "motion":
        values = _motion(keypoints, bodies, n_poses, view.pace)
    else:
        values = _place(keypoints, bodies, n_poses)
    # numbers (N, 2 pairs) in the shape of windows, (N, 2, pairs, 1)
    pairs = values.reshape(len(keypoints), PAIRS[config.view], 2, 1).transpose(0, 2, 1, 3)
    return pairs.astype(np.float32), np.zeros(len(keypoints), np.bool_)


def _smoothed(keypoints: NDArray[np.float32], past: float) -> NDArray[np.float32]:
    """Windows whose shapes, but not places, are running means of those so far."""
    centre = Bodies.of_windows(keypoints).centre[:, :, None].astype(np.float32)
    shape = keypoints - centre
    for t in range(1, shape.shape[1]):
        shape[:, t] += np.float32(past) * (shape[:, t - 1] - shape[:, t])
    return shape + centre


def _motion(
    keypoints: NDArray[np.float32], bodies: Bodies, n_poses: NDArray[np.int64], pace: Pace | None
) -> NDArray[np.float64]:
    """Velocity, growth and shape of the body, `(N, 4)`.

    The velocity is in sizes of the body per frame, by least squares, over what is usual at the
    place; growth is the slope of the logarithm of the size, the shape is how wide the body is.
    """
    size = bodies.size
    weights = mean, slope = _weights_of(n_poses, keypoints.shape[1])
    velocity, feet, scale = _velocity(keypoints, bodies.centre, size, weights)
    if pace is not None:
        velocity /= pace.at(feet, scale)
    growth = (np.log(size) * slope).sum(axis=1)
    wide = (bodies.spread[..., 0] / size * mean).sum(axis=1)
    return np.column_stack([velocity, growth, wide])


def measure_pace(keypoints: NDArray[np.float32], n_poses: NDArray[np.int64]) -> Pace:
    """How fast people move at each place, from windows `(N, T, V, 2)` in pixels."""
    bodies = Bodies.of_windows(keypoints)
    weights = _weights_of(n_poses, keypoints.shape[1])
    velocity, feet, scale = _velocity(keypoints, bodies.centre, bodies.size, weights)
    return Pace.measure(feet, scale, velocity)


def _velocity(
    keypoints: NDArray[np.float32],
    centre: NDArray[np.float64],
    size: NDArray[np.float64],
    weights: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Velocities in sizes of the body per frame `(N, 2)`, heights of the feet, sizes, `(N,)`.

    The sizes are logarithms.
    """
    mean, slope = weights
    scale = (np.log(size) * mean).sum(axis=1)
    velocity = [(centre[..., axis] * slope).sum(axis=1) / np.exp(scale) for axis in (0, 1)]
    return np.column_stack(velocity), _feet(keypoints, mean), scale


def _feet(keypoints: NDArray[np.float32], mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Height of the lowest joint in the picture, on average, `(N,)`."""
    return np.asarray((keypoints[..., 1].max(axis=2).astype(np.float64) * mean).sum(axis=1))


def _place(
    keypoints: NDArray[np.float32], bodies: Bodies, n_poses: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Where the feet are, how large the body is and how wide, `(N, 4)`: means over the window."""
    size = bodies.size
    mean = _weights(keypoints.shape[1])[0][n_poses]
    x, height, wide = (
        (number * mean).sum(axis=1)
        for number in (bodies.centre[..., 0], np.log(size), bodies.spread[..., 0] / size)
    )
    return np.column_stack([x, _feet(keypoints, mean), height, wide])


def numbers(x: NDArray[FloatT]) -> NDArray[FloatT]:
    """The numbers of windows `(N, 2, pairs, 1)` in their order, `(N, 2 pairs)`."""
    return x[..., 0].transpose(0, 2, 1).reshape(len(x), -1)


def amounts(x: NDArray[np.float32], view: ViewKind) -> NDArray[np.float32]:
    """How much there is of each meaning in windows of a view, `(N, meanings)`.

    The number itself, or the length of a pair.
    """
    values = numbers(x)
    columns = [
        np.hypot(*values[:, which].T) if len(which) > 1 else values[:, which[0]]
        for which in MEANINGS[view].values()
    ]
    return np.column_stack(columns)


def _weights_of(
    n_poses: NDArray[np.int64], T: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of the T poses of windows in the mean, and in the slope, `(N, T)` each."""
    means, slopes = _weights(T)
    return means[n_poses], slopes[n_poses]


@lru_cache(maxsize=64)
def _weights(T: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights of T poses in the mean, and in the slope, of the latest n, `(T + 1, T)` each."""
    means, slopes = np.zeros((T + 1, T)), np.zeros((T + 1, T))
    for n in range(1, T + 1):
        time = np.arange(n) - (n - 1) / 2
        means[n, -n:] = 1 / n
        slopes[n, -n:] = time / max(float(np.square(time).sum()), 1.0)
    return means, slopes


CELLS = 6
"""Ranges of the feet's height, and of the size; as many people move in each."""
QUANTILE = 0.9
"""Share of the people who move at a place that are not faster than usual there."""
MOVING = 0.1
"""Speed from which people move, as a share of what is usual in all of the footage."""
PRIOR = 500
"""Windows that a cell needs to say as much as all of them together."""
SLOWEST = 1e-4
"""Smallest usual speed, in sizes of the body per frame."""
DIGITS = 6
"""Decimals of a pace."""


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """Usual speeds along x and y, `(cells, cells, 2)`, at heights and sizes, `(cells,)` each."""

    feet: NDArray[np.float64]
    size: NDArray[np.float64]
    speed: NDArray[np.float64]

    @classmethod
    def measure(
        cls,
        feet: NDArray[np.float64],
        size: NDArray[np.float64],
        velocity: NDArray[np.float64],
        cells: int = CELLS,
    ) -> Pace:
        """The pace of windows with these feet and logarithms of size `(N,)`, and `(N, 2)`."""
        length = np.hypot(*velocity.T)
        moving = length >= MOVING * np.quantile(length, QUANTILE)
        speed = np.abs(velocity[moving])
        usual = np.quantile(speed, QUANTILE, axis=0)
        rows, heights = _ranges(feet[moving], cells)
        columns, sizes = _ranges(size[moving], cells)
        # quantiles of the speeds in each cell, drawn towards those of all cells, (cells, cells, 2)
        found = np.empty((cells, cells, 2))
        for row, column in np.ndindex(cells, cells):
            own = speed[(rows == row) & (columns == column)]
            weight = len(own) / (len(own) + PRIOR)
            here = np.quantile(own, QUANTILE, axis=0) if len(own) else usual
            found[row, column] = weight * here + (1 - weight) * usual
        speed = np.maximum(found, SLOWEST)
        return cls(heights.round(DIGITS), sizes.round(DIGITS), speed.round(DIGITS))

    def at(self, feet: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
        """Usual speeds `(N, 2)` at these feet and sizes `(N,)`, interpolated between cells."""
        row, down = _between(self.feet, feet)
        column, right = _between(self.size, size)
        below, beside = (
            np.minimum(row + 1, len(self.feet) - 1),
            np.minimum(column + 1, len(self.size) - 1),
        )
        upper = self.speed[row, column] * (1 - right) + self.speed[row, beside] * right
        lower = self.speed[below, column] * (1 - right) + self.speed[below, beside] * right
        return np.asarray(upper * (1 - down) + lower * down)


def _ranges(values: NDArray[np.float64], n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The range of each value, equally many in each, and the middles of the ranges."""
    ends = np.quantile(values, np.arange(1, n) / n)
    middles = np.quantile(values, (np.arange(n) + 0.5) / n)
    return np.searchsorted(ends, values), middles


def _between(
    levels: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The level below each value, and how far it is to the next, `(N, 1)`."""
    position = np.interp(values, levels, np.arange(len(levels)))
    below = position.astype(np.int64)
    return below, (position - below)[:, None]
