"""A sample of the windows rates a detector nearly as all of them do."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad import Clip, Detector
from stepvad.benchmark import validation
from stepvad.benchmark.protocol import evaluate
from stepvad.benchmark.validation import SampledScorer, sampled_rows, validation_auroc
from stepvad.benchmark.walkers import make


def rows(track: list[int], frame: list[int], every: int) -> list[int]:
    return sampled_rows(np.array(track, np.int64), np.array(frame, np.int64), every).tolist()


def test_a_run_is_sampled_at_its_ends_and_every_few_frames() -> None:
    assert rows([1] * 8, [*range(9, 17)], 4) == [0, 3, 7]
    # another person, and a gap of the same one, begin a run
    assert rows([1, 1, 1, 2, 2, 2, 2], [1, 2, 3, 4, 5, 9, 10], 4) == [0, 2, 3, 4, 5, 6]
    assert rows([1, 1, 1], [1, 2, 3], 1) == [0, 1, 2]
    assert rows([], [], 4) == []


def test_sampled_scores_are_exact_where_sampled_and_between_their_neighbours_elsewhere(
    small_model: Detector, walkers: list[Clip]
) -> None:
    exact, some = (
        scorer.score(walkers[0]) for scorer in (small_model, SampledScorer(small_model, 4))
    )
    windows = exact.windows
    taken = sampled_rows(windows.track_id, windows.frame, 4)
    assert 0 < len(taken) < 0.5 * len(windows)
    np.testing.assert_allclose(some.A[taken], exact.A[taken], atol=1e-5)
    between = np.setdiff1d(np.arange(len(windows)), taken)
    place = np.searchsorted(taken, between)
    sides = np.stack([exact.A[taken[place - 1]], exact.A[taken[place]]])
    assert (some.A[between] >= sides.min(axis=0) - 1e-5).all()
    assert (some.A[between] <= sides.max(axis=0) + 1e-5).all()
    np.testing.assert_array_equal(some.windows.frame, windows.frame)
    assert some.counts == exact.counts


def test_one_window_in_one_gives_the_exact_rating(
    small_model: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = make(seed=3, train_clips=1, test_clips=4, seconds=6.0)
    exact = evaluate(small_model, people).row().auroc
    rate = validation_auroc(people)
    assert rate(small_model) == pytest.approx(exact, abs=0.02)
    assert rate(small_model) != exact
    monkeypatch.setattr(validation, "EVERY", 1)
    assert rate(small_model) == pytest.approx(exact, abs=1e-9)
