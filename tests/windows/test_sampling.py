"""Windows by the clock: the same seconds of a person, whatever the rate of the camera."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size
from stepvad.stream import Stream
from stepvad.windows import runs
from stepvad.windows.runs import Sampling, at_rate, cut, rate_note
from stepvad.windows.views import ViewSettings, Windows
from tests.tracks import that_cuts

V = 3
RATES = (4.0, 9.0, 10.0, 12.0, 25.0, 30.0)
"""Rates of cameras for a model of ten frames a second."""


def by_clock(T: int) -> Config:
    return Config(T=T, K=2, clock=True, fps=10.0)


@pytest.fixture(autouse=True)
def nothing_logged_yet() -> Iterator[None]:
    runs._ratio.cache_clear()
    yield
    runs._ratio.cache_clear()


def wandering(n: int, seed: int = 0, *, fps: float | None = 10.0, missed: float = 0.0) -> Clip:
    """One person whose joints wander, seen in all frames but some."""
    rng = np.random.default_rng(seed)
    frames = np.flatnonzero(rng.random(n) >= missed)
    keypoints = 100 + np.cumsum(rng.standard_normal((len(frames), V, 2)), axis=0)
    confidence = rng.uniform(0.1, 1, (len(frames), V))
    track = Track(7, frames, keypoints.astype(np.float32), confidence.astype(np.float32))
    return Clip("wandering", fps, n, (track,), of_size(V))


def test_poses_lie_where_the_rates_say() -> None:
    slower, faster = Sampling(3, 2.5), Sampling(4, 0.5)
    assert (slower.span, slower.gap) == (6, 7)
    assert (faster.span, faster.gap) == (3, 2)
    frames = np.arange(6, dtype=np.float32)
    line = np.tile(frames[None, :, None, None], (1, 1, V, 2))
    keypoints, confidence = slower.sample(line, frames[None])
    np.testing.assert_array_equal(confidence, [[0.0, 2.5, 5.0]])
    np.testing.assert_array_equal(keypoints[0, :, 0, 0], [0.0, 2.5, 5.0])
    _, confidence = faster.sample(line[:, :3], frames[None, :3])
    np.testing.assert_array_equal(confidence, [[0.5, 1.0, 1.5, 2.0]])


def test_the_frames_of_poses_are_the_nearest_and_end_with_the_latest() -> None:
    assert Sampling(3, 2.5).frames.tolist() == [0, 3, 5]
    assert Sampling(3).frames.tolist() == [0, 1, 2]
    assert Sampling(4, 0.5).frames.tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("fps", [10.0, None])
def test_the_models_own_rate_and_an_unknown_one_give_the_papers_windows(fps: float | None) -> None:
    clip = wandering(40, fps=fps, missed=0.2)
    ours = cut(clip, [ViewSettings(by_clock(5))], of_size(V))[0].windows(slice(None))
    papers = cut(clip, [ViewSettings(Config(T=5, K=2))], of_size(V))[0].windows(slice(None))
    assert ours.x.tobytes() == papers.x.tobytes()
    assert ours.frame.tobytes() == papers.frame.tobytes()


def test_every_third_frame_of_a_faster_camera_makes_the_windows_of_the_slower_one() -> None:
    fast, slow = wandering(90, fps=30.0), at_rate(wandering(90, fps=30.0), by_clock(5))
    assert (slow.fps, slow.n_frames, slow.n_poses) == (10.0, 30, 30)
    here = cut(fast, [ViewSettings(by_clock(5))], of_size(V))[0].windows(slice(None))
    there = cut(slow, [ViewSettings(by_clock(5))], of_size(V))[0].windows(slice(None))
    common = here.frame % 3 == 0
    np.testing.assert_array_equal(here.frame[common] // 3, there.frame)
    assert here.x[common].tobytes() == there.x.tobytes()
    assert here.c[common].tobytes() == there.c.tobytes()


@pytest.mark.parametrize("fps", RATES)
def test_a_straight_walk_looks_the_same_at_every_rate(fps: float) -> None:
    seconds = np.arange(0, 4, 1 / fps)
    corners = np.array([[0, 0], [10, 0], [5, 40]])
    keypoints = (corners + np.multiply.outer(seconds, [12.0, 3.0])[:, None]).astype(np.float32)
    track = Track(1, np.arange(len(seconds)), keypoints, np.ones((len(seconds), V), np.float32))
    clip = Clip("walk", fps, len(seconds), (track,), of_size(V))
    windows = cut(clip, [ViewSettings(by_clock(6))], of_size(V))[0].windows(slice(None))
    expected = cut(_same_walk(corners), [ViewSettings(by_clock(6))], of_size(V))[0].windows(
        slice(0, 1)
    )
    assert len(windows)
    np.testing.assert_allclose(windows.x, np.repeat(expected.x, len(windows), 0), atol=1e-5)


def _same_walk(corners: np.ndarray) -> Clip:
    keypoints = (corners + np.multiply.outer(np.arange(6) / 10, [12.0, 3.0])[:, None]).astype(
        np.float32
    )
    track = Track(1, np.arange(6), keypoints, np.ones((6, V), np.float32))
    return Clip("walk", 10.0, 6, (track,), of_size(V))


@pytest.mark.parametrize("fps", RATES)
@pytest.mark.parametrize("T", [1, 2, 5])
def test_a_stream_cuts_the_windows_of_the_clip(small_model: Detector, fps: float, T: int) -> None:
    clip = wandering(80, seed=T, fps=fps, missed=0.25)
    config = by_clock(T)
    expected = cut(clip, [ViewSettings(config)], of_size(V))[0].windows(slice(None))
    stream = Stream(that_cuts([config], of_size(V)), skeleton=of_size(V), fps=fps)
    online = _joined([stream.push(frame, poses) for frame, poses in clip.by_frame()])
    assert len(expected) > 10
    for name in ("frame", "x", "c"):
        assert getattr(online, name).tobytes() == getattr(expected, name).tobytes(), name


def _joined(parts: list[Windows]) -> Windows:
    def column(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    return Windows(*map(column, ("x", "c", "track_id", "frame", "flat")))


def test_gaps_stay_gaps_at_another_rate() -> None:
    (track,) = wandering(60, fps=20.0).tracks
    kept = (track.frames < 20) | (track.frames >= 40)
    holes = Track(7, track.frames[kept], track.keypoints[kept], track.confidence[kept])
    clip = Clip("holes", 20.0, 60, (holes,), of_size(V))
    (slower,) = at_rate(clip, by_clock(5)).tracks
    assert slower.frames.tolist() == [*range(10), *range(20, 30)]


def test_another_rate_is_said_once_and_an_impossible_one_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "stepvad.windows")
    for _ in range(3):
        Sampling.for_rate(by_clock(12), 25.0)
        Sampling.for_rate(by_clock(12), None)
        Sampling.for_rate(replace(by_clock(12), clock=False), 25.0)
        Sampling.for_rate(by_clock(12), 10.0)
    assert [record.message for record in caplog.records] == [
        "footage of 25 frames per second is resampled to the model's 10",
        "the footage does not state its frame rate; assuming the model's 10 frames per second. To "
        "set it: --fps",
        "the model was fitted at 10 frames per second, the footage has 25: windows of 12 frames "
        "last 0.48 s instead of 1.2 s; fit with `clock = true` to have footage resampled",
    ]
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "WARNING"]
    assert "the model does not state the frame rate" in (rate_note(Config(), 25.0) or "")
    assert rate_note(Config(), None) is None
    with pytest.raises(DataError, match="frame rate near the model's 10 per second, got 2000"):
        Sampling.for_rate(by_clock(12), 2000.0)


def test_a_fit_learns_the_rate_of_its_clips_and_brings_others_to_it() -> None:
    config = Config(T=3, K=2, width=8, blocks=1, max_steps=1, clock=True)
    clips = [wandering(40, seed, fps=fps) for seed, fps in enumerate((20.0, 20.0, 10.0))]
    detector = Detector.fit(clips, config)
    assert detector.config.fps == 20.0
    assert detector.origin.windows == 38 + 38 + 77
    in_frames = Detector.fit(clips, replace(config, clock=False))
    assert in_frames.config.fps is None  # mixed, and left as they are
    assert in_frames.origin.windows == 3 * 38
    assert Detector.fit(clips[:2], replace(config, clock=False)).config.fps == 20.0
    with pytest.raises(DataError, match="clips that all state their frame rate"):
        Detector.fit([clips[0], wandering(40, fps=None)], config)
