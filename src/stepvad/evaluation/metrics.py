"""AUROC, AP and EER of frames (Sec. 4.1), their intervals over clips and spread over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from stepvad.errors import ConfigError, DataError
from stepvad.formats.labels import mask_of

LabelArray = NDArray[np.bool_]
Values = NDArray[np.floating] | NDArray[np.integer]
MetricName = Literal["auroc", "ap", "eer"]
METRICS: tuple[MetricName, MetricName, MetricName] = ("auroc", "ap", "eer")

RESAMPLES = 1000
LEVEL = 0.95


def auroc(abnormal: ArrayLike, score: ArrayLike) -> float:
    """Area under the ROC curve: the chance that an abnormal frame scores above a normal one.

    Takes one label, 0 or 1, and one score per frame. Ties count one half. NaN if only one class is
    present.
    """
    return _ranking(abnormal, score).count().auroc()


def average_precision(abnormal: ArrayLike, score: ArrayLike) -> float:
    """AP = Σ_n (R_n - R_{n-1}) P_n over the distinct scores, abnormal being the positive class.

    Equal scores share one threshold. NaN if only one class is present.
    """
    return _ranking(abnormal, score).count().ap()


def equal_error_rate(abnormal: ArrayLike, score: ArrayLike) -> float:
    """EER: the point where the miss rate equals the false alarm rate.

    If no threshold makes the two rates equal, the ROC curve is interpolated linearly between the
    two nearest points. NaN if only one class is present.
    """
    return _ranking(abnormal, score).count().eer()


@dataclass(frozen=True, slots=True, eq=False)
class FrameScores:
    """Frames of all `clips` concatenated; `clip (n,)` is the index of each frame's clip, from 0.

    `score (S, n)` are the scores of S seeds or draws, and a metric is the mean over them.
    `abnormal (n,)` are the labels; `classes` maps each anomaly class to a mask `(n,)` of the
    abnormal frames that show it.
    """

    clips: tuple[str, ...]
    clip: NDArray[np.int64]
    abnormal: NDArray[np.bool_]
    score: NDArray[np.float32]
    classes: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that all arrays describe the same frames and clips."""
        n = len(self.abnormal)
        shapes = [self.clip.shape, *(frames.shape for frames in self.classes.values())]
        if self.score.ndim != 2 or self.score.shape[1] != n or any(s != (n,) for s in shapes):
            raise DataError(
                f"expected scores of shape (S, {n}), clips and classes of ({n},), "
                f"got {self.score.shape} and {shapes}",
                hint="give one label, clip and score per frame, and a row of scores per seed",
            )
        if n and not 0 <= self.clip.min() <= self.clip.max() < len(self.clips):
            raise DataError(
                f"expected clips numbered from 0 to {len(self.clips) - 1}, "
                f"got {self.clip.min()} to {self.clip.max()}",
                hint="name every clip once",
            )

    @classmethod
    def of_seeds(cls, parts: Sequence[FrameScores]) -> FrameScores:
        """Combine the scores of one method with several seeds on the same frames."""
        first, *others = parts
        for other in others:
            if first.clips != other.clips or not np.array_equal(first.abnormal, other.abnormal):
                raise DataError(
                    f"expected the same frames from every seed, got {len(first.abnormal)} of "
                    f"{len(first.clips)} clips and {len(other.abnormal)} of {len(other.clips)}",
                    hint="score the same clips with every seed",
                )
        return replace(first, score=np.concatenate([part.score for part in parts]))

    def select(self, taken: NDArray[np.bool_]) -> FrameScores:
        """The selected frames, with the same clips."""
        return FrameScores(
            self.clips,
            self.clip[taken],
            self.abnormal[taken],
            self.score[:, taken],
            {name: frames[taken] for name, frames in self.classes.items()},
        )

    def measure_each(self, metric: MetricName = "auroc") -> list[float]:
        """The metric of each seed or draw."""
        rankings = [Ranking.of_scores(self.abnormal, score) for score in self.score]
        return [ranking.count().measure(metric) for ranking in rankings]

    def measure(self, metric: MetricName = "auroc") -> float:
        """Mean of the metric over seeds or draws; NaN if only one class is present."""
        return float(np.mean(self.measure_each(metric)))

    def by_class(self) -> dict[str, float]:
        """The AUROC of each class of anomaly against all normal frames."""
        return {
            name: self.select(shown | ~self.abnormal).measure()
            for name, shown in self.classes.items()
        }


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


def over_seeds(figures: Iterable[float]) -> Spread:
    """Mean and sample standard deviation (divided by n - 1) of a metric over seeds."""
    values = np.array([*figures], dtype=np.float64)
    if not len(values):
        return Spread(math.nan, math.nan, 0)
    std = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return Spread(float(values.mean()), std, len(values))


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
    redraw = _auroc_of_draws if metric == "auroc" else partial(_metric_of_draws, metric=metric)
    figures = np.mean([redraw(frames, score, draws) for score in frames.score], axis=0)
    return Resampled(frames.measure(metric), figures, frames.clips)


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


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Frames sorted once by descending score, for repeated counting.

    `order (n,)`, whether each is `abnormal (n,)`, and the end of each distinct score.
    """

    order: NDArray[np.int64]
    abnormal: LabelArray
    ends: NDArray[np.int64]

    @classmethod
    def of_scores(cls, abnormal: LabelArray, score: Values) -> Ranking:
        """The frames ranked by their score."""
        _check_labels(abnormal, score)
        order = np.argsort(score, kind="stable")[::-1]  # the highest score first
        descending = score[order]
        ends = np.flatnonzero(np.append(descending[1:] != descending[:-1], len(score) > 0))
        return cls(order, abnormal[order], ends)

    def count(self, times: NDArray[np.int64] | None = None) -> RankCounts:
        """The counts down to each score; `times (n,)`, in ranked order, weights the frames."""
        if times is None:
            times = np.ones(len(self.abnormal), dtype=np.int64)
        # equal scores share a threshold: counts at the last frame of each distinct score, (m,)
        hits = np.cumsum(times * self.abnormal)[self.ends]
        every = np.cumsum(times)[self.ends]
        return RankCounts(np.concatenate([[0], hits]), np.concatenate([[0], every - hits]))


@dataclass(frozen=True, slots=True, eq=False)
class RankCounts:
    """Counts of abnormal and normal frames at or above each score, from none to all, `(m,)`."""

    hits: NDArray[np.int64]
    alarms: NDArray[np.int64]

    def measure(self, metric: MetricName) -> float:
        """The metric of that name; NaN if only one class is present."""
        return {"auroc": self.auroc, "ap": self.ap, "eer": self.eer}[metric]()

    def auroc(self) -> float:
        """Area under the ROC curve."""
        if self._one_class:
            return math.nan
        pairs = float(self.hits[-1]) * float(self.alarms[-1])
        return float(np.trapezoid(self.hits, self.alarms)) / pairs

    def ap(self) -> float:
        """Average precision."""
        if self._one_class:
            return math.nan
        # no frame may be drawn at the highest scores: recall does not rise, so precision is moot
        precision = self.hits[1:] / np.maximum(self.hits[1:] + self.alarms[1:], 1)
        return float(np.sum(np.diff(self.hits) * precision) / self.hits[-1])

    def eer(self) -> float:
        """Equal error rate."""
        if self._one_class:
            return math.nan
        missed = 1 - self.hits / self.hits[-1]
        alarmed = self.alarms / self.alarms[-1]
        # alarmed - missed never decreases, from -1 to 1, as each score adds frames
        return float(np.interp(0.0, alarmed - missed, alarmed))

    @property
    def _one_class(self) -> bool:
        return not self.hits[-1] or not self.alarms[-1]


def _ranking(abnormal: ArrayLike, score: ArrayLike) -> Ranking:
    """Rank frames given as array-like labels and scores."""
    values = np.asarray(score)
    if values.dtype.kind not in "biuf":
        raise DataError(f"score: expected numbers, got {values.dtype}", hint="give one per frame")
    return Ranking.of_scores(mask_of(abnormal, "abnormal"), values)


def _check_labels(abnormal: LabelArray, score: Values) -> None:
    """Reject labels and scores that do not match."""
    if abnormal.ndim != 1 or abnormal.dtype != np.bool_ or abnormal.shape != score.shape:
        raise DataError(
            f"expected booleans and scores of one shape (n,), got {abnormal.dtype} "
            f"{abnormal.shape} and {score.dtype} {score.shape}",
            hint="give one label and one score per frame",
        )
    n_missing = int(np.isnan(score).sum())
    if n_missing:
        raise DataError(
            f"expected a score in every frame, got {n_missing} NaN among {len(score)}",
            hint="fill the frames without a score, or leave them out",
        )


def _metric_of_draws(
    frames: FrameScores, score: NDArray[np.float32], draws: NDArray[np.int64], metric: MetricName
) -> NDArray[np.float64]:
    """The metric of every draw, by counting frames down the ranking."""
    ranking = Ranking.of_scores(frames.abnormal, score)
    clip = frames.clip[ranking.order]  # a frame counts as often as its clip was drawn
    return np.array([ranking.count(times[clip]).measure(metric) for times in draws])


def _auroc_of_draws(
    frames: FrameScores, score: NDArray[np.float32], draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """AUROC of every draw: a clip drawn t times counts its pairs with every other clip t times."""
    n_clips = len(frames.clips)
    # pairs of an abnormal frame of one clip and a lower normal one of another, (clips, clips)
    won = np.zeros((n_clips, n_clips))
    ours, whose = score[frames.abnormal], frames.clip[frames.abnormal]
    for clip in range(n_clips):
        theirs = np.sort(score[~frames.abnormal & (frames.clip == clip)])
        below, equal_too = (np.searchsorted(theirs, ours, side=side) for side in ("left", "right"))
        won[:, clip] = np.bincount(whose, (below + equal_too) / 2, minlength=n_clips)
    # frames of either class in each draw, (draws,)
    abnormal, normal = (
        draws @ np.bincount(frames.clip[chosen], minlength=n_clips)
        for chosen in (frames.abnormal, ~frames.abnormal)
    )
    with np.errstate(invalid="ignore"):  # a draw of one class has no AUROC
        return np.einsum("ra,ab,rb->r", draws, won, draws, optimize=True) / (abnormal * normal)
