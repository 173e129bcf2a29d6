"""Eq. 6 in closed form: π(x) whitens, and is exact on the span of the top K components."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.config import Config
from stepvad.errors import DataError
from stepvad.model.pcspace import Moments, PCSpace
from stepvad.skeletons import COCO17, STEP18
from stepvad.windows.body import standardise

Floats = NDArray[np.float32]


def stretched(n: int, D: int, *, seed: int = 0) -> Floats:
    """Vectors around a mean far from 0, along D crossed directions of very different spread."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(D, D)))[0] * np.geomspace(3, 0.1, D)
    return (rng.normal(size=(n, D)) @ axes.T + rng.normal(size=D)).astype(np.float32)


def split(rows: Floats, sizes: list[int]) -> Iterator[Floats]:
    """The rows in batches of these sizes, the rest in a last one."""
    first = 0
    for size in sizes:
        if rows[first : first + size].size:
            yield rows[first : first + size]
        first += size
    if rows[first:].size:
        yield rows[first:]


def fitted(rows: Floats, K: int, *, whiten: bool = True) -> PCSpace:
    return PCSpace.fit(Moments.measure([rows], rows.shape[1]), K, whitening=float(whiten))


def test_whitened_training_windows_have_mean_zero_and_identity_covariance() -> None:
    rows = stretched(5000, 24)
    pi_x = fitted(rows, 10).project(rows.reshape(-1, 2, 3, 4)).astype(np.float64)
    assert pi_x.shape == (5000, 10)
    np.testing.assert_allclose(pi_x.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(pi_x.T, bias=True), np.eye(10), atol=1e-3)


def test_projection_by_hand() -> None:
    # around μ = (1, 1) the variance is (4² + 4²) / 4 = 8 along x and (2² + 2²) / 4 = 2 along y
    rows = np.array([[5, 1], [-3, 1], [1, 3], [1, -1]], dtype=np.float32)
    space = PCSpace.fit(Moments.measure([rows], 2), 2)
    np.testing.assert_allclose(space.mu, [1, 1])
    np.testing.assert_allclose(space.Lambda_K, [8, 2])
    x = np.array([[7, 2]], dtype=np.float32).reshape(1, 2, 1, 1)
    np.testing.assert_allclose(space.project(x), [[6 / np.sqrt(8), 1 / np.sqrt(2)]], rtol=1e-6)


def test_going_back_and_forth_is_exact_on_the_span_of_the_components() -> None:
    space = fitted(stretched(2000, 24), 10)
    z = np.random.default_rng(1).normal(size=(50, 10)).astype(np.float32)
    x = space.reconstruct(z, (2, 3, 4))
    assert x.shape == (50, 2, 3, 4)
    np.testing.assert_allclose(space.project(x), z, atol=2e-5)
    np.testing.assert_allclose(space.reconstruct(space.project(x), (2, 3, 4)), x, atol=1e-5)


def test_what_reconstruction_loses_is_orthogonal_to_every_component() -> None:
    rows = stretched(2000, 24)
    space = fitted(rows, 10)
    kept = space.reconstruct(space.project(rows[:50]), (2, 3, 4)).reshape(50, -1)
    lost = rows[:50] - kept
    assert np.abs(lost).max() > 0.1
    np.testing.assert_allclose(lost @ space.W_K, 0, atol=1e-5)


def test_all_components_together_lose_nothing() -> None:
    rows = stretched(500, 12)
    space = fitted(rows, 12)
    np.testing.assert_allclose(
        space.reconstruct(space.project(rows), (2, 3, 2)).reshape(rows.shape), rows, atol=1e-5
    )


def test_without_whitening_the_components_keep_their_scale() -> None:
    rows = stretched(5000, 12)
    space, white = fitted(rows, 5, whiten=False), fitted(rows, 5)
    pi_x = space.project(rows)
    np.testing.assert_allclose(pi_x.var(axis=0), space.Lambda_K, rtol=1e-4)
    np.testing.assert_allclose(pi_x, white.project(rows) * np.sqrt(white.Lambda_K), atol=1e-4)
    np.testing.assert_allclose(
        space.reconstruct(pi_x, (2, 3, 2)),
        white.reconstruct(white.project(rows), (2, 3, 2)),
        atol=1e-4,
    )


def test_components_are_orthonormal_and_in_order_of_their_variance() -> None:
    rows = stretched(2000, 24)
    space = fitted(rows, 24)
    np.testing.assert_allclose(space.W_K.T @ space.W_K, np.eye(24), atol=1e-5)
    assert (np.diff(space.Lambda_K) < 0).all()
    spread = ((rows - space.mu) @ space.W_K).var(axis=0)
    np.testing.assert_allclose(spread, space.Lambda_K, rtol=1e-3)


def test_the_largest_entry_of_every_component_is_positive() -> None:
    for seed in range(5):
        W_K = fitted(stretched(200, 12, seed=seed), 12).W_K
        largest = np.abs(W_K).argmax(axis=0)
        assert (W_K[largest, np.arange(12)] > 0).all()


@given(st.lists(st.integers(1, 40), max_size=12), st.sampled_from([0.0, 1e5]))
def test_moments_do_not_depend_on_how_the_data_are_split(sizes: list[int], offset: float) -> None:
    # 2^-6 steps: a mean of 1e5 in float32 leaves the rows exact
    steps = np.random.default_rng(0).integers(-200, 200, size=(150, 4)) / 64
    rows = (steps * [1, 2, 0.5, 4] + offset).astype(np.float32)
    moments = Moments.measure(split(rows, sizes), 4)
    assert moments.n == 150
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0, dtype=np.float64), rtol=1e-14)
    expected = np.cov((rows - np.float64(offset)).T, bias=True)
    np.testing.assert_allclose(moments.covariance, expected, rtol=1e-9, atol=1e-9)


def test_moments_of_nothing_count_nothing() -> None:
    moments = Moments.measure([], 3)
    assert moments.n == 0
    assert not moments.mean.any()
    assert not moments.covariance.any()


def test_moments_leave_the_batches_as_they_were() -> None:
    rows = stretched(20, 6)
    before = rows.copy()
    Moments.measure([rows], 6)
    np.testing.assert_array_equal(rows, before)


def test_projection_leaves_the_windows_as_they_were() -> None:
    rows = stretched(100, 12)
    x, z = rows.copy(), np.ones((3, 4), dtype=np.float32)
    space = fitted(rows, 4)
    space.project(x)
    space.reconstruct(z, (2, 3, 2))
    np.testing.assert_array_equal(x, rows)
    assert (z == 1).all()


def test_fewer_windows_than_components_name_the_rank() -> None:
    with pytest.raises(DataError, match=r"K: expected at most 7, the rank of 8 windows .* got 8"):
        fitted(stretched(8, 24), 8)  # n points around their mean span n - 1 directions
    assert fitted(stretched(9, 24), 8).W_K.shape == (24, 8)


def test_more_components_than_numbers_in_a_window_name_the_rank() -> None:
    with pytest.raises(DataError, match=r"K: expected at most 12, .* of 12 numbers, got 13"):
        fitted(stretched(500, 12), 13)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -2.7, 1e4 / 3])
def test_windows_without_any_variation_have_rank_zero(value: float) -> None:
    rows = np.full((1000, 12), value, dtype=np.float32)
    with pytest.raises(DataError, match=r"K: expected at most 0, .* got 1") as error:
        fitted(rows, 1)
    assert error.value.hint == "choose a smaller K or fit on more footage"


def test_a_copied_coordinate_does_not_raise_the_rank() -> None:
    rows = stretched(300, 6)
    with pytest.raises(DataError, match="at most 6"):
        fitted(np.concatenate([rows, rows], axis=1), 7)


def test_18_joints_with_a_neck_from_the_shoulders_have_rank_34_T_minus_2() -> None:
    # 17 free joints in 2 T numbers each; centring x and y takes two more away
    T = 2
    rng = np.random.default_rng(0)
    coco = rng.normal(size=(400 * T, 17, 2)).astype(np.float32) * 30 + 400
    joints = skeletons.convert(coco, COCO17, STEP18).reshape(400, T, 18, 2)
    x, _ = standardise(joints.transpose(0, 3, 2, 1), Config(T=T, K=1))
    rows = x.reshape(400, -1)
    assert fitted(rows, 34 * T - 2).W_K.shape == (72, 66)
    with pytest.raises(DataError, match=f"at most {34 * T - 2}, the rank of 400 windows"):
        fitted(rows, 34 * T - 1)


def test_half_of_the_whitening_keeps_the_mean_square_and_a_part_of_the_differences() -> None:
    rows = np.random.default_rng(0).normal(size=(4000, 5)).astype(np.float32) * [9, 4, 2, 1, 0.5]
    half = PCSpace.fit(Moments.measure([rows.astype(np.float32)], 5), 5, whitening=0.5)
    spread = half.project(rows.astype(np.float32).reshape(-1, 1, 5, 1)).std(axis=0)
    assert np.square(spread).mean() == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_allclose(spread / spread[-1], np.sqrt([18, 8, 4, 2, 1]), rtol=0.05)
    shape = (1, 5, 1)
    back = half.reconstruct(half.project(rows[:9].astype(np.float32).reshape(-1, *shape)), shape)
    np.testing.assert_allclose(back.reshape(9, 5), rows[:9], rtol=1e-3, atol=1e-3)
