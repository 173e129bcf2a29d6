"""What was seen to hold on mocap, asserted with wide margins on a small training (minutes)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.evaluation import protocol
from stepvad.evaluation.baselines import Fitted, Method
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.experiment import Experiment, Jittered
from stepvad.evaluation.scorers import Scorer
from stepvad.model.footage import score_clip
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.windows import Windows
from studies.mocap.dataset import Size, make

pytestmark = [pytest.mark.slow, pytest.mark.data]

CONFIG = replace(Config.short(), width=64, max_steps=250, learning_rate=5e-3)
SIZE = Size(train=16, validation=1, test=20)


@dataclass(frozen=True)
class Shaken:
    """A fitted method on windows with noise that follows their lack of confidence."""

    fitted: Fitted
    weighted: bool

    @property
    def config(self) -> Config:
        return self.fitted.config

    def score(self, clip: Clip) -> Scores:
        rng = np.random.default_rng(len(clip.name) + clip.n_poses)

        def score_windows(windows: Windows) -> WindowScores:
            spread = 1.5 * (1 - windows.c)[:, None, None, None]
            noise = spread * rng.standard_normal(windows.x.shape, dtype=np.float32)
            scores = self.fitted.score_windows(replace(windows, x=windows.x + noise))
            return scores if self.weighted else replace(scores, A=scores.E.max(axis=1))

        return score_clip(clip, self.config, self.fitted.skeleton, score_windows)


class Mocap:
    """A small split with what was fitted on it; each method once."""

    def __init__(self, archive: Path) -> None:
        made = make(split=1, seed=0, size=SIZE, archive=archive)
        training = [*made.train_clips()]  # made whenever they are read
        self.dataset: Dataset = replace(made, train=lambda: iter(training))

    @cached_property
    def step(self) -> Fitted:
        return self._fit("step")

    @cached_property
    def raw(self) -> Fitted:
        return self._fit("raw")

    def _fit(self, method: Method) -> Fitted:
        return Experiment(method=method, config=CONFIG).fit(self.dataset)

    def points(self, scorer: Scorer) -> float:
        """Online AUROC over all frames, unsmoothed, in points."""
        table = protocol.evaluate(scorer, self.dataset, placements=["latest"])
        return 100 * table.row(smoothed=False).auroc


def test_step_finds_anomalies_withstands_jitter_and_gains_by_confidence(data_dir: Path) -> None:
    """One test: whoever runs part of it has to make the data and fit."""
    mocap = Mocap(data_dir / "CMU-mocap" / "mocap_30fps_15j.npz")
    assert 14_000 <= mocap.step.origin.windows <= 17_000
    calm = mocap.points(mocap.step)  # people it has never seen
    assert calm >= 75

    assert mocap.points(Jittered(mocap.step, 0.1)) >= calm - 1
    step, raw = mocap.points(Jittered(mocap.step, 0.2)), mocap.points(Jittered(mocap.raw, 0.2))
    assert step - raw >= 5

    weighted, unweighted = Shaken(mocap.step, weighted=True), Shaken(mocap.step, weighted=False)
    assert mocap.points(weighted) > mocap.points(unweighted) + 0.5
