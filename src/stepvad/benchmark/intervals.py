"""How sure a figure is: intervals over clips, paired differences, spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from stepvad.benchmark.frames import FrameScores
from stepvad.benchmark.metrics import Name
from stepvad.errors import ConfigError, DataError

RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure of these clips, and where that of other clips of their kind would be."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of a figure over n seeds; NaN for the latter if n = 1."""

    mean: float
    std: float
    n: int


def over_clips(
    frames: FrameScores,
    metric: Name = "auroc",
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval over whole clips, since the frames of one clip are no independent draws.

    Clips are drawn with replacement, as many as there are, and the metric of all their frames is
    computed anew. The interval spans the percentiles Φ(±t √(C / (C - 1))) of these figures, t
    being the quantile of Student's distribution with C - 1 degrees of freedom: plain percentiles
    are too narrow for few clips C (Hesterberg 2015). Draws without frames of both classes are left
    out; NaN where nothing is left, or where there is a single clip.
    """
    draws = _draws(len(frames.clips), level, resamples, seed)
    return _interval(frames.measure(metric), _figures(frames, metric, draws), level, draws)


def difference(
    frames: FrameScores,
    other: FrameScores,
    metric: Name = "auroc",
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Paired difference of two methods, the first minus the other, as `over_clips`.

    Both are measured on the same draws of clips, so what makes a clip hard for both cancels. They
    may cover different frames of the clips.
    """
    if frames.clips != other.clips:
        raise DataError(
            f"expected two methods on the same clips, got {len(frames.clips)} and "
            f"{len(other.clips)} clips, or other names",
            hint="score both on one data set and split",
        )
    draws = _draws(len(frames.clips), level, resamples, seed)
    apart = _figures(frames, metric, draws) - _figures(other, metric, draws)
    return _interval(frames.measure(metric) - other.measure(metric), apart, level, draws)


def over_seeds(figures: Iterable[float]) -> Spread:
    """Mean and sample standard deviation (divided by n - 1) of one figure over seeds."""
    values = np.array([*figures], dtype=np.float64)
    if not len(values):
        return Spread(math.nan, math.nan, 0)
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(values.mean()), std, len(values))


def _draws(n_clips: int, level: float, resamples: int, seed: int) -> NDArray[np.int64]:
    """How often each draw takes each clip, `(resamples, n_clips)`."""
    if not 0 < level < 1 or resamples < 1:
        raise ConfigError(
            f"interval: expected a level between 0 and 1 and 1 resample or more, "
            f"got {level} and {resamples}"
        )
    if n_clips == 0:
        return np.empty((resamples, 0), dtype=np.int64)
    share = np.full(n_clips, 1 / n_clips)
    return np.random.default_rng(seed).multinomial(n_clips, share, size=resamples)


def _figures(frames: FrameScores, metric: Name, draws: NDArray[np.int64]) -> NDArray[np.float64]:
    """The metric on every draw, `(resamples,)`, each the mean over seeds."""
    figures = np.zeros(len(draws))
    for ranking in frames.rankings():
        clip = frames.clip[ranking.order]
        figures += [ranking.count(times[clip]).measure(metric) for times in draws]
    return figures / len(frames.score)


def _interval(
    value: float, figures: NDArray[np.float64], level: float, draws: NDArray[np.int64]
) -> Interval:
    """The widened percentiles of the figures that exist."""
    n_clips = draws.shape[1]
    figures = figures[~np.isnan(figures)]
    if n_clips < 2 or not len(figures):
        return Interval(value, math.nan, math.nan)
    t = stats.t.ppf((1 + level) / 2, n_clips - 1) * math.sqrt(n_clips / (n_clips - 1))
    low, high = np.quantile(figures, stats.norm.cdf(np.array([-t, t]))).tolist()
    return Interval(value, low, high)
