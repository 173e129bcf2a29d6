"""Uncertainty of a metric: intervals over clips, paired differences, spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.frames import FrameScores
from stepvad.evaluation.metrics import MetricName, Ranking

RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A metric of these clips, and its confidence interval for other clips of the same kind."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and standard deviation of a metric over n seeds; the latter is NaN if n = 1."""

    mean: float
    std: float
    n: int


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """A metric, and its values for bootstrap draws of the same clips."""

    value: float
    figures: NDArray[np.float64]
    clips: tuple[str, ...]

    def minus(self, other: Resampled) -> Resampled:
        """The paired difference of two methods, measured on the same draws of clips.

        The difficulty of a clip for both methods cancels out. The methods may cover different
        frames of the clips.
        """
        if self.clips != other.clips:
            raise DataError(
                f"expected two methods on the same clips, got {len(self.clips)} and "
                f"{len(other.clips)} clips, or other names",
                hint="score both on one data set and split",
            )
        return Resampled(self.value - other.value, self.figures - other.figures, self.clips)

    def interval(self, level: float = LEVEL) -> Interval:
        """The percentiles Φ(±t √(C / (C - 1))) of the defined values, for C clips.

        t is the quantile of Student's distribution with C - 1 degrees of freedom: plain percentiles
        are too narrow for few clips (Hesterberg 2015). NaN if no value is defined, or for one clip.
        """
        if not 0 < level < 1:
            raise ConfigError(f"interval: expected a level between 0 and 1, got {level}")
        n_clips, figures = len(self.clips), self.figures[~np.isnan(self.figures)]
        if n_clips < 2 or not len(figures):
            return Interval(self.value, math.nan, math.nan)
        t = stats.t.ppf((1 + level) / 2, n_clips - 1) * math.sqrt(n_clips / (n_clips - 1))
        low, high = np.quantile(figures, stats.norm.cdf(np.array([-t, t]))).tolist()
        return Interval(self.value, low, high)


def resample(
    frames: FrameScores, metric: MetricName = "auroc", *, resamples: int = RESAMPLES, seed: int = 0
) -> Resampled:
    """Bootstrap over whole clips, since the frames of one clip are not independent.

    Clips are drawn with replacement, as many as there are, and the metric is recomputed on all
    their frames; NaN for draws without frames of both classes.
    """
    if resamples < 1:
        raise ConfigError(f"interval: expected 1 resample or more, got {resamples}")
    n_clips = len(frames.clips)
    if n_clips == 0:
        return Resampled(math.nan, np.full(resamples, math.nan), ())
    share = np.full(n_clips, 1 / n_clips)
    draws = np.random.default_rng(seed).multinomial(n_clips, share, size=resamples)
    redraw = _aurocs if metric == "auroc" else partial(_counted, metric=metric)
    figures = np.mean([redraw(frames, score, draws) for score in frames.score], axis=0)
    return Resampled(frames.measure(metric), figures, frames.clips)


def _counted(
    frames: FrameScores, score: NDArray[np.float32], draws: NDArray[np.int64], metric: MetricName
) -> NDArray[np.float64]:
    """The metric of every draw, by counting frames down the ranking."""
    ranking = Ranking.of(frames.abnormal, score)
    clip = frames.clip[ranking.order]
    return np.array([ranking.count(times[clip]).measure(metric) for times in draws])


def _aurocs(
    frames: FrameScores, score: NDArray[np.float32], draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """AUROC of every draw: a clip drawn t times counts its pairs with every other clip t times."""
    n_clips = len(frames.clips)
    won = np.zeros((n_clips, n_clips))  # pairs of abnormal frames of one clip, normal of another
    ours, whose = score[frames.abnormal], frames.clip[frames.abnormal]
    for clip in range(n_clips):
        theirs = np.sort(score[~frames.abnormal & (frames.clip == clip)])
        below, equal_too = (np.searchsorted(theirs, ours, side=side) for side in ("left", "right"))
        won[:, clip] = np.bincount(whose, (below + equal_too) / 2, minlength=n_clips)
    abnormal, normal = (
        draws @ np.bincount(frames.clip[chosen], minlength=n_clips)
        for chosen in (frames.abnormal, ~frames.abnormal)
    )
    with np.errstate(invalid="ignore"):  # a draw of one class has no AUROC
        return np.einsum("ra,ab,rb->r", draws, won, draws, optimize=True) / (abnormal * normal)


def over_clips(
    frames: FrameScores,
    metric: MetricName = "auroc",
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Confidence interval of a metric over clips, see `resample`."""
    return resample(frames, metric, resamples=resamples, seed=seed).interval(level)


def difference(
    frames: FrameScores,
    other: FrameScores,
    metric: MetricName = "auroc",
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Confidence interval of the paired difference of two methods, the first minus the other."""
    one, two = (resample(f, metric, resamples=resamples, seed=seed) for f in (frames, other))
    return one.minus(two).interval(level)


def over_seeds(figures: Iterable[float]) -> Spread:
    """Mean and sample standard deviation (divided by n - 1) of a metric over seeds."""
    values = np.array([*figures], dtype=np.float64)
    if not len(values):
        return Spread(math.nan, math.nan, 0)
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(values.mean()), std, len(values))
