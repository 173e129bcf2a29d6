"""Usual motion: each view of a window by its distance to the nearest of some average motions.

A fit needs no training: the windows of footage are clustered, and the means of clusters in which
enough tracks take part are kept, so that none is the movement of one person. Clips are divided into
folds, and each fold has centroids of its own: a distance among usual motion is one to the centroids
of the other folds, as it will be for footage that is yet to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError

FOLDS = 4
"""Parts of the footage with centroids of their own."""
CENTROIDS = 2000
"""Most centroids of a view, those of all folds."""
FEWEST_TRACKS = 5
"""Tracks whose windows a centroid is the mean of, at least."""
SAMPLE = 64_000
"""Windows that centroids are learned from, evenly spaced over the footage."""
PROJECTED = 4
"""One in so many of these windows gives the space of a view."""
ROUNDS = 8
"""Rounds of k-means."""
COVERED = 0.5
"""Share of the windows that have to be in clusters of enough tracks; else clusters are larger."""
BATCH = 2048


@dataclass(frozen=True, slots=True, eq=False)
class Centroids:
    """Usual motion in the space of a view: `points (n, K)`, and the `fold (n,)` of each."""

    points: NDArray[np.float32]
    fold: NDArray[np.int64]
    half: NDArray[np.float32] = field(init=False)
    """|c|²/2 of each, `(n,)`."""

    def __post_init__(self) -> None:
        """Square the points once, not for every window."""
        object.__setattr__(self, "half", half_squares(self.points))

    def __len__(self) -> int:
        """Number of centroids n."""
        return len(self.points)

    def without(self, fold: int) -> Centroids:
        """Those of the other folds, which footage of this one has no part in."""
        kept = self.fold != fold
        return Centroids(self.points[kept], self.fold[kept])

    def nearest(self, z: NDArray[np.float32]) -> NDArray[np.int64]:
        """Row of the centroid nearest to each point `(N, K)`, `(N,)`."""
        return nearest(z, self.points, self.half)

    def distances(self, z: NDArray[np.float32]) -> NDArray[np.float32]:
        """Distance of each point `(N, K)` to the nearest centroid, `(N,)`."""
        # by the difference itself: what products leave of a small distance is rounding
        way = z - self.points[self.nearest(z)]
        return np.asarray(np.sqrt(np.einsum("nk,nk->n", way, way)), np.float32)

    @classmethod
    def fit(
        cls,
        z: NDArray[np.float32],
        track: NDArray[np.int64],
        fold: NDArray[np.int64],
        rng: np.random.Generator,
    ) -> Centroids:
        """The centroids of points `(N, K)`, which belong to tracks and folds, `(N,)` each."""
        parts = []
        for number in range(FOLDS):
            own = fold == number
            parts.append(_centroids(z[own], track[own], CENTROIDS // FOLDS, rng))
        folds = np.repeat(np.arange(FOLDS), [len(part) for part in parts])
        return cls(np.concatenate(parts), folds)


def nearest(
    z: NDArray[np.float32],
    points: NDArray[np.float32],
    half: NDArray[np.float32] | None = None,
) -> NDArray[np.int64]:
    """Row of the point `(n, K)` nearest to each z `(N, K)`, `(N,)`; `half` are their squares."""
    half = half_squares(points) if half is None else half
    found = np.empty(len(z), np.int64)
    for first in range(0, len(z), BATCH):
        # |c|²/2 - z·c is least where |z - c| is, (N of the batch, n)
        part = slice(first, first + BATCH)
        found[part] = (half - z[part] @ points.T).argmin(axis=1)
    return found


def half_squares(points: NDArray[np.float32]) -> NDArray[np.float32]:
    """|c|²/2 of each point `(n, K)`, `(n,)`."""
    return np.asarray(np.square(points).sum(axis=1) / 2, np.float32)


def cross_distances(
    centroids: Centroids, z: NDArray[np.float32], fold: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Distance of each point `(N, K)` to the centroids of the folds that it is not in, `(N,)`."""
    found = np.empty(len(z), np.float32)
    for number in np.unique(fold):
        own = fold == number
        found[own] = centroids.without(int(number)).distances(z[own])
    return found


def folds_of_tracks(
    n_tracks: Sequence[int], folds: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """The fold of each track, given their number in each clip; clips take turns unless stated.

    If that leaves too few to a fold, tracks take turns.
    """
    if folds is not None and len(folds) != len(n_tracks):
        raise DataError(f"folds: expected one for each of {len(n_tracks)} clips, got {len(folds)}")
    each = np.arange(len(n_tracks)) if folds is None else np.asarray(folds, np.int64)
    found = np.repeat(each % FOLDS, n_tracks)
    if folds is None and np.bincount(found, minlength=FOLDS).min() < FEWEST_TRACKS:
        found = np.arange(len(found)) % FOLDS
    n = np.bincount(found, minlength=FOLDS)
    if n.min() < FEWEST_TRACKS:
        raise DataError(
            f"expected at least {FEWEST_TRACKS} tracks of people in each of {FOLDS} parts of the "
            f"clips, got {', '.join(map(str, n))}",
            hint="fit on more footage of people in motion",
        )
    return found


def _centroids(
    z: NDArray[np.float32], track: NDArray[np.int64], k: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Means of clusters of enough tracks, `(k or fewer, K)`: fewer clusters where they are few."""
    if (n_tracks := len(np.unique(track))) < FEWEST_TRACKS:
        raise DataError(
            f"expected windows of at least {FEWEST_TRACKS} tracks in each part of the clips, "
            f"got {n_tracks}",
            hint="fit on more footage",
        )
    while True:
        points, label = k_means(z, k, rng)
        # tracks of each cluster, and the clusters that are kept, (n,): of one, it is
        pairs = np.unique(np.column_stack([label, track]), axis=0)
        kept = np.bincount(pairs[:, 0], minlength=len(points)) >= FEWEST_TRACKS
        if kept[label].mean() >= COVERED:
            break
        k //= 2
    # windows of other clusters go to those that are kept, which move to the mean of all
    return _means(z, nearest(z, points[kept]))


def k_means(
    z: NDArray[np.float32], k: int, rng: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Lloyd's algorithm from points drawn at random: means `(k or fewer, K)`, labels `(N,)`."""
    points = z[rng.permutation(len(z))[:k]]
    for _ in range(ROUNDS):
        points = _means(z, nearest(z, points))
    return points, nearest(z, points)


def _means(z: NDArray[np.float32], label: NDArray[np.int64]) -> NDArray[np.float32]:
    """Mean of each cluster that has points."""
    # rows by cluster, added up from the first row of each
    order = np.argsort(label, kind="stable")
    first = np.flatnonzero(np.diff(label[order], prepend=-1))
    n = np.diff(first, append=len(z))
    sums = np.add.reduceat(z[order].astype(np.float64), first)
    return np.asarray(sums / n[:, None], np.float32)
