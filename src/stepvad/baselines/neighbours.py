"""Exact nearest neighbours among many points, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

BLOCK = 64
"""Points that are known by their nearest alone until it is clear which blocks matter."""
POINTS = 64 * BLOCK
"""Points compared at once with `QUERIES` queries: 4 MB of products, which stay in the cache."""
QUERIES = 256
SPARE = 2
"""Blocks looked at beyond the k nearest, for products that differ by rounding alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """Points `(N, K)` and the mean distance of others to the k nearest of them.

    Products are computed block by block and only each block's least is kept. The k nearest points
    lie in the k blocks with the smallest least, and there distances are computed anew, exactly.
    """

    points: NDArray[np.float32]
    k: int = 1
    _products: NDArray[np.float32] = field(init=False, repr=False)
    """Rows (-p, |p|²/2), so that one product with (q, 1) orders points by distance, `(N', K + 1)`.

    Rows beyond N repeat the last point, so that blocks are whole.
    """

    def __post_init__(self) -> None:
        """Prepare the products."""
        whole = -(-len(self.points) // BLOCK) * BLOCK
        rows = self.points[np.minimum(np.arange(whole), len(self.points) - 1)]
        half = np.square(rows, dtype=np.float64).sum(axis=1) / 2
        products = np.column_stack([-rows, half.astype(np.float32)])
        object.__setattr__(self, "_products", np.ascontiguousarray(products))

    def distances(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """Mean distance of each query `(n, K)` to its k nearest points, `(n,)`."""
        parts = [
            self._distances(queries[first : first + QUERIES])
            for first in range(0, len(queries), QUERIES)
        ]
        return np.concatenate([np.empty(0, np.float32), *parts])

    def _distances(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        with_one = np.column_stack([queries, np.ones(len(queries), np.float32)]).T
        least = np.concatenate(
            [
                (self._products[first : first + POINTS] @ with_one)
                .reshape(-1, BLOCK, len(queries))
                .min(axis=1)
                for first in range(0, len(self._products), POINTS)
            ]
        )  # (blocks, n)
        n_blocks = min(self.k + SPARE, len(least))
        blocks = np.argpartition(least, n_blocks - 1, axis=0)[:n_blocks].T  # (n, n_blocks)
        near = [self._exact(query, chosen) for query, chosen in zip(queries, blocks, strict=True)]
        return np.array(near, dtype=np.float32)

    def _exact(self, query: NDArray[np.float32], blocks: NDArray[np.int64]) -> float:
        rows = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
        rows = rows[rows < len(self.points)]
        apart = np.square(self.points[rows] - query.astype(np.float64)).sum(axis=1)
        return float(np.sqrt(np.partition(apart, self.k - 1)[: self.k]).mean())
