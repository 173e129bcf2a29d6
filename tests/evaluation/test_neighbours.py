"""Nearest neighbours found in blocks against all distances in float64."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad.evaluation.baselines import BLOCK, POINTS, QUERIES, Neighbours

Floats = NDArray[np.float32]


def by_hand(points: Floats, queries: Floats, k: int) -> NDArray[np.float64]:
    """All distances, one query after the other, the k smallest averaged."""
    wide = points.astype(np.float64)
    apart = [np.sort(np.sqrt(np.square(wide - q.astype(np.float64)).sum(axis=1))) for q in queries]
    return np.array([row[:k].mean() for row in apart])


def drawn(n: int, K: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal((n, K), dtype=np.float32)


@pytest.mark.parametrize("K", [1, 5])
@pytest.mark.parametrize(
    "N",
    [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7, POINTS - 1, POINTS, POINTS + 1, POINTS + 99],
)
def test_distances_are_those_of_a_search_through_all_points(N: int, K: int) -> None:
    points, queries = drawn(N, K), drawn(13, K, seed=1)
    for k in sorted({1, min(3, N), min(BLOCK + 5, N), N}):
        got = Neighbours(points, k).distances(queries)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, by_hand(points, queries, k), rtol=2e-7)


@given(
    N=st.integers(1, 3 * BLOCK),
    K=st.integers(1, 6),
    k=st.integers(1, 2 * BLOCK),
    step=st.sampled_from([1.0, 1e-3]),
    offset=st.sampled_from([0.0, 1.0, 1e3, 1e5]),
    seed=st.integers(0, 99),
)
def test_ties_and_doubles_change_nothing(
    N: int, K: int, k: int, step: float, offset: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    grid = rng.integers(0, 3, (N + 9, K)) * step + offset  # few places for many points
    points, queries = np.split(grid.astype(np.float32), [N])
    k = min(k, N)
    got = Neighbours(points, k).distances(queries)
    np.testing.assert_allclose(got, by_hand(points, queries, k), rtol=2e-7)


def test_the_mean_is_that_of_distances_and_not_of_their_squares() -> None:
    points = np.array([[0, 0], [3, 4], [0, 10]], np.float32)
    queries = np.zeros((1, 2), np.float32)
    for k, expected in ((1, 0), (2, 2.5), (3, 5)):
        assert Neighbours(points, k).distances(queries) == np.float32(expected)


def test_a_training_point_is_at_distance_zero_from_itself() -> None:
    points = drawn(2 * POINTS + 5, 4)
    assert not Neighbours(points).distances(points[::97]).any()
    doubled = np.concatenate([points[:100], points[:100], points[:100]])
    assert not Neighbours(doubled, 3).distances(points[:100]).any()
    assert Neighbours(doubled, 4).distances(points[:100]).all()


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_points_far_from_the_origin_are_told_apart(offset: float) -> None:
    # around 1e5, |p|² in float32 is known to a thousand only
    points, queries = drawn(3000, 6) + np.float32(offset), drawn(40, 6, seed=1) + np.float32(offset)
    for k in (1, 3):
        got = Neighbours(points, k).distances(queries)
        np.testing.assert_allclose(got, by_hand(points, queries, k), rtol=2e-7)


def test_groups_far_from_each_other_are_told_apart() -> None:
    # here no centre helps: every point is far from the middle, and near many others
    points = drawn(4000, 6)
    points += np.where(drawn(4000, 1, seed=1) > 0, np.float32(3000), np.float32(-3000))
    queries = points[:40] + np.float32(0.5) * drawn(40, 6, seed=2)
    for k in (1, 5):
        got = Neighbours(points, k).distances(queries)
        np.testing.assert_allclose(got, by_hand(points, queries, k), rtol=2e-7)


def test_neither_a_far_point_nor_a_far_query_disturbs_the_others() -> None:
    points, queries = drawn(2000, 4), drawn(20, 4, seed=1)
    points[777], queries[3] = 1e8, -1e8
    got = Neighbours(points, 2).distances(queries)
    np.testing.assert_allclose(got, by_hand(points, queries, 2), rtol=2e-7)


@pytest.mark.parametrize("n", [0, 1, QUERIES - 1, QUERIES, 2 * QUERIES + 3])
def test_any_number_of_queries_is_answered_one_by_one(n: int) -> None:
    neighbours, queries = Neighbours(drawn(500, 3), 2), drawn(n, 3, seed=1)
    got = neighbours.distances(queries)
    assert got.shape == (n,)
    assert got.dtype == np.float32
    alone = [neighbours.distances(query[None])[0] for query in queries]
    np.testing.assert_array_equal(got, np.array(alone, np.float32))


def test_points_and_queries_stay_as_they_were() -> None:
    points, queries = drawn(100, 3), drawn(5, 3, seed=1)
    Neighbours(points, 2).distances(queries)
    np.testing.assert_array_equal(points, drawn(100, 3))
    np.testing.assert_array_equal(queries, drawn(5, 3, seed=1))


def test_memory_stays_far_below_the_matrix_of_all_distances() -> None:
    points, queries = drawn(60_000, 8), drawn(2000, 8, seed=1)
    neighbours = Neighbours(points)
    tracemalloc.start()
    neighbours.distances(queries)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60_000 * 2000 * 4 / 20


TIMED = """
import time
import numpy as np
from stepvad.evaluation.baselines import Neighbours
rng = np.random.default_rng(0)
points, queries = (rng.standard_normal((n, 48), dtype=np.float32) for n in (300_000, 10_000))
begin = time.perf_counter()
Neighbours(points).distances(queries)
print(time.perf_counter() - begin)
"""


@pytest.mark.slow
def test_ten_thousand_windows_among_three_hundred_thousand_take_seconds() -> None:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    run = subprocess.run(
        [sys.executable, "-c", TIMED],
        env=os.environ | threads,
        check=True,
        capture_output=True,
        text=True,
    )
    assert float(run.stdout) < 30
