"""Metrics against examples worked by hand and against scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from stepvad.errors import DataError
from stepvad.evaluation.metrics import (
    MetricName,
    Ranking,
    auroc,
    average_precision,
    equal_error_rate,
)

Metric = Callable[[NDArray[np.bool_], NDArray[Any]], float]
METRICS = (auroc, average_precision, equal_error_rate)


def labels(*values: int) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


def test_auroc_counts_the_pairs_in_the_right_order_and_half_of_the_ties() -> None:
    # pairs (abnormal, normal): (3, 1) right, (3, 2) right, (2, 1) right, (2, 2) tie -> 3.5 of 4
    assert auroc(labels(1, 1, 0, 0), np.array([3.0, 2.0, 1.0, 2.0])) == 3.5 / 4


def test_a_constant_score_tells_nothing() -> None:
    abnormal, score = labels(1, 0, 0, 0), np.zeros(4)
    assert auroc(abnormal, score) == 0.5
    assert average_precision(abnormal, score) == 0.25
    assert equal_error_rate(abnormal, score) == 0.5


def test_equal_error_rate_is_linear_between_two_points_of_the_roc() -> None:
    # (alarmed, missed) goes (0, 2/3), then with the tie at 2 straight to (1/2, 0):
    # at a share t of the way t/2 = 2/3 (1 - t), so t = 4/7
    abnormal, score = labels(1, 1, 1, 0, 0), np.array([3, 2, 2, 2, 1])
    assert equal_error_rate(abnormal, score) == pytest.approx(2 / 7)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("abnormal", [labels(), labels(1, 1, 1), labels(0, 0)])
def test_one_class_alone_has_no_metric(metric: Metric, abnormal: NDArray[np.bool_]) -> None:
    assert math.isnan(metric(abnormal, np.arange(len(abnormal), dtype=np.float32)))


@pytest.mark.parametrize("metric", METRICS)
def test_a_frame_without_a_score_is_refused(metric: Metric) -> None:
    with pytest.raises(DataError, match="got 1 NaN among 3; fill the frames"):
        metric(labels(1, 0, 0), np.array([1.0, np.nan, 2.0]))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("abnormal", "score"),
    [
        (labels(1, 0), np.zeros(3)),
        (np.zeros((2, 2), dtype=np.bool_), np.zeros((2, 2))),
        (np.array([1, 0, 2]), np.zeros(3)),
        (labels(1, 0), np.array(["high", "low"])),
    ],
)
def test_labels_and_scores_that_do_not_belong_together_are_refused(
    metric: Metric, abnormal: NDArray[np.bool_], score: NDArray[np.float64]
) -> None:
    with pytest.raises(DataError, match=r"give one .*per frame"):
        metric(abnormal, score)


@pytest.mark.parametrize("metric", METRICS)
def test_labels_may_be_zeros_and_ones_and_both_may_be_lists(
    metric: Callable[[ArrayLike, ArrayLike], float],
) -> None:
    expected = metric(labels(0, 1, 0, 1), np.array([0.1, 0.4, 0.5, 0.9]))
    assert metric([0, 1, 0, 1], [0.1, 0.4, 0.5, 0.9]) == expected
    assert metric(np.array([0, 1, 0, 1], np.uint8), [0.1, 0.4, 0.5, 0.9]) == expected
    assert not np.isnan(expected)


def test_infinite_scores_are_scores_like_others() -> None:
    score = np.array([np.inf, np.inf, 0.0, -np.inf])
    assert auroc(labels(1, 0, 1, 0), score) == 2.5 / 4


@given(
    n=st.integers(2, 400),
    levels=st.integers(1, 500),
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from([np.float32, np.float64, np.int64, np.uint8]),
)
def test_metrics_equal_those_of_scikit_learn(
    n: int, levels: int, seed: int, dtype: type[np.generic]
) -> None:
    rng = np.random.default_rng(seed)
    abnormal = rng.random(n) < rng.uniform(0.1, 0.9)
    abnormal[:2] = True, False
    score = rng.integers(levels, size=n).astype(dtype)
    assert auroc(abnormal, score) == pytest.approx(roc_auc_score(abnormal, score), abs=1e-12)
    expected = average_precision_score(abnormal, score)
    assert average_precision(abnormal, score) == pytest.approx(expected, abs=1e-12)


@given(n=st.integers(2, 300), levels=st.integers(1, 80), seed=st.integers(0, 2**32))
def test_equal_error_rate_is_where_the_roc_of_scikit_learn_crosses_the_diagonal(
    n: int, levels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    abnormal = rng.random(n) < rng.uniform(0.1, 0.9)
    abnormal[:2] = True, False
    score = rng.integers(levels, size=n)
    alarmed, found, _ = roc_curve(abnormal, score, drop_intermediate=False)
    crossings = []
    for (x, y), (next_x, next_y) in pairwise(zip(alarmed, found, strict=True)):
        before, after = x + y - 1, next_x + next_y - 1  # alarmed minus missed
        if before <= 0 <= after:
            crossings.append(x - before / (after - before) * (next_x - x))
    assert crossings
    for crossing in crossings:  # two where a threshold lies on the diagonal itself
        assert equal_error_rate(abnormal, score) == pytest.approx(crossing, abs=1e-12)


@given(n=st.integers(2, 100), levels=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_a_frame_that_counts_several_times_is_that_many_frames(
    n: int, levels: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    abnormal, score = rng.random(n) < 0.4, rng.integers(levels, size=n)
    times = rng.integers(4, size=n) * (rng.random(n) < 0.7)
    abnormal[:2], times[:2] = (True, False), 1
    ranking = Ranking.of(abnormal, score)
    counts = ranking.count(times[ranking.order])
    repeated = np.repeat(np.arange(n), times)
    names: tuple[MetricName, ...] = ("auroc", "ap", "eer")
    for name, metric in zip(names, METRICS, strict=True):
        expected = metric(abnormal[repeated], score[repeated])
        assert counts.measure(name) == pytest.approx(expected, abs=1e-12)
