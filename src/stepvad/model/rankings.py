"""The arrays of a model file that say how rare the scores of a view are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.config import Config
from stepvad.model.surprise import Surprise, SurpriseByAge
from stepvad.model.tensors import check_positive, check_tensor
from stepvad.windows.views import MEANINGS

QUANTILES = (0.0, 0.01, 0.99, 1.0)
"""Of normal footage, kept of a motion."""


def ranking_tensors(
    prefix: str, surprise: SurpriseByAge, usual: NDArray[np.float64] | None
) -> dict[str, NDArray[Any]]:
    """The distribution of a view's scores, and what is usual, as named arrays."""
    tensors = {prefix + "ages": np.array(surprise.first, np.float64)}
    for number, band in enumerate(surprise.bands):
        tensors[f"{prefix}{number}.levels"] = band.levels
        tensors[f"{prefix}{number}.nats"] = band.nats
        tensors[f"{prefix}{number}.scale"] = np.array([band.scale])
    return tensors if usual is None else {**tensors, prefix + "usual": usual}


def read_ranking(tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config) -> SurpriseByAge:
    """The distribution of a view's scores, checked."""
    ages = tensors[prefix + "ages"]
    check_tensor(prefix + "ages", ages, (len(ages),), np.float64)
    if not (len(ages) and (np.diff(ages) > 0).all() and ages[0] >= 1 and ages[-1] <= config.T):
        raise ValueError(f"tensor {prefix}ages must rise from 1 to T at most")
    bands = [_surprise(tensors, f"{prefix}{band}.") for band in range(len(ages))]
    return SurpriseByAge(tuple(map(int, ages)), tuple(bands))


def read_usual(
    tensors: Mapping[str, NDArray[Any]], prefix: str, config: Config
) -> NDArray[np.float64] | None:
    """What is usual in a motion, checked; None for other views."""
    if config.view != "motion":
        return None
    usual = tensors[prefix + "usual"]
    shape = len(MEANINGS[config.view]), len(QUANTILES)
    check_tensor(prefix + "usual", usual, shape, np.float64)
    if not (np.diff(usual, axis=1) >= 0).all():
        raise ValueError(f"tensor {prefix}usual must rise")
    return usual


def _surprise(tensors: Mapping[str, NDArray[Any]], prefix: str) -> Surprise:
    levels, nats, scale = (tensors[prefix + name] for name in ("levels", "nats", "scale"))
    for name, tensor in (("levels", levels), ("nats", nats), ("scale", scale)):
        shape = (1,) if name == "scale" else (len(levels),)
        check_tensor(prefix + name, tensor, shape, np.float64)
    if not (len(levels) and (np.diff(levels) > 0).all() and (np.diff(nats) >= 0).all()):
        raise ValueError(f"tensor {prefix}levels must rise")
    check_positive(prefix + "scale", scale)
    return Surprise(levels, nats, float(scale[0]))
