"""Boxes and joints: which belong together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from stepvad.people import best_pairs


@pytest.mark.parametrize("forbidden", [0.0, 0.4])
@pytest.mark.parametrize("levels", [1, 3, 1 << 20])
def test_pairs_have_the_largest_sum_whatever_the_shape_ties_and_forbidden_pairs(
    levels: int, forbidden: float
) -> None:
    rng = np.random.default_rng(7)
    possible = 0
    for _ in range(300):
        # few levels make ties; forbidden pairs are minus infinity
        shape = tuple(rng.integers(0, 9, 2))
        worth = rng.integers(-levels, levels + 1, shape) / 8
        worth[rng.random(shape) < forbidden] = -np.inf
        try:
            rows, columns = linear_sum_assignment(worth, maximize=True)
        except ValueError:  # no pair for some row
            with pytest.raises(ValueError, match="a pair for every row"):
                best_pairs(worth)
            continue
        pairs = best_pairs(worth)
        assert [len({*side}) for side in zip(*pairs, strict=True)] == [min(shape)] * 2 * bool(pairs)
        assert sum(worth[pair] for pair in pairs) == worth[rows, columns].sum()
        possible += 1
    assert possible > 100


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_pairs_of_no_number_are_refused_and_never_sought_for_ever(wrong: float) -> None:
    with pytest.raises(ValueError, match="infinities or NaN"):
        best_pairs(np.array([[1.0, wrong], [wrong, wrong]]))
