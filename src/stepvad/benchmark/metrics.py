"""How well a score tells abnormal frames from normal ones: AUROC, AP, EER (Sec. 4.1)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError

Labels = NDArray[np.bool_]
Values = NDArray[np.floating] | NDArray[np.integer]


def auroc(abnormal: Labels, score: Values) -> float:
    """Area under the ROC curve: how often an abnormal frame scores above a normal one.

    Equal scores count one half. NaN where only one class is present.
    """
    hits, alarms = _counts_down_to_each_score(abnormal, score)
    if not hits[-1] or not alarms[-1]:
        return math.nan
    return float(np.trapezoid(hits / hits[-1], alarms / alarms[-1]))


def average_precision(abnormal: Labels, score: Values) -> float:
    """AP = Σ_n (R_n - R_{n-1}) P_n over the distinct scores, abnormal being the positive class.

    Equal scores share one threshold. NaN where only one class is present.
    """
    hits, alarms = _counts_down_to_each_score(abnormal, score)
    if not hits[-1] or not alarms[-1]:
        return math.nan
    precision = hits[1:] / (hits[1:] + alarms[1:])
    return float(np.sum(np.diff(hits) * precision) / hits[-1])


def equal_error_rate(abnormal: Labels, score: Values) -> float:
    """EER: where the share of abnormal frames missed equals the share of normal ones alarmed.

    Where no threshold makes the two shares equal, the ROC curve is taken as linear between its
    two nearest points. NaN where only one class is present.
    """
    hits, alarms = _counts_down_to_each_score(abnormal, score)
    if not hits[-1] or not alarms[-1]:
        return math.nan
    missed = 1 - hits / hits[-1]
    alarmed = alarms / alarms[-1]
    # alarmed - missed rises from -1 to 1, strictly: each score adds a frame to one side or both
    return float(np.interp(0.0, alarmed - missed, alarmed))


def _counts_down_to_each_score(
    abnormal: Labels, score: Values
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Abnormal and normal frames that score as much or more, from none to all."""
    _check(abnormal, score)
    order = np.argsort(score, kind="stable")[::-1]
    descending = score[order]
    last_of_equals = np.flatnonzero(np.append(descending[1:] != descending[:-1], len(score) > 0))
    hits = np.cumsum(abnormal[order], dtype=np.int64)[last_of_equals]
    alarms = last_of_equals + 1 - hits
    return np.concatenate([[0], hits]), np.concatenate([[0], alarms])


def _check(abnormal: Labels, score: Values) -> None:
    """Refuse labels and scores that do not belong together."""
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
