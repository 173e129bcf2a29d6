"""Students give the scores of their teachers with less work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from stepvad import Clip, Config, Detector
from stepvad.distillation import PROFILES, Student, distill, teacher_scores
from stepvad.model.folded import fold
from stepvad.model.scoring import aggregate
from stepvad.windows import cut

TEACHER = Config(K=12, width=64, max_steps=60, ema_warmup=True, learning_rate=2e-3)


@pytest.fixture(scope="module")
def teacher(walkers: list[Clip]) -> Detector:
    return Detector.fit(walkers, TEACHER)


def test_a_student_ranks_windows_as_its_teacher_does(
    teacher: Detector, walkers: list[Clip]
) -> None:
    student = distill(teacher, walkers, Student(width=48, blocks=2, steps=400, batch_size=256))
    ours, theirs = (d.score(walkers[0]).windows for d in (student, teacher))
    assert spearmanr(ours.E[:, 0], aggregate(theirs.E, "max")).statistic > 0.9
    untrained = distill(teacher, walkers, Student(width=48, blocks=2, steps=1, batch_size=256))
    assert spearmanr(untrained.score(walkers[0]).A, theirs.A).statistic < 0.8
    assert student.network.folded.work < teacher.network.folded.work / 20


def test_a_student_is_a_model_like_any_other(
    teacher: Detector, walkers: list[Clip], tmp_path: Path
) -> None:
    student = distill(teacher, walkers, Student(width=16, blocks=1, steps=3, batch_size=64))
    student.save(tmp_path / "s")
    loaded = Detector.load(tmp_path / "s")
    np.testing.assert_array_equal(loaded.score(walkers[0]).A, student.score(walkers[0]).A)
    assert loaded.config.L == 1
    windows = loaded.score(walkers[0]).windows
    np.testing.assert_allclose(windows.A, windows.c * windows.E[:, 0], rtol=1e-6)


def test_the_same_seed_gives_the_same_student(teacher: Detector, walkers: list[Clip]) -> None:
    small = Student(width=16, blocks=2, steps=4, batch_size=64)
    a, b, c = (
        distill(teacher, walkers, made).score(walkers[0]).A
        for made in (small, small, replace(small, seed=1))
    )
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_the_lesson_is_the_aggregated_score(teacher: Detector, walkers: list[Clip]) -> None:
    index, _ = cut(walkers[0], teacher.config, teacher.skeleton)
    windows = index.windows(slice(None))
    lesson = teacher_scores(teacher, teacher.model.space.project(windows.x))
    np.testing.assert_allclose(
        windows.c * lesson, teacher.score_windows(windows).A, rtol=1e-5, atol=1e-6
    )


def test_the_profiles_cost_the_share_that_they_promise() -> None:
    paper = work_of(Config())
    assert work_of(PROFILES["tiny"].config(Config())) <= paper / 20
    assert work_of(PROFILES["small"].config(Config())) <= paper / 6


def work_of(config: Config) -> int:
    """Multiplications for one window, by hand."""
    entry = config.K * config.width * (1 if config.network == "vanilla" else 2)
    by_hand = entry + config.L * ((config.blocks - 1) * config.width**2 + config.width)
    if config.width < 600:
        from stepvad.model.energy import Energy
        from stepvad.model.training import to_numpy

        assert fold(to_numpy(Energy(config).state_dict()), config).work == by_hand
    return by_hand
