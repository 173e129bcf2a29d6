"""Statistics of two small clips worked by hand, and of the public data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from stepvad.evaluation.datasets import open_dataset
from stepvad.evaluation.statistics import ClassStatistics, describe, without_labels
from stepvad.formats.labels import FrameLabels
from stepvad.poses import Clip, Track
from stepvad.skeletons import Skeleton

POINTS = Skeleton("points", ("top", "bottom"))


def track(number: int, frames: Iterable[int], confidence: Iterable[tuple[float, float]]) -> Track:
    at = np.array([*frames])
    where = np.random.default_rng(number).normal(size=(len(at), 2, 2))
    return Track(number, at, where.astype(np.float32), np.array([*confidence], dtype=np.float32))


@pytest.fixture
def pairs() -> list[tuple[Clip, FrameLabels]]:
    """Two people in ten frames, of which two events of a run are abnormal; and an empty clip."""
    clip = Clip(
        "yard",
        25.0,
        10,
        (
            track(1, range(5), [(0.05, 0.95)] * 5),
            track(2, (3, 4, 6), [(0.5, 1.2), (0.7, np.nan), (0.7, 0.0)]),
        ),
        POINTS,
    )
    runs = np.array([1, 1, 1, 0, 0, 1, 0, 0, 0, 0], dtype=np.bool_)
    truth = FrameLabels(runs, np.ones(10, dtype=np.bool_), {"run": runs})
    nobody = Clip("door", 25.0, 6, (), POINTS)
    return [(clip, truth), (nobody, FrameLabels.all_counted(np.zeros(6, dtype=np.bool_)))]


def test_people_tracks_and_anomalies_are_counted(pairs: list[tuple[Clip, FrameLabels]]) -> None:
    found = describe(pairs, window=3)
    assert (found.clips, found.frames, found.tracks, found.poses) == (2, 16, 2, 8)
    # frames 0 1 2 and 6 show one person, 3 and 4 two
    assert found.people == pytest.approx((10 / 16, 4 / 16, 2 / 16))
    assert found.track_length == pytest.approx((3.2, 4, 4.8))
    assert found.abnormal == 4 / 16
    assert found.classes == {
        "run": ClassStatistics(events=2, frames=4, shortest=1, median=2, longest=3)
    }


def test_a_frame_is_covered_where_a_window_ends(pairs: list[tuple[Clip, FrameLabels]]) -> None:
    # the first track ends windows in 2 3 4; the second, its gap filled, in 5 and 6
    assert describe(pairs, window=3).covered == 5 / 16
    assert describe(pairs, window=5).covered == 1 / 16
    assert describe(pairs, window=6).covered == 0


def test_confidence_is_sorted_into_ten_bins(pairs: list[tuple[Clip, FrameLabels]]) -> None:
    # five of 0.05, 0.95 each; 0.5, twice 0.7, 1.2 counts as 1, and 0; NaN is left out
    expected = np.array([6, 0, 0, 0, 0, 1, 0, 2, 0, 6]) / 15
    assert describe(pairs, window=3).confidence == pytest.approx(tuple(expected), abs=1e-6)


def test_confidence_is_compared_with_the_next_frame_of_the_same_joint() -> None:
    steady = track(1, range(4), [(0.1, 0.9)] * 4)
    clip = Clip("yard", 25.0, 9, (steady,), POINTS)
    assert describe(without_labels([clip])).confidence_correlation == pytest.approx(1)
    flips = track(1, range(4), [(0.1, 0.9), (0.9, 0.1)] * 2)
    clip = Clip("yard", 25.0, 9, (flips,), POINTS)
    assert describe(without_labels([clip])).confidence_correlation == pytest.approx(-1)
    apart = track(1, (0, 2, 4, 6), [(0.1, 0.9)] * 4)
    clip = Clip("yard", 25.0, 9, (apart,), POINTS)
    assert math.isnan(describe(without_labels([clip])).confidence_correlation)


def test_nothing_has_statistics_too() -> None:
    found = describe([])
    assert (found.clips, found.frames, found.people, found.classes) == (0, 0, (), {})
    assert found.covered == found.abnormal == 0


@pytest.mark.data
def test_poselift_has_the_counts_that_are_known(data_dir: Path) -> None:
    dataset = open_dataset(data_dir / "PoseLift")
    test = describe(dataset.test_clips())
    assert (test.clips, test.frames, test.tracks, test.poses) == (47, 4846, 78, 4620)
    assert test.abnormal == pytest.approx(0.317, abs=0.001)
    assert test.covered == pytest.approx(3135 / 4846)
    train = describe(without_labels(dataset.train_clips()))
    assert (train.clips, train.tracks, train.poses) == (104, 566, 79_632)


def test_a_joint_that_turns_back_is_unsteady() -> None:
    swaying = Track(
        1,
        np.arange(5),
        np.array([[(0, 0), (x, 10)] for x in (0, 3, 0, 3, 0)], dtype=np.float32),
        np.array([(0.95, 0.15)] * 5, dtype=np.float32),
    )
    found = describe(without_labels([Clip("yard", 25.0, 9, (swaying,), POINTS)]))
    assert found.unsteadiness[1] == pytest.approx(6 / 10)  # 3 there and 3 back, of 10 in height
    assert found.unsteadiness[9] == 0
    assert all(math.isnan(value) for value in found.unsteadiness[2:9])


def test_a_class_without_a_frame_has_no_events(pairs: list[tuple[Clip, FrameLabels]]) -> None:
    clip, _ = pairs[0]
    normal = np.zeros(10, dtype=np.bool_)
    truth = FrameLabels(normal, ~normal, {"fall": normal})
    none = ClassStatistics(events=0, frames=0, shortest=0, median=0, longest=0)
    assert describe([(clip, truth)], window=3).classes == {"fall": none}
    assert describe([*pairs, (clip, truth)], window=3).classes["fall"] == none
    assert describe([]).classes == {}
