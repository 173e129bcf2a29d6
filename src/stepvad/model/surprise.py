"""How rare a score is among windows of normal footage that the model was not fitted on.

A young window, of a person who has just come, scores differently from a whole one: it is ranked
among windows of about as many poses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.errors import DataError

COMMON = 0.01
"""Share of normal windows above the last level; beyond it the tail is exponential."""
LEVELS = 128
"""Levels at which the distribution is kept."""
FEWEST = 200
"""Normal windows needed for a distribution: two of them in the tail."""
DOUBLING = 2
"""A band of ages ends where windows have twice the poses of its first ones."""


@dataclass(frozen=True, slots=True, eq=False)
class Surprise:
    """-log p of a score: `nats (M,)` at `levels (M,)`, interpolated in between.

    Above the last level it grows by one nat per `scale`, as an exponential tail does.
    """

    levels: NDArray[np.float64]
    nats: NDArray[np.float64]
    scale: float

    @classmethod
    def of(cls, A: NDArray[np.float32]) -> Surprise:
        """The distribution of these scores of normal windows."""
        if len(A) < FEWEST:
            raise DataError(
                f"views: expected at least {FEWEST} windows of held-out footage, got {len(A)}",
                hint="fit on more footage, or with a single view",
            )
        p = np.geomspace(1.0, COMMON, LEVELS)
        levels, kept = np.unique(np.quantile(A.astype(np.float64), 1 - p), return_index=True)
        excess = A[levels[-1] < A] - levels[-1]
        scale = float(excess.mean()) if len(excess) else 0.0
        spread = float(np.ptp(levels)) / LEVELS
        return cls(levels, -np.log(p[kept]), max(scale, spread, float(np.finfo(np.float32).eps)))

    def __call__(self, A: NDArray[np.float32]) -> NDArray[np.float32]:
        """-log p of scores `(N,)`; 0 for the most ordinary ones."""
        inside = np.interp(A, self.levels, self.nats)
        beyond = np.maximum(A - self.levels[-1], 0) / self.scale
        return np.asarray(inside + beyond, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class SurpriseByAge:
    """A distribution for each band of ages: windows of at least `first[i]` poses at hand."""

    first: tuple[int, ...]
    bands: tuple[Surprise, ...]

    @classmethod
    def of(
        cls, A: NDArray[np.float32], n_poses: NDArray[np.int64], config: Config
    ) -> SurpriseByAge:
        """The distributions of these scores of normal windows; bands with too few are joined."""
        first: list[int] = []
        bands: list[Surprise] = []
        age, end = config.T, config.T + 1
        while True:
            own = A[(n_poses >= age) & (n_poses < end)]
            if len(own) >= FEWEST:
                first.insert(0, age)
                bands.insert(0, Surprise.of(own))
                end = age
            if age <= config.shortest:
                break
            age = max(-(-age // DOUBLING), config.shortest)
        return cls(tuple(first), tuple(bands)) if bands else cls((age,), (Surprise.of(A),))

    def __call__(self, A: NDArray[np.float32], n_poses: NDArray[np.int64]) -> NDArray[np.float32]:
        """-log p of scores `(N,)` of windows with so many poses at hand, `(N,)`."""
        band = np.maximum(np.searchsorted(self.first, n_poses, side="right") - 1, 0)
        nats = np.zeros(len(A), np.float32)
        for number in np.unique(band):
            rows = band == number
            nats[rows] = self.bands[number](A[rows])
        return nats
