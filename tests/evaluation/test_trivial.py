"""Trivial scores: speed and place of the body alone, and when they are not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import Config
from stepvad.config import Reference
from stepvad.errors import DataError
from stepvad.evaluation import baselines, datasets, protocol
from stepvad.evaluation.comparison import compare, unscored
from stepvad.evaluation.custom import CustomMethod
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.protocol import FrameView
from stepvad.evaluation.trivial import TITLES, BodyWindows, Places, motions
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size

T = 5
TRIANGLE = np.array([[0, 0], [-10, 40], [10, 50]], dtype=np.float32)
"""A body 50 pixels high: its centre at (0, 30), its foot at (0, 50)."""


def person(
    *, step: float = 0.0, start: tuple[float, float] = (100.0, 100.0), n: int = 20, size: float = 1
) -> Track:
    """Somebody who glides `step` pixels to the right in every frame."""
    moved = np.array(start) + step * np.arange(n)[:, None] * np.array([1, 0])
    keypoints = (size * TRIANGLE + moved[:, None]).astype(np.float32)
    return Track(1, np.arange(n), keypoints, np.ones((n, 3), np.float32))


def clip(*tracks: Track, name: str = "a", fps: float | None = 25.0) -> Clip:
    return Clip(name, fps, 20, tracks, of_size(3))


def test_speed_is_in_body_heights_a_second() -> None:
    body = BodyWindows.of_clip(clip(person(step=4.0)), T)
    assert body.frame.tolist() == [*range(4, 20)]
    np.testing.assert_allclose(body.speed, 4 * 25 / 50, rtol=1e-5)
    by_frame = BodyWindows.of_clip(clip(person(step=4.0), fps=None), T)
    np.testing.assert_allclose(by_frame.speed, 4 / 50, rtol=1e-5)


def test_speed_goes_from_the_first_frame_to_the_last() -> None:
    track = person()
    track.keypoints[1::2, :, 0] += 30  # to and fro
    body = BodyWindows.of_clip(clip(track), T)
    np.testing.assert_allclose(body.speed, 0, atol=1e-6)
    np.testing.assert_allclose(BodyWindows.of_clip(clip(track), 2).speed, 25 * 30 / 50, rtol=1e-5)


def test_speed_is_relative_to_the_height_of_the_window() -> None:
    track = person(step=4.0)
    track.keypoints[:10] = 2 * track.keypoints[:10]
    body = BodyWindows.of_clip(clip(track), T)
    heights = [np.mean([100] * min(5, max(0, 10 - at)) + [50] * max(0, at - 5)) for at in range(16)]
    np.testing.assert_allclose(body.place[:, 2], np.log(heights), rtol=1e-5)
    np.testing.assert_allclose(body.speed[:6], 8 * 25 / 100, rtol=1e-5)
    np.testing.assert_allclose(body.speed[10:], 4 * 25 / 50, rtol=1e-5)
    shrunk = np.hypot(256 - 144, 260 - 130)  # the centre from frame 7 to frame 11
    np.testing.assert_allclose(body.speed[7], shrunk / 80 * 25 / 4, rtol=1e-5)


def test_place_is_the_foot_and_the_log_of_the_height() -> None:
    body = BodyWindows.of_clip(clip(person(step=1.0, size=2)), T)
    np.testing.assert_allclose(body.place[0], [102, 200, np.log(100)], rtol=1e-6)
    np.testing.assert_allclose(body.place[-1], [117, 200, np.log(100)], rtol=1e-6)


def test_missing_joints_do_not_count() -> None:
    track = person(step=4.0)
    track.keypoints[:, 0], track.confidence[:, 0] = 0, 0
    body = BodyWindows.of_clip(clip(track), T)
    np.testing.assert_allclose(body.speed, 4 * 25 / 10, rtol=1e-5)
    np.testing.assert_allclose(body.place[0], [108, 150, np.log(10)], rtol=1e-6)


def test_a_gap_is_filled_as_in_every_window() -> None:
    whole = person(step=4.0)
    kept = np.delete(np.arange(20), [8, 9])
    gap = Track(1, kept, whole.keypoints[kept], whole.confidence[kept])
    with_gap, without_gap = (BodyWindows.of_clip(clip(one), T) for one in (gap, whole))
    np.testing.assert_allclose(with_gap.speed, without_gap.speed, rtol=1e-5)


def test_the_distance_is_that_to_the_nearest_place_in_deviations() -> None:
    train = [clip(person(start=(x, y), size=s)) for x, y, s in ((0, 0, 1), (60, 0, 1), (0, 80, 2))]
    places = Places.of_clips(train, T)
    assert places is not None
    known = np.concatenate([BodyWindows.of_clip(one, T).place for one in train])
    np.testing.assert_allclose(places.scale, known.std(axis=0), rtol=1e-5)
    np.testing.assert_allclose(places.distances(known), 0, atol=1e-6)
    beside = known[:1] - places.scale * np.array([3, 0, 4], np.float32)
    np.testing.assert_allclose(places.distances(beside), 5, rtol=1e-5)


def test_where_nobody_walks_there_is_no_place() -> None:
    assert Places.of_clips([clip()], T) is None
    still = Places.of_clips([clip(person())], T)  # no spread at all
    assert still is not None
    apart = BodyWindows.of_clip(clip(person(start=(103.0, 104.0))), T).place
    np.testing.assert_allclose(still.distances(apart), 5, rtol=1e-5)


def street() -> Dataset:
    """Somebody runs in the first test clip, somebody is where nobody walks in the second."""
    train = [
        clip(person(step=step, start=(100 + 7 * n, 100 + 3 * n)), name=f"n{n}")
        for n, step in enumerate((0.0, 0.5, 1.0, 1.5))
    ]
    run = clip(person(step=5.0), name="run")
    lawn = clip(person(step=1.0, start=(100.0, 400.0)), name="lawn")
    usual = clip(person(step=1.0, start=(104.0, 103.0)), name="usual")
    return datasets.of_clips(
        "street",
        train=lambda: train,
        test=[(run, [1] * 20), (lawn, [1] * 20), (usual, [0] * 20)],
    )


def without(dataset: Dataset, name: str) -> Dataset:
    labels = {clip: truth for clip, truth in dataset.labels.items() if clip != name}
    return replace(dataset, labels=labels, left_out={name: dataset.labels[name]})


COVERED = FrameView(smoothed=False, frames="covered")


def measured(dataset: Dataset, method: protocol.ScorerName) -> float:
    clips = protocol.with_motion(unscored(dataset, Config(T=T)), dataset)
    return protocol.frame_scores(clips, dataset, COVERED, method=method).measure()


def test_a_runner_is_fast_and_a_stranger_is_elsewhere() -> None:
    assert measured(without(street(), "lawn"), "speed") == 1
    assert measured(without(street(), "run"), "speed") == pytest.approx(0.5, abs=0.25)
    assert measured(without(street(), "run"), "place") == 1


def test_both_stand_beside_every_method(walker_dataset: Path) -> None:
    dataset = open_dataset(walker_dataset)
    table = compare(["mahalanobis"], dataset, config=Config(T=T, K=8), view=COVERED)
    assert [line.name for line in table][1:] == [*TITLES.values()]
    by_title = {line.name: line.by_class for line in table}
    assert by_title["speed alone"]["run"] > 0.9
    fitted = baselines.fit("mahalanobis", dataset.train_clips(), Config(T=T, K=8))
    rows = protocol.evaluate(fitted, dataset).rows
    assert {row.method for row in rows} == {"detector", *TITLES}


def test_windows_of_another_profile_are_found() -> None:
    dataset = street()
    config = Config(T=T, reference=Reference(drop_last_window=True))
    (scores, *_) = [one.scores for one in unscored(dataset, config)]
    whole = BodyWindows.of_clip(next(iter(dataset.test())), T)
    body = whole.at(scores)
    assert body is not None
    assert len(body.speed) == len(scores.windows) == len(whole.speed) - 1
    np.testing.assert_array_equal(body.frame, scores.windows.frame)


def test_scores_of_frames_have_neither() -> None:
    zero: CustomMethod[None] = CustomMethod(
        "zero", lambda clips: None, lambda _, clip: np.zeros(clip.n_frames)
    )
    rows = protocol.evaluate(zero.fitted([]), street()).rows
    assert {row.method for row in rows} == {"detector", "persons", "confidence", "random"}


def test_windows_that_are_not_of_the_clip_have_neither() -> None:
    dataset = street()
    clips = [one.scores for one in unscored(dataset, Config(T=T))]
    others = [
        replace(one, windows=replace(one.windows, track_id=one.windows.track_id + 1))
        for one in clips
    ]
    assert [*motions(clips, dataset)[0]] == ["speed", "place"]
    assert motions(others, dataset) == [{}, {}, {}]
    assert motions([], datasets.of_clips("none", train=list, test=[])) == []


def test_without_training_clips_there_is_no_place() -> None:
    def missing() -> list[Clip]:
        raise DataError("pose/train: expected a directory, got none", hint="make one")

    dataset = replace(street(), train=missing)
    clips = protocol.with_motion(unscored(dataset, Config(T=T)), dataset)
    assert protocol.scored_by(clips) == ["detector", "persons", "confidence", "random", "speed"]
    with pytest.raises(DataError, match="method place: expected one of detector, persons, "):
        protocol.frame_scores(clips, dataset, method="place")
