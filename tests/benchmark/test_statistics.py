"""Statistics count what is there, by hand on clips of a few frames."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.benchmark.statistics import describe, describe_events
from stepvad.config import Config
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17, STEP18
from stepvad.windows import cut


def track(number: int, frames: list[int], confidence: float = 0.55) -> Track:
    keypoints = np.zeros((len(frames), 17, 2), np.float32)
    keypoints[..., 1] = np.linspace(100, 200, 17)
    return Track(
        number, np.array(frames), keypoints, np.full((len(frames), 17), confidence, np.float32)
    )


def clip(*tracks: Track, n_frames: int = 40) -> Clip:
    return Clip("one", 20.0, n_frames, tracks, COCO17)


def test_people_tracks_and_windows_are_counted() -> None:
    found = describe([clip(track(1, [*range(20)]), track(2, [*range(10, 25)]))])
    assert (found.n_clips, found.n_frames, found.n_tracks, found.n_poses) == (1, 40, 2, 35)
    assert found.people_per_frame == pytest.approx(35 / 40)
    assert found.n_windows == 9 + 4
    assert found.covered_share == pytest.approx(len({*range(11, 20), *range(21, 25)}) / 40)
    assert found.hours == pytest.approx(2 / 3600)
    assert found.track_frames[2] == 17.5


def test_windows_are_counted_as_they_are_cut(walkers: list[Clip]) -> None:
    gappy = clip(track(1, [*range(15), *range(20, 40)]), track(2, [*range(5), *range(30, 60)]),
                 n_frames=80)  # fmt: skip
    for clips in (walkers, [gappy]):
        found = describe(clips)
        assert found.n_windows == sum(len(cut(c, Config(), STEP18)[0]) for c in clips)


def test_confidence_is_told_in_tenths_and_nan_is_left_out() -> None:
    missing = Track(2, np.arange(3), np.zeros((3, 17, 2), np.float32),
                    np.full((3, 17), np.nan, np.float32))  # fmt: skip
    found = describe([clip(track(1, [0, 1, 2, 3], 0.55), missing)])
    assert found.confidence_histogram == (0, 0, 0, 0, 0, 1.0, 0, 0, 0, 0)
    assert found.confidence_mean == pytest.approx(0.55)


def test_memory_and_unsteadiness_are_those_of_the_noise() -> None:
    rng = np.random.default_rng(0)
    n, keep = 4000, 0.9
    walk = np.zeros((n, 17))
    for frame in range(1, n):
        walk[frame] = keep * walk[frame - 1] + rng.standard_normal(17)
    steady = track(1, [*range(n)])
    noisy = Track(1, steady.frames, steady.keypoints, (0.55 + 0.01 * walk).astype(np.float32))
    found = describe([clip(noisy, n_frames=n)])
    assert found.confidence_memory == pytest.approx(keep, abs=0.02)
    assert found.pose_confidence_memory == pytest.approx(keep, abs=0.03)
    assert found.unsteadiness[5] == 0.0


def test_events_are_grouped_by_class() -> None:
    found = describe_events([clip()], {"one": [(0, 9, "run"), (20, 39, "run"), (12, 12, "jump")]})
    assert list(found) == ["jump", "run"]
    assert found["run"].n_events == 2
    assert found["run"].n_frames == 30
    assert found["run"].median_s == pytest.approx(0.75)
    assert describe_events([clip()], {}) == {}
