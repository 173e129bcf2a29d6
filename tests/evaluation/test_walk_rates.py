"""A model fitted at one frame rate scores the same walk, filmed at others, alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.poses import Clip, Track
from studies.mocap import bodies
from studies.mocap.cameras import PinholeCamera
from studies.mocap.motions import FPS, HIPS, Float64s, open_archive, resample
from studies.mocap.takes import split_takes

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
