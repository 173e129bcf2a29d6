"""How well a score separates abnormal from normal frames: AUROC, AP, EER (Sec. 4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad.errors import DataError
from stepvad.formats.labels import mask_of

LabelArray = NDArray[np.bool_]
Values = NDArray[np.floating] | NDArray[np.integer]
MetricName = Literal["auroc", "ap", "eer"]


def auroc(abnormal: ArrayLike, score: ArrayLike) -> float:
    """Area under the ROC curve: how often an abnormal frame scores above a normal one.

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
class RankCounts:
    """Counts of abnormal and normal frames at or above each score, from none to all, `(m,)`."""

    hits: NDArray[np.int64]
    alarms: NDArray[np.int64]

    def measure(self, metric: MetricName) -> float:
        """The metric of that name; NaN if only one class is present."""
        match metric:
            case "auroc":
                return self.auroc()
            case "ap":
                return self.ap()
            case "eer":
                return self.eer()

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


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Frames sorted once by descending score, for repeated counting.

    `order (n,)`, whether each is `abnormal (n,)`, and the end of each distinct score.
    """

    order: NDArray[np.int64]
    abnormal: LabelArray
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, abnormal: LabelArray, score: Values) -> Ranking:
        """The frames ranked by their score."""
        _check(abnormal, score)
        order = np.argsort(score, kind="stable")[::-1]
        descending = score[order]
        ends = np.flatnonzero(np.append(descending[1:] != descending[:-1], len(score) > 0))
        return cls(order, abnormal[order], ends)

    def count(self, times: NDArray[np.int64] | None = None) -> RankCounts:
        """The counts down to each score; `times (n,)`, in ranked order, weights the frames."""
        if times is None:
            hits = np.cumsum(self.abnormal, dtype=np.int64)[self.ends]
            every = self.ends + 1
        else:
            hits = np.cumsum(times * self.abnormal)[self.ends]
            every = np.cumsum(times)[self.ends]
        return RankCounts(np.concatenate([[0], hits]), np.concatenate([[0], every - hits]))


def _ranking(abnormal: ArrayLike, score: ArrayLike) -> Ranking:
    """Rank frames given as array-like labels and scores."""
    values = np.asarray(score)
    if values.dtype.kind not in "biuf":
        raise DataError(f"score: expected numbers, got {values.dtype}", hint="give one per frame")
    return Ranking.of(mask_of(abnormal, "abnormal"), values)


def _check(abnormal: LabelArray, score: Values) -> None:
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
