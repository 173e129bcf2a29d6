"""A sample of the windows rates a detector nearly as all of them do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import Clip, Config, Detector, ModelFileError
from stepvad.evaluation import validation
from stepvad.evaluation.protocol import evaluate
from stepvad.evaluation.validation import SampledScorer, sampled_rows, validation_auroc
from stepvad.evaluation.walkers import make
from stepvad.formats.labels import FrameLabels


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


def test_a_rating_has_a_digest_of_its_clips_their_labels_and_their_smoothing() -> None:
    people = make(seed=3, train_clips=1, test_clips=4, seconds=3.0)
    clips = [*people.test()]
    name = clips[0].name
    swapped = FrameLabels.of(~people.labels[name].abnormal)
    others = [
        replace(people, test=lambda: clips[1:]),
        replace(people, labels={**people.labels, name: swapped}),
        replace(people, frame_sigma=people.frame_sigma + 1),
    ]
    digest = validation_auroc(people).digest
    assert validation_auroc(replace(people, test=lambda: clips)).digest == digest
    assert len({digest, *(validation_auroc(other).digest for other in others)}) == 4


def test_a_fit_does_not_resume_on_other_validation_clips(
    walkers: list[Clip], tmp_path: Path
) -> None:
    config = Config(T=4, K=8, width=16, blocks=2, L=4, max_steps=4)
    these, others = (
        validation_auroc(make(seed=seed, train_clips=1, test_clips=4, seconds=3.0))
        for seed in (3, 4)
    )
    for resume in (False, True):
        Detector.fit(walkers, config, keep_best=these, checkpoint=tmp_path / "c", resume=resume)
    with pytest.raises(ModelFileError, match="the same validation clips, got another"):
        Detector.fit(walkers, config, keep_best=others, checkpoint=tmp_path / "c", resume=True)
