"""Baselines for STEP, behind the same interface (Sec. 4, Supp.)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config, DistanceMethod, Method, Network, Projection, ViewKind
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError, Report, silent
from stepvad.model import modelfile
from stepvad.model.footage import Footage, fit_space, resolve
from stepvad.model.modelfile import Origin, check_tensor
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import Scores, WindowScores, anomaly_score, score_clip
from stepvad.poses import Clip
from stepvad.skeletons import Skeleton
from stepvad.windows.views import ViewSettings, Windows

__all__ = [
    "DistanceDetector",
    "Fitted",
    "Method",
    "fit",
    "is_distance",
    "load",
    "method_of",
    "variant",
]

BLOCK = 64
"""Points per block; only a block's nearest point is computed until it is clear which matter."""
POINTS = 64 * BLOCK
"""Points compared at once with `QUERIES` queries: 4 MB of products, which fit the cache."""
QUERIES = 256
ROUNDING = 2.0**-24
"""Unit roundoff of float32: half the distance from 1 to the next number."""


def fit(
    method: Method,
    clips: Iterable[Clip],
    config: Config = Config(),
    *,
    k: int = 1,
    views: Sequence[ViewKind] = ("pose", "motion"),
    report: Report = silent,
) -> Fitted:
    """Fit a method by name on normal clips; `k` is for `knn`, `views` are those of `usual`.

    The lengths of views follow from the rate of the first clip: its own, or else `config.fps`.
    """
    if is_distance(method):
        return DistanceDetector.fit(method, clips, config, k=k, report=report)
    if method == "usual":
        known = [clip if clip.fps else clip.with_rate(config.fps) for clip in clips]
        if not known:
            raise DataError("expected clips to fit on, got none", hint="check the path")
        own = Config.usual(known[0].rate(), views, clock=config.clock, seed=config.seed)
        return Detector.fit(known, own, report=report)
    return Detector.fit(clips, variant(method, config), report=report)


def load(path: Path | str) -> Fitted:
    """Load a detector of any method from its file."""
    return load_with_digest(path)[0]


def load_with_digest(path: Path | str) -> tuple[Fitted, str]:
    """Like `load`, with the SHA-256 of the bytes that were read."""
    path = Path(path)
    tensors, meta, sha256 = modelfile.read_with_digest(path)
    with modelfile.whole(path, meta):
        if meta.get("method") is not None:
            return DistanceDetector.from_file(tensors, meta), sha256
        return Detector(*modelfile.read_views(tensors, meta), sha256), sha256


def variant(method: Method, config: Config) -> Config:
    """The settings with projection and network replaced by those of a method.

    `raw-modulated` is STEP without PCA. `raw` is MULDE: score matching on raw coordinates with a
    plain MLP. `vanilla` is STEP with that network. Distances keep all settings.
    """
    if is_distance(method):
        return config
    projection: Projection = "raw" if method in ("raw", "raw-modulated") else "pca"
    network: Network = "vanilla" if method in ("raw", "vanilla") else "modulated"
    reference = replace(config.reference, projection=projection)
    return replace(config, network=network, reference=reference)


def method_of(fitted: Fitted) -> Method:
    """The name of a fitted method."""
    if isinstance(fitted, DistanceDetector):
        return fitted.method
    if fitted.config.scored_by == "usual":
        return "usual"
    plain = fitted.config.network == "vanilla"
    if fitted.config.reference.projection == "raw":
        return "raw" if plain else "raw-modulated"
    return "vanilla" if plain else "step"


def is_distance(method: Method) -> TypeGuard[DistanceMethod]:
    """True if a method is a distance in PC-space, with nothing to train."""
    return method in get_args(DistanceMethod)


@dataclass(frozen=True, slots=True, eq=False)
class DistanceDetector:
    """Scores c(x) times the distance of π(x) to normal motion; see `fit` and `baselines.load`.

    `knn` uses the mean distance to the k nearest training windows, `mahalanobis` the distance to
    their mean, each component in units of its standard deviation.
    """

    method: DistanceMethod
    config: Config
    skeleton: Skeleton
    space: PCSpace
    neighbours: Neighbours | None
    origin: Origin

    @classmethod
    def fit(
        cls,
        method: DistanceMethod,
        clips: Iterable[Clip],
        config: Config = Config(),
        *,
        k: int = 1,
        report: Report = silent,
    ) -> DistanceDetector:
        """Learn the projection from normal clips and, for `knn`, keep all their windows."""
        config = distance_config(method, config)
        footage = Footage.from_clips(clips, [ViewSettings(config)])
        if not 1 <= k <= len(footage):
            raise DataError(
                f"k: expected a number from 1 to {len(footage)}, the training windows, got {k}"
            )
        config = resolve(footage.config, footage.skeleton)
        space = fit_space([footage], config, report)
        neighbours = None
        if method == "knn":
            batches = footage.batches("neighbours", report)
            neighbours = Neighbours(np.concatenate([space.project(w.x) for w in batches]), k)
        return cls(method, config, footage.skeleton, space, neighbours, footage.origin(epochs=0))

    @property
    def view_settings(self) -> tuple[ViewSettings, ...]:
        """All that cutting windows for it needs."""
        return (ViewSettings(self.config),)

    def score(self, clip: Clip, *, report: Report = silent) -> Scores:
        """Score every window of a clip."""
        return score_clip(
            clip, self.view_settings, self.skeleton, self.score_windows, report=report
        )

    def score_windows(self, windows: Windows) -> WindowScores:
        """Scores of windows cut with this detector's settings; higher is more abnormal."""
        windows.expect(self.view_settings, self.skeleton)
        E = self._distances(self.space.project(windows.x))[:, None]
        A = anomaly_score(E, windows.weight(self.config))
        return WindowScores(windows.track_id, windows.frame, windows.c, E, A, windows.seen)

    def _distances(self, pi_x: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.neighbours is not None:
            return self.neighbours.distances(pi_x)
        return np.linalg.norm(pi_x.astype(np.float64), axis=1).astype(np.float32)

    def save(self, path: Path | str) -> None:
        """Write the detector to a file for `baselines.load`."""
        meta = {
            "format": modelfile.FORMAT,
            "method": self.method,
            "views": [asdict(self.config)],
            "skeleton": asdict(self.skeleton),
            "origin": asdict(self.origin),
        }
        tensors: dict[str, NDArray[Any]] = {**modelfile.space_tensors(self.space)}
        if self.neighbours is not None:
            tensors["points"] = self.neighbours.points
            meta["k"] = self.neighbours.k
        modelfile.write_tensors(tensors, meta, Path(path))

    @classmethod
    def from_file(
        cls, tensors: dict[str, NDArray[Any]], meta: modelfile.Metadata
    ) -> DistanceDetector:
        """The detector that these tensors and words describe, checked."""
        method: Any = meta["method"]
        (config,), skeleton, origin = modelfile.read_settings(meta)
        if config != distance_config(method, config):
            raise ValueError(f"its settings are not those of {method}")
        neighbours = None
        if method == "knn":
            points, k = tensors["points"], meta["k"]
            check_tensor("points", points, (origin.windows, config.K))
            if type(k) is not int or not 1 <= k <= len(points):
                raise ValueError(f"k is {k!r}")
            neighbours = Neighbours(points, k)
        space = modelfile.read_space(tensors, config, skeleton)
        return cls(method, config, skeleton, space, neighbours, origin)


Fitted = Detector | DistanceDetector
"""A fitted detector of any method."""


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
        # rows of whole blocks, about the mean of the points, (N', K)
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
        # float32 says which blocks matter, float64 how far their points are
        possible = self._possible(queries - self._centre)
        near = [self._exact(q, blocks) for q, blocks in zip(queries, possible.T, strict=True)]
        return np.array(near, dtype=np.float32)

    def _possible(self, queries: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Mask of blocks that may hold one of the k points nearest to a query, `(blocks, n)`."""
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


def distance_config(method: DistanceMethod, config: Config) -> Config:
    """Settings for a distance: one energy per window, and whitening for Mahalanobis."""
    if method not in get_args(DistanceMethod):
        raise ConfigError(f"method: expected 'knn' or 'mahalanobis', got {method!r}")
    if method == "mahalanobis" and config.reference.projection == "raw":
        raise ConfigError(
            "projection: expected one that whitens, for mahalanobis, got 'raw'",
            hint="use all principal components, or knn",
        )
    whitening = config.reference.whitening if method == "knn" else config.reference.whitening or 1.0
    reference = replace(config.reference, whitening=whitening)
    return replace(config, L=1, aggregation="max", reference=reference)
