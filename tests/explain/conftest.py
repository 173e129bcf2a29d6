from __future__ import annotations

import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip
from stepvad.windows.runs import WindowIndex, clip_runs


@pytest.fixture(scope="session")
def detector(walkers: list[Clip]) -> Detector:
    """Fitted long enough to know walking from falling."""
    config = Config(K=24, width=64, max_steps=400, learning_rate=2e-3, ema_warmup=True)
    return Detector.fit(walkers, config)


@pytest.fixture(scope="session")
def odd_clip(detector: Detector, walker_test: list[tuple[Clip, FrameLabels]]) -> Clip:
    """The test clip with the highest score."""
    return max((clip for clip, _ in walker_test), key=lambda clip: detector.score(clip).A.max())


@pytest.fixture(scope="session")
def index(detector: Detector, walker_test: list[tuple[Clip, FrameLabels]]) -> WindowIndex:
    """Windows of all test clips, odd and usual ones."""
    views, skeleton = detector.view_settings, detector.skeleton
    runs = [run for clip, _ in walker_test for run, _ in clip_runs(clip, views, skeleton)]
    return WindowIndex.of_runs(runs, views, skeleton.V)
