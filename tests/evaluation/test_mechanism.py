"""What was seen to hold on mocap, asserted with wide margins on a small training (minutes)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config, Method
from stepvad.detector import Detector
from stepvad.evaluation import protocol
from stepvad.evaluation.baselines import Fitted
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.experiment import Experiment, Jittered
from stepvad.evaluation.protocol import Scorer
from stepvad.model.scoring import Scores, WindowScores, score_clip
from stepvad.poses import Clip, Track
from stepvad.windows.views import Windows
from studies.mocap import bodies
from studies.mocap.cameras import PinholeCamera
from studies.mocap.dataset import Size, make
from studies.mocap.motions import FPS, HIPS, Float64s, open_archive, resample
from studies.mocap.takes import split_takes

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

        return score_clip(clip, self.fitted.view_settings, self.fitted.skeleton, score_windows)


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


FITTED_AT = 10.0
RATES = (15.0, 25.0, 30.0)
WALKS = 60
"""Walks to fit on, and walks to score."""
CAMERA = PinholeCamera(height_m=3.0, pitch=0.25, focal_px=900.0, fps=30.0, boxes=())


def filmed(joints: Float64s, name: str, fps: float) -> Clip:
    """A person who walks before the camera, five metres away, without an estimator's noise."""
    at = np.arange(0, len(joints) - 1 + 1e-9, FPS / fps)
    moved = joints - joints[:, HIPS].mean(axis=0) * (1, 1, 0) + (0, 5, 0)
    pixels, _ = CAMERA.project(bodies.coco17(resample(moved, at)))
    confidence = np.ones(pixels.shape[:2], np.float32)
    track = Track(0, np.arange(len(at)), pixels.astype(np.float32), confidence)
    return Clip(name, fps, len(at), (track,))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("clock", [True, False])
def test_a_walk_has_the_same_score_at_every_rate(data_dir: Path, clock: bool) -> None:
    archive = open_archive(data_dir / "CMU-mocap" / "mocap_30fps_15j.npz")
    walks = [take.joints for take in split_takes(archive, "a", abnormal=False).normal]
    order = np.random.default_rng(0).permutation(len(walks))[: 2 * WALKS]
    config = Config(T=8, K=24, width=64, max_steps=200, learning_rate=1e-3, ema_warmup=True,
                    clock=clock)  # fmt: skip
    train = (filmed(walks[n], str(n), FITTED_AT) for n in order[:WALKS])
    detector = Detector.fit(train, config)

    def means(fps: float) -> Float64s:
        """The mean score of each walk."""
        clips = (filmed(walks[n], str(n), fps) for n in order[WALKS:])
        return np.array([detector.score(clip).A.mean() for clip in clips])

    usual = means(FITTED_AT)
    for fps in RATES:
        off = np.abs(means(fps) - usual).mean() / np.abs(usual).mean()
        assert (off < 0.1) == clock, f"{fps:g} frames per second: scores differ by {off:.1%}"
