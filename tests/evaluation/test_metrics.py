"""Metrics against examples worked by hand and scikit-learn; intervals by how often they hold."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.metrics import (
    FrameScores,
    Interval,
    MetricName,
    Ranking,
    Spread,
    _auroc_of_draws,
    _metric_of_draws,
    auroc,
    average_precision,
    equal_error_rate,
    over_seeds,
    resample,
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
    ranking = Ranking.of_scores(abnormal, score)
    counts = ranking.count(times[ranking.order])
    repeated = np.repeat(np.arange(n), times)
    names: tuple[MetricName, ...] = ("auroc", "ap", "eer")
    for name, metric in zip(names, METRICS, strict=True):
        expected = metric(abnormal[repeated], score[repeated])
        assert counts.measure(name) == pytest.approx(expected, abs=1e-12)


def mask(*values: int) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


@pytest.fixture
def frames() -> FrameScores:
    """Two clips of three frames; a run is found, a fall half of the time."""
    return FrameScores(
        clips=("yard", "door"),
        clip=np.array([0, 0, 0, 1, 1, 1]),
        abnormal=mask(1, 0, 0, 1, 1, 0),
        score=np.array([[9, 1, 3, 2, 2, 2]], dtype=np.float32),
        classes={"run": mask(1, 0, 0, 0, 0, 0), "fall": mask(0, 0, 0, 1, 1, 0)},
    )


def test_a_class_is_measured_against_all_normal_frames_and_no_other_anomaly(
    frames: FrameScores,
) -> None:
    # the run's 9 beats 1 3 2; each fall's 2 beats 1, ties with 2 and loses to 3
    assert frames.by_class() == {"run": 1.0, "fall": 0.5}


def test_all_classes_together_are_the_figure(frames: FrameScores) -> None:
    assert frames.measure() == pytest.approx((1.0 + 0.5 + 0.5) / 3)
    # down to 9: 1 of 1; down to 3: 1 of 2; down to 2: 3 of 5
    assert frames.measure("ap") == pytest.approx((1 + 3 / 5 + 3 / 5) / 3)


def test_seeds_are_rows_and_the_figure_is_their_mean(frames: FrameScores) -> None:
    worst = replace(frames, score=-frames.score)
    both = FrameScores.of_seeds([frames, worst])
    assert both.score.shape == (2, 6)
    assert both.measure_each() == [frames.measure(), worst.measure()]
    assert both.measure() == pytest.approx(0.5)


def test_seeds_on_different_frames_are_refused(frames: FrameScores) -> None:
    fewer = frames.select(mask(1, 1, 1, 1, 1, 0))
    with pytest.raises(DataError, match="got 6 of 2 clips and 5 of 2"):
        FrameScores.of_seeds([frames, fewer])


def test_frames_of_different_number_are_refused(frames: FrameScores) -> None:
    with pytest.raises(DataError, match=r"expected scores of shape \(S, 6\)"):
        replace(frames, score=frames.score[0])
    with pytest.raises(DataError, match=r"expected scores of shape \(S, 6\)"):
        replace(frames, clip=frames.clip[1:])
    with pytest.raises(DataError, match="clips numbered from 0 to 0, got 0 to 1"):
        replace(frames, clips=("yard",))


NAMES: tuple[MetricName, ...] = ("auroc", "ap", "eer")


def clips_of(*clips: tuple[Sequence[int], Sequence[float]]) -> FrameScores:
    """Clips given as the truth and the score of every frame."""
    return FrameScores(
        clips=tuple(f"clip {n}" for n in range(len(clips))),
        clip=np.repeat(np.arange(len(clips)), [len(truth) for truth, _ in clips]),
        abnormal=np.concatenate([np.array(truth, dtype=np.bool_) for truth, _ in clips]),
        score=np.concatenate([np.array(score, np.float32) for _, score in clips])[None],
    )


def random_clips(rng: np.random.Generator, n_clips: int, *, methods: int = 1) -> FrameScores:
    """Independent clips of 20 to 60 frames, four of five with an event of random strength.

    Each clip has a level of its own, so its frames are far from independent; every further method
    sees the same clips and events, a little more clearly.
    """
    truths, scores = [], []
    for _ in range(n_clips):
        n = int(rng.integers(20, 60))
        truth = np.zeros(n, dtype=np.bool_)
        if rng.random() < 0.8:
            length = int(rng.integers(5, n // 2))
            first = int(rng.integers(n - length))
            truth[first : first + length] = True
        shared = rng.normal(0, 0.7) + truth * rng.normal(1.5, 0.7)
        scores.append([shared + 0.3 * m * truth + rng.normal(0, 1, n) for m in range(methods)])
        truths.append(truth)
    clip = np.repeat(np.arange(n_clips), [len(truth) for truth in truths])
    names = tuple(map(str, range(n_clips)))
    return FrameScores(names, clip, np.concatenate(truths), np.concatenate(scores, axis=1))


def one_method(frames: FrameScores, number: int) -> FrameScores:
    return FrameScores(frames.clips, frames.clip, frames.abnormal, frames.score[[number]])


def over_clips(
    frames: FrameScores, metric: MetricName = "auroc", *, level: float = 0.95, **draws: int
) -> Interval:
    return resample(frames, metric, **draws).interval(level)


def difference(
    frames: FrameScores, other: FrameScores, metric: MetricName = "auroc", **draws: int
) -> Interval:
    one, two = (resample(some, metric, **draws) for some in (frames, other))
    return one.minus(two).interval()


def test_the_interval_of_two_clips_spans_all_that_can_be_drawn() -> None:
    # the first clip alone is ranked right, the second wrong, both together by one half; with one
    # degree of freedom the percentiles of Student's distribution are the extremes
    frames = clips_of(([1, 0], [2, 1]), ([1, 0], [1, 2]))
    assert over_clips(frames) == Interval(0.5, 0.0, 1.0)


def test_draws_take_whole_clips_and_measure_all_their_frames_anew() -> None:
    frames = random_clips(np.random.default_rng(3), 12)
    draws = np.random.default_rng(7).multinomial(12, np.full(12, 1 / 12), size=60)
    figures = []
    for draw in draws:
        taken = np.concatenate(
            [np.flatnonzero(frames.clip == clip) for clip in np.repeat(np.arange(12), draw)]
        )
        figures.append(auroc(frames.abnormal[taken], frames.score[0, taken]))
    t = stats.t.ppf(0.95, 11) * math.sqrt(12 / 11)
    low, high = np.quantile(figures, [stats.norm.cdf(-t), stats.norm.cdf(t)])
    found = over_clips(frames, level=0.9, resamples=60, seed=7)
    assert found.value == auroc(frames.abnormal, frames.score[0])
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)


def test_a_higher_level_is_a_wider_interval_around_the_figure() -> None:
    frames = random_clips(np.random.default_rng(1), 20)
    narrow, wide = (over_clips(frames, level=level, resamples=300) for level in (0.5, 0.95))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_the_same_seed_gives_the_same_interval_and_another_one_nearly_so() -> None:
    frames = random_clips(np.random.default_rng(1), 20)
    once, again, other = (over_clips(frames, "ap", seed=seed) for seed in (0, 0, 1))
    assert once == again != other
    assert (once.low, once.high) == pytest.approx((other.low, other.high), abs=0.03)


def test_a_method_does_not_differ_from_itself() -> None:
    frames = random_clips(np.random.default_rng(1), 10)
    assert difference(frames, frames, resamples=50) == Interval(0.0, 0.0, 0.0)


def test_a_difference_is_the_first_minus_the_other() -> None:
    right, wrong = clips_of(*[([1, 0], [2, 1])] * 3), clips_of(*[([1, 0], [1, 2])] * 3)
    assert difference(right, wrong, resamples=20) == Interval(1.0, 1.0, 1.0)
    assert difference(right, wrong, "eer", resamples=20) == Interval(-1.0, -1.0, -1.0)


def test_pairing_takes_out_what_makes_a_clip_hard_for_both() -> None:
    both = random_clips(np.random.default_rng(0), 30, methods=2)
    first, second = (one_method(both, number) for number in (0, 1))
    paired = difference(second, first)
    single = over_clips(first)
    assert paired.value == pytest.approx(second.measure() - first.measure())
    assert paired.low > 0  # the lead is sure although the intervals of both overlap
    assert over_clips(second).low < single.high
    assert paired.high - paired.low < 0.6 * (single.high - single.low)


def test_two_methods_may_cover_different_frames_of_the_same_clips() -> None:
    frames = random_clips(np.random.default_rng(0), 10)
    fewer = frames.select(np.arange(len(frames.clip)) % 3 > 0)
    found = difference(frames, fewer, resamples=50)
    assert found.value == pytest.approx(frames.measure() - fewer.measure())


def test_methods_on_different_clips_have_no_paired_difference() -> None:
    frames = random_clips(np.random.default_rng(0), 3)
    other = FrameScores(("a", "b", "c"), frames.clip, frames.abnormal, frames.score)
    with pytest.raises(DataError, match="expected two methods on the same clips, got 3 and 3"):
        difference(frames, other)


def test_the_figure_of_several_seeds_is_their_mean_in_every_draw() -> None:
    both = random_clips(np.random.default_rng(2), 15, methods=2)
    parts = [one_method(both, number) for number in (0, 1)]
    assert over_clips(both).value == pytest.approx(np.mean([part.measure() for part in parts]))
    same = FrameScores.of_seeds([parts[0], parts[0], parts[0]])
    twice, once = over_clips(same, resamples=100), over_clips(parts[0], resamples=100)
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


def test_draws_without_both_classes_are_left_out() -> None:
    frames = clips_of(([1, 1], [3, 2]), ([0, 0], [1, 2]), ([0], [0]))
    found = over_clips(frames, resamples=200)
    assert found.value == pytest.approx(5.5 / 6)
    assert 0.5 < found.low <= found.value <= found.high == 1.0


@pytest.mark.parametrize(
    "frames",
    [
        clips_of(([1, 0], [2, 1])),
        clips_of(([0, 0], [2, 1]), ([0], [1])),
        clips_of(([1], [2]), ([1], [1])),
    ],
    ids=["one clip", "all normal", "all abnormal"],
)
def test_there_is_no_interval_of_one_clip_or_one_class(frames: FrameScores) -> None:
    found = over_clips(frames, resamples=10)
    assert math.isnan(found.low)
    assert math.isnan(found.high)


def test_no_clips_have_no_figure_and_no_interval() -> None:
    nothing = np.empty(0, dtype=np.int64)
    frames = FrameScores((), nothing, nothing.astype(np.bool_), np.empty((1, 0), np.float32))
    assert all(map(math.isnan, (over_clips(frames).value, over_clips(frames).low)))


@pytest.mark.parametrize(("level", "resamples"), [(0.0, 10), (1.0, 10), (95, 10), (0.9, 0)])
def test_an_interval_that_cannot_be_is_refused(level: float, resamples: int) -> None:
    frames = clips_of(([1, 0], [2, 1]))
    with pytest.raises(ConfigError, match=f"got {resamples if resamples == 0 else level}$"):
        over_clips(frames, level=level, resamples=resamples)


def test_the_spread_over_seeds_divides_by_one_less_than_their_number() -> None:
    found = over_seeds([0.8, 0.9, 1.0])
    assert (found.mean, found.std) == pytest.approx((0.9, 0.1))
    assert found.n == 3


def test_one_seed_has_no_spread_and_none_no_mean() -> None:
    one, none = over_seeds([0.7]), over_seeds([])
    assert (one.mean, one.n, none.n) == (0.7, 1, 0)
    assert all(map(math.isnan, (one.std, none.mean, none.std)))
    assert isinstance(one, Spread)


def coverage(metric: MetricName, *, draws: int = 500, n_clips: int = 40) -> float:
    """How often the interval of a few clips holds the figure of very many."""
    rng = np.random.default_rng(2026)
    truth = random_clips(rng, 30_000).measure(metric)
    found = [
        over_clips(random_clips(rng, n_clips), metric, resamples=400, seed=draw)
        for draw in range(draws)
    ]
    return float(np.mean([interval.low <= truth <= interval.high for interval in found]))


def coverage_of_differences(*, draws: int = 500, n_clips: int = 40) -> float:
    """How often the interval of a paired difference holds that of very many clips."""
    rng = np.random.default_rng(2027)
    many = random_clips(rng, 30_000, methods=2)
    truth = one_method(many, 1).measure() - one_method(many, 0).measure()
    hits = []
    for draw in range(draws):
        both = random_clips(rng, n_clips, methods=2)
        found = difference(one_method(both, 1), one_method(both, 0), resamples=400, seed=draw)
        hits.append(found.low <= truth <= found.high)
    return float(np.mean(hits))


@pytest.mark.slow
@pytest.mark.parametrize("metric", NAMES if os.environ.get("STEPVAD_LONG_TESTS") else NAMES[:1])
def test_intervals_hold_the_true_figure_as_often_as_they_say(metric: MetricName) -> None:
    assert coverage(metric) == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
def test_intervals_of_differences_hold_the_true_one_as_often_as_they_say() -> None:
    assert coverage_of_differences() == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
def test_an_interval_of_sixty_thousand_frames_takes_seconds() -> None:
    rng = np.random.default_rng(0)
    abnormal = rng.random(60_000) < 0.3
    score = (rng.standard_normal(60_000) + abnormal).astype(np.float32)
    names = tuple(map(str, range(150)))
    frames = FrameScores(names, np.repeat(np.arange(150), 400), abnormal, score[None])
    begin = time.process_time()
    over_clips(frames, resamples=1000)
    assert time.process_time() - begin < 10


def test_pairs_of_clips_give_the_auroc_that_counting_gives() -> None:
    rng = np.random.default_rng(4)
    clip = rng.integers(7, size=500)
    frames = FrameScores(
        tuple("abcdefgh"),  # nothing of the last clip is left
        clip,
        (rng.random(500) < 0.3) & (clip != 2),
        rng.integers(40, size=(2, 500)).astype(np.float32),  # many are equal
    )
    draws = rng.multinomial(8, np.full(8, 1 / 8), size=50)
    draws[0] = np.eye(8, dtype=np.int64)[2] * 8  # one class alone
    for score in frames.score:
        expected = _metric_of_draws(frames, score, draws, "auroc")
        assert np.isnan(expected[0])
        np.testing.assert_allclose(_auroc_of_draws(frames, score, draws), expected, rtol=1e-12)
