"""The camera projects as a pinhole does, and boxes hide what is behind them."""

from __future__ import annotations

import numpy as np
import pytest

from stepvad.evaluation.mocap.cameras import (
    FRAME_RATES,
    SIZE,
    Obstacle,
    PinholeCamera,
    camera_of_scene,
    inside,
)

LEVEL = PinholeCamera(height_m=2.0, pitch=0.0, focal_px=1000.0, fps=25.0, boxes=())


def test_a_level_camera_projects_by_hand() -> None:
    pixels, depth = LEVEL.project(np.array([[0.0, 10.0, 2.0], [1.0, 10.0, 0.0], [-2.0, 5.0, 3.0]]))
    np.testing.assert_allclose(depth, [10.0, 10.0, 5.0])
    middle = np.array(SIZE) / 2
    np.testing.assert_allclose(pixels - middle, [[0, 0], [100, 200], [-400, -200]])


def test_a_pitched_camera_sees_the_ground_it_looks_at_in_the_middle() -> None:
    pitch = np.radians(30)
    camera = PinholeCamera(3.0, pitch, 1200.0, 25.0, ())
    pixels, depth = camera.project(np.array([0.0, 3.0 / np.tan(pitch), 0.0]))
    np.testing.assert_allclose(pixels, np.array(SIZE) / 2, atol=1e-9)
    assert depth == pytest.approx(3.0 / np.sin(pitch))


def test_twice_as_far_is_half_as_tall() -> None:
    heights = []
    for y in (6.0, 12.0):
        (head, feet), _ = LEVEL.project(np.array([[0.0, y, 1.7], [0.0, y, 0.0]]))
        heights.append(feet[1] - head[1])
    assert heights[0] == pytest.approx(2 * heights[1])
    assert heights[0] > 0  # heads are above feet: y grows downwards


def test_a_pillar_hides_what_is_behind_it_and_nothing_else() -> None:
    pillar = Obstacle((-0.25, 0.25), (4.0, 4.5), 3.0)
    points = np.array([[0.0, 8.0, 1.0], [0.0, 3.0, 1.0], [1.0, 8.0, 1.0], [0.4, 8.0, 1.0]])
    assert pillar.hides(2.0, points).tolist() == [True, False, False, True]


def test_a_counter_hides_the_legs_only() -> None:
    counter = Obstacle((-2.0, 2.0), (5.0, 5.5), 1.0)
    person = np.array([[0.0, 6.0, 0.1], [0.0, 6.0, 1.6]])
    assert counter.hides(2.5, person).tolist() == [True, False]


def test_what_stands_before_a_box_is_not_hidden_by_it() -> None:
    box = Obstacle((-1.0, 1.0), (6.0, 7.0), 3.0)
    assert not box.hides(2.5, np.array([0.0, 5.5, 0.2]))


def test_a_box_covers_its_ground_and_a_margin() -> None:
    box = Obstacle((0.0, 1.0), (4.0, 5.0), 1.0)
    ground = np.array([[0.5, 4.5], [1.2, 4.5], [2.0, 4.5]])
    assert box.covers(ground, margin_m=0.3).tolist() == [True, True, False]


def test_people_are_placed_where_they_are_seen_whole() -> None:
    for seed in range(40):
        rng = np.random.default_rng(seed)
        camera = camera_of_scene(rng)
        assert camera.fps in FRAME_RATES
        for _ in range(10):
            x, y = camera.place(rng)
            pixels, _ = camera.project(np.array([[x, y, 0.0], [x, y, 1.7]]))
            assert inside(pixels).all()
            assert 60 < np.ptp(pixels[:, 1]) < 700
