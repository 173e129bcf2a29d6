"""How fast people usually move, by where their feet are and how large they look.

Walking towards a camera crosses the picture more slowly than walking past it, and people hurry in
one place and stroll in another. Speeds are told in terms of what is usual at a place. Height in the
picture and size tell the places of several cameras apart without knowing which camera it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import ConfigError

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


@dataclass(frozen=True, slots=True, eq=False)
class Pace:
    """Usual speeds along x and y, `(cells, cells, 2)`, at heights and sizes, `(cells,)` each."""

    feet: NDArray[np.float64]
    size: NDArray[np.float64]
    speed: NDArray[np.float64]

    @classmethod
    def measured(
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
        found = np.empty((cells, cells, 2))
        for row, column in np.ndindex(cells, cells):
            own = speed[(rows == row) & (columns == column)]
            weight = len(own) / (len(own) + PRIOR)
            here = np.quantile(own, QUANTILE, axis=0) if len(own) else usual
            found[row, column] = weight * here + (1 - weight) * usual
        return cls(heights, sizes, np.maximum(found, SLOWEST))

    @classmethod
    def of(cls, numbers: tuple[float, ...]) -> Pace:
        """The pace that these numbers of a `Config` describe."""
        return _pace(numbers)

    @property
    def numbers(self) -> tuple[float, ...]:
        """All of it in a row: heights, sizes, speeds."""
        parts = (self.feet, self.size, self.speed.reshape(-1))
        return tuple(np.concatenate(parts).round(6).tolist())

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


@lru_cache(maxsize=64)
def _pace(numbers: tuple[float, ...]) -> Pace:
    cells, values = _cells(len(numbers)), np.array(numbers, np.float64)
    pace = Pace(
        values[:cells], values[cells : 2 * cells], values[2 * cells :].reshape(cells, cells, 2)
    )
    rising = all((np.diff(levels) >= 0).all() for levels in (pace.feet, pace.size))
    if not rising or not (pace.speed > 0).all():
        raise ConfigError("pace: expected levels that rise and speeds above 0, got others")
    return pace


def _cells(n_numbers: int) -> int:
    """Ranges of a pace with so many numbers."""
    cells = round((n_numbers / 2 + 0.25) ** 0.5 - 0.5)
    if cells < 1 or 2 * cells * (cells + 1) != n_numbers:
        raise ConfigError(f"pace: expected 2 n (n + 1) numbers, got {n_numbers}")
    return cells


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
