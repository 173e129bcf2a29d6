"""Exact nearest neighbours among many points, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

BLOCK = 64
"""Points per block; only a block's nearest point is computed until it is clear which matter."""
POINTS = 64 * BLOCK
"""Points compared at once with `QUERIES` queries: 4 MB of products, which fit the cache."""
QUERIES = 256
ROUNDING = 2.0**-24
"""Unit roundoff of float32: half the distance from 1 to the next number."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Points `(N, K)` and the mean distance of others to the k nearest of them.

    Products in float32 give each block's nearest point, up to an error with a known bound. Blocks
    that cannot hold one of the k nearest points are skipped; in the others distances are recomputed
    in float64.
    """

    points: NDArray[np.float32]
    k: int = 1
    _centre: NDArray[np.float64] = field(init=False, repr=False)
    """Mean of the points, `(K,)`: centring keeps the products and their rounding errors small."""
    _products: NDArray[np.float32] = field(init=False, repr=False)
    """Rows (-p, |p|²/2): one product with (q, 1) orders points by distance, `(N', K + 1)`.

    Rows beyond N repeat the last point, to fill the last block.
    """
    _reach: NDArray[np.float64] = field(init=False, repr=False)
    """Largest |p| of each block, `(blocks, 1)`."""

    def __post_init__(self) -> None:
        """Prepare the products."""
        whole = -(-len(self.points) // BLOCK) * BLOCK
        centre = self.points.mean(axis=0, dtype=np.float64)
        rows = self.points[np.minimum(np.arange(whole), len(self.points) - 1)] - centre
        squares = np.square(rows).sum(axis=1)
        products = np.empty((whole, rows.shape[1] + 1), np.float32)
        products[:, :-1], products[:, -1] = -rows, squares / 2
        object.__setattr__(self, "_centre", centre)
        object.__setattr__(self, "_products", products)
        object.__setattr__(self, "_reach", np.sqrt(squares.reshape(-1, BLOCK).max(1))[:, None])

    def distances(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mean distance of each query `(n, K)` to its k nearest points, `(n,)`."""
        parts = [
            self._distances(queries[first : first + QUERIES])
            for first in range(0, len(queries), QUERIES)
        ]
        return np.concatenate([np.empty(0, np.float32), *parts])

    def _distances(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        possible = self._possible(queries - self._centre)
        near = [self._exact(q, blocks) for q, blocks in zip(queries, possible.T, strict=True)]
        return np.array(near, dtype=np.float32)

    def _possible(self, queries: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which blocks may hold one of the k points nearest to a centred query, `(blocks, n)`."""
        with_one = np.ones((queries.shape[1] + 1, len(queries)), np.float32)
        with_one[:-1] = queries.T
        least = np.concatenate(
            [
                (self._products[first : first + POINTS] @ with_one)
                .reshape(-1, BLOCK, len(queries))
                .min(axis=1)
                for first in range(0, len(self._products), POINTS)
            ]
        )  # (blocks, n)
        # the error of a sum of K + 1 products is at most as many roundings of its terms, plus the
        # rounding of the factors
        terms = self._reach * np.linalg.norm(queries, axis=1) + self._reach**2 / 2
        error = (len(with_one) + 4) * ROUNDING * terms
        kth = min(self.k, len(least)) - 1
        bound = np.partition(least + error, kth, axis=0)[kth]  # k points are no further than this
        return np.asarray(least - error <= bound)

    def _exact(self, query: NDArray[np.float32], blocks: NDArray[np.bool_]) -> float:
        rows = (np.flatnonzero(blocks)[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        rows = rows[rows < len(self.points)]
        apart = np.square(self.points[rows] - query.astype(np.float64)).sum(axis=1)
        return float(np.sqrt(np.partition(apart, self.k - 1)[: self.k]).mean())
