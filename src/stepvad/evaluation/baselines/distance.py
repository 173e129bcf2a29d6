"""Scores by distance in PC-space: PCA/kNN (Supp.) and Mahalanobis, without training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config, DistanceMethod
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.baselines.neighbours import Neighbours
from stepvad.model import modelfile, projection
from stepvad.model.footage import Footage, score_clip
from stepvad.model.modelfile import Origin
from stepvad.model.pcspace import PCSpace
from stepvad.model.scoring import Scores, WindowScores, anomaly_score
from stepvad.model.tensors import check_tensor
from stepvad.poses import Clip
from stepvad.progress import Report, silent
from stepvad.skeletons import Skeleton
from stepvad.windows import Windows


def settings(method: DistanceMethod, config: Config) -> Config:
    """Settings for a distance: one energy per window, and whitening for Mahalanobis."""
    if method not in get_args(DistanceMethod):
        raise ConfigError(f"method: expected 'knn' or 'mahalanobis', got {method!r}")
    if method == "mahalanobis" and config.projection == "raw":
        raise ConfigError(
            "projection: expected one that whitens, for mahalanobis, got 'raw'",
            hint="use all principal components, or knn",
        )
    return replace(config, L=1, aggregation="max", whiten=config.whiten or method != "knn")


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
        config = settings(method, config)
        footage = Footage.read(clips, config)
        if not 1 <= k <= len(footage):
            raise DataError(
                f"k: expected a number from 1 to {len(footage)}, the training windows, got {k}"
            )
        config = projection.resolve(footage.config, footage.skeleton)
        space = projection.fit_space([footage], config, report)
        neighbours = None
        if method == "knn":
            batches = footage.batches("neighbours", report)
            neighbours = Neighbours(np.concatenate([space.project(w.x) for w in batches]), k)
        return cls(method, config, footage.skeleton, space, neighbours, footage.origin(epochs=0))

    def score(self, clip: Clip, *, report: Report = silent) -> Scores:
        """Score every window of a clip."""
        return score_clip(clip, self.config, self.skeleton, self.score_windows, report=report)

    def score_windows(self, windows: Windows) -> WindowScores:
        """Scores of windows cut with this detector's settings; higher is more abnormal."""
        windows.check(self.config, self.skeleton)
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
            "config": self.config.facts(),
            "skeleton": asdict(self.skeleton),
            "origin": asdict(self.origin),
        }
        tensors: dict[str, NDArray[Any]] = {**modelfile.space_tensors(self.space)}
        if self.neighbours is not None:
            tensors["points"] = self.neighbours.points
            meta["k"] = self.neighbours.k
        modelfile.write_tensors(tensors, meta, Path(path))

    @classmethod
    def of_file(
        cls, tensors: dict[str, NDArray[Any]], meta: modelfile.Metadata
    ) -> DistanceDetector:
        """The detector that these tensors and words describe, checked."""
        method: Any = meta["method"]
        config, skeleton, origin = modelfile.read_settings(meta)
        if config != settings(method, config):
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
