"""Contributions make the score, whatever the aggregation, and lie where the window differs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.config import Aggregation
from stepvad.detector import Detector
from stepvad.explain import attribution, ghosts
from stepvad.explain.attribution import Attribution, attribute
from stepvad.model.pcspace import PCSpace
from stepvad.windows import WindowIndex, Windows


def taken_apart(
    detector: Detector, windows: Windows, normal: NDArray[np.float32] | None = None
) -> Attribution:
    space = detector.model.space
    assert isinstance(space, PCSpace)
    if normal is None:
        normal = ghosts.nearest_normal(detector, space, space.project(windows.x))
    return attribute(detector, space, windows.x, windows.weight(detector.config), normal)


def with_aggregation(detector: Detector, aggregation: Aggregation) -> Detector:
    config = replace(detector.config, aggregation=aggregation)
    return Detector(replace(detector.model, config=config))


@pytest.mark.parametrize("aggregation", ["max", "sum", "top2", "top3", 4])
def test_base_and_contributions_make_the_score(
    detector: Detector, index: WindowIndex, aggregation: Aggregation
) -> None:
    other, windows = with_aggregation(detector, aggregation), index.windows(slice(0, None, 17))
    taken = taken_apart(other, windows)
    A = other.score_windows(windows).A
    assert A.max() > 4
    np.testing.assert_allclose(taken.score, A, atol=1e-4)
    total = taken.base + taken.contributions.sum(axis=(1, 2))
    atol = 1e-4 if aggregation != "sum" else 1e-3  # ten energies, each to its own
    np.testing.assert_allclose(total, A, rtol=0, atol=atol)


def test_they_make_it_from_any_start(detector: Detector, index: WindowIndex) -> None:
    windows = index.windows(slice(0, None, 40))
    mean_motion = np.zeros((len(windows), detector.config.K), dtype=np.float32)
    taken = taken_apart(detector, windows, mean_motion)
    total = taken.base + taken.contributions.sum(axis=(1, 2))
    np.testing.assert_allclose(total, detector.score_windows(windows).A, rtol=0, atol=1e-4)
    assert len(set(taken.base.round(4))) > 1  # the deciding scale and c(x) are the window's own


def test_too_few_nodes_would_not_do(
    detector: Detector, index: WindowIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = index.windows(slice(0, None, 17))
    monkeypatch.setattr(attribution, "NODES", 2)
    monkeypatch.setattr(attribution, "MAX_NODES", 2)
    taken = taken_apart(detector, windows)
    total = taken.base + taken.contributions.sum(axis=(1, 2))
    assert np.abs(total - taken.score).max() > 1e-3


def test_what_lies_outside_the_components_adds_up_to_nothing(
    detector: Detector, index: WindowIndex
) -> None:
    windows = index.windows(slice(0, None, 40))
    space = detector.model.space
    assert isinstance(space, PCSpace)
    inside = space.reconstruct(space.project(windows.x), (2, 18, 12))
    assert np.abs(inside - windows.x).max() > 0.05
    with_rest = taken_apart(detector, windows)
    without = taken_apart(detector, replace(windows, x=inside))
    np.testing.assert_allclose(with_rest.score, without.score, atol=1e-3)
    np.testing.assert_allclose(
        with_rest.contributions.sum(axis=(1, 2)), without.contributions.sum(axis=(1, 2)), atol=1e-3
    )


def test_confidence_weighs_everything_alike(detector: Detector, index: WindowIndex) -> None:
    windows = index.windows(slice(0, None, 40))
    half = replace(windows, c=windows.c / np.float32(2))
    full, weighed = taken_apart(detector, windows), taken_apart(detector, half)
    np.testing.assert_allclose(weighed.contributions, full.contributions / 2, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(weighed.base, full.base / 2, rtol=1e-6)
    np.testing.assert_allclose(weighed.energy, full.energy)


def test_one_scale_decides_where_the_largest_energy_counts(
    detector: Detector, index: WindowIndex
) -> None:
    windows = index.windows(slice(0, None, 40))
    E = detector.score_windows(windows).E
    taken = taken_apart(detector, windows)
    np.testing.assert_array_equal(taken.scales.argmax(axis=1), E.argmax(axis=1))
    np.testing.assert_array_equal(taken.scales.sum(axis=1), 1)
