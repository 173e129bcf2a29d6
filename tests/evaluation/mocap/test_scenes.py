"""People are on stage one after the other, keep their distance, and are labelled where seen."""

from __future__ import annotations

import time
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from stepvad.evaluation.mocap import takes
from stepvad.evaluation.mocap.cameras import SIZE, Obstacle, PinholeCamera
from stepvad.evaluation.mocap.dataset import camera_of
from stepvad.evaluation.mocap.motions import HIPS, open_archive
from stepvad.evaluation.mocap.scenes import make_scene
from stepvad.evaluation.mocap.staging import APART_M, PLACES, Actor, stage
from stepvad.evaluation.mocap.takes import TakeSplit

OPEN = PinholeCamera(4.0, np.radians(20), 1200.0, 25.0, ())


@pytest.fixture(scope="module")
def cast(archive_path: Path) -> TakeSplit:
    return takes.split_takes(open_archive(archive_path), "a", abnormal=True)


def staged(cast: TakeSplit, camera: PinholeCamera = OPEN, *, seed: int) -> list[Actor]:
    return stage(np.random.default_rng(seed), camera, cast, ("jump",), 250)


def test_people_keep_their_distance(cast: TakeSplit) -> None:
    met = 0
    for seed in range(6):
        for one, other in combinations(staged(cast, seed=seed), 2):
            first, end = max(one.first, other.first), min(one.end, other.end)
            if first < end:
                a, b = (w.joints[first - w.first : end - w.first, HIPS, :2] for w in (one, other))
                assert np.linalg.norm(a - b, axis=1).min() > APART_M
                met += 1
    assert met > 5


def test_no_more_people_are_on_stage_than_there_are_places(cast: TakeSplit) -> None:
    for seed in range(6):
        present = np.zeros(250, dtype=np.int64)
        for actor in staged(cast, seed=seed):
            assert 0 <= actor.first < actor.end <= 250
            present[actor.first : actor.end] += 1
        assert present.max() <= PLACES[1]


def test_nobody_walks_through_a_box(cast: TakeSplit) -> None:
    box = Obstacle((-1.0, 1.0), (7.0, 8.0), 1.0)
    camera = PinholeCamera(4.0, np.radians(20), 1200.0, 25.0, (box,))
    for seed in range(6):
        for actor in staged(cast, camera, seed=seed):
            assert not box.covers(actor.joints[:, HIPS, :2], margin_m=0.0).any()


def test_an_event_is_seen_and_named(cast: TakeSplit) -> None:
    named = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        scene = make_scene(rng, OPEN, cast, ("jump",), name="c", seconds=8.0)
        assert set(np.unique(scene.classes)) <= {"", "jump"}
        named += int((scene.classes == "jump").any())
        np.testing.assert_array_equal(scene.labels.abnormal, scene.classes == "jump")
    assert named >= 4


def test_behind_a_wall_nothing_is_seen_and_nothing_is_labelled(cast: TakeSplit) -> None:
    wall = Obstacle((-50.0, 50.0), (1.0, 1.2), 6.0)
    camera = PinholeCamera(4.0, np.radians(20), 1200.0, 25.0, (wall,))
    rng = np.random.default_rng(0)
    scene = make_scene(rng, camera, cast, ("jump",), name="c", seconds=8.0)
    assert scene.clip.n_poses == 0
    assert not scene.labels.abnormal.any()


def test_a_clip_without_events_has_none(cast: TakeSplit) -> None:
    scene = make_scene(np.random.default_rng(0), OPEN, cast, (), name="c", seconds=8.0)
    assert scene.clip.n_poses > 0
    assert not scene.labels.abnormal.any()


def test_people_are_in_the_picture(cast: TakeSplit) -> None:
    scene = make_scene(np.random.default_rng(1), OPEN, cast, (), name="c", seconds=8.0)
    for track in scene.clip.tracks:
        middle = np.median(track.keypoints, axis=1)
        assert (middle > -50).all()
        assert (middle < np.array(SIZE) + 50).all()


def test_walkers_walk_at_the_speed_they_were_captured_at(cast: TakeSplit) -> None:
    for fps in (15.0, 30.0):
        camera = PinholeCamera(4.0, np.radians(20), 1200.0, fps, ())
        rng = np.random.default_rng(3)
        for actor in stage(rng, camera, cast, (), 150):
            step = np.linalg.norm(np.diff(actor.joints[:, HIPS, :2], axis=0), axis=1) * fps
            assert 0.7 < np.median(step) < 1.5


def test_cameras_of_a_seed_differ_and_stay_the_same() -> None:
    assert camera_of(0, 1) == camera_of(0, 1)
    assert camera_of(0, 1) != camera_of(0, 2)
    assert camera_of(0, 1) != camera_of(1, 1)


def test_a_minute_takes_less_than_a_twentieth_of_a_minute(cast: TakeSplit) -> None:
    begin = time.perf_counter()
    for number in range(3):
        rng = np.random.default_rng(number)
        make_scene(rng, OPEN, cast, ("jump",), name="c", seconds=20.0)
    assert time.perf_counter() - begin < 3
