"""Baselines for STEP, behind the same interface (Sec. 4, Supp.)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeGuard, get_args

from stepvad.config import Config, DistanceMethod, Method
from stepvad.detector import Detector
from stepvad.evaluation.baselines.distance import DistanceDetector
from stepvad.model import modelfile
from stepvad.poses import Clip
from stepvad.progress import Report, silent

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

Fitted = Detector | DistanceDetector
"""A fitted detector of any method."""


def fit(
    method: Method,
    clips: Iterable[Clip],
    config: Config = Config(),
    *,
    k: int = 1,
    report: Report = silent,
) -> Fitted:
    """Fit a method by name on normal clips; `k` is the number of neighbours for `knn`."""
    if is_distance(method):
        return DistanceDetector.fit(method, clips, config, k=k, report=report)
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
            return DistanceDetector.of_file(tensors, meta), sha256
        return Detector(replace(modelfile.model(tensors, meta), sha256=sha256)), sha256


def variant(method: Method, config: Config) -> Config:
    """The settings with projection and network replaced by those of a method.

    `raw-modulated` is STEP without PCA. `raw` is MULDE: score matching on raw coordinates with a
    plain MLP. `vanilla` is STEP with that network. Distances keep all settings.
    """
    match method:
        case "step":
            return replace(config, projection="pca", network="modulated")
        case "raw-modulated":
            return replace(config, projection="raw", network="modulated")
        case "raw":
            return replace(config, projection="raw", network="vanilla")
        case "vanilla":
            return replace(config, projection="pca", network="vanilla")
        case "knn" | "mahalanobis":
            return config


def method_of(fitted: Fitted) -> Method:
    """The name of a fitted method."""
    if isinstance(fitted, DistanceDetector):
        return fitted.method
    plain = fitted.config.network == "vanilla"
    if fitted.config.projection == "raw":
        return "raw" if plain else "raw-modulated"
    return "vanilla" if plain else "step"


def is_distance(method: Method) -> TypeGuard[DistanceMethod]:
    """Whether a method is a distance in PC-space, with nothing to train."""
    return method in get_args(DistanceMethod)
