"""Queues between cameras and scores: order, shedding, and workers that die."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from stepvad.live.lanes import TRIES, Frame, Lanes, Lost
from stepvad.video.people import People, no_boxes

NOBODY = People(no_boxes(), np.empty((0, 17, 2), np.float32), np.empty((0, 17), np.float32))
IMAGE = np.zeros((4, 4, 3), np.uint8)


def frame(number: int, camera: str = "a", *, picture: bool = True) -> Frame:
    return Frame(
        camera=camera,
        number=number,
        connection=0,
        wall0=0.0,
        slot=number,
        arrived=0.0,
        size=(4, 4),
        image=IMAGE if picture else None,
        poses=None if picture else (),
    )


class Counted:
    def __init__(self) -> None:
        self.of: Counter[tuple[str, str]] = Counter()

    def __call__(self, camera: str, field: str, n: int) -> None:
        self.of[camera, field] += n


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def lanes(counted: Counted) -> Lanes:
    return Lanes(["a", "b"], counted)


def slots(lanes: Lanes) -> list[int | str]:
    """What is handed on, of all cameras."""
    found: list[int | str] = []
    while items := lanes.next(0):
        found += ["lost" if isinstance(item, Lost) else item.slot for _, item in items]
    return found


def test_the_oldest_frames_are_shed_and_counted(lanes: Lanes, counted: Counted) -> None:
    for number in range(10):
        lanes.put(frame(number))
    assert [one.number for one in lanes.take(99, 0)] == [6, 7, 8, 9]
    assert counted.of == {("a", "shed"): 6}


def test_poses_that_are_not_scored_in_time_are_shed_too(lanes: Lanes, counted: Counted) -> None:
    for number in range(10):
        lanes.put(frame(number, picture=False))
    assert slots(lanes) == [*range(2, 10)]
    assert counted.of == {("a", "shed"): 2}


def test_cameras_take_turns(lanes: Lanes) -> None:
    for number in range(4):
        lanes.put(frame(number, "a"))
    lanes.put(frame(0, "b"))
    taken = lanes.take(3, 0)
    assert sorted((one.camera, one.number) for one in taken) == [("a", 0), ("a", 1), ("b", 0)]


def test_workers_may_finish_in_any_order(lanes: Lanes) -> None:
    for number in range(4):
        lanes.put(frame(number))
    first, second = lanes.take(2, 0), lanes.take(2, 0)
    for one in (*second, first[1]):
        lanes.finish(one, NOBODY)
    assert slots(lanes) == []
    lanes.finish(first[0], NOBODY)
    assert slots(lanes) == [0, 1, 2, 3]


def test_frames_of_a_dead_worker_come_first_again(lanes: Lanes, counted: Counted) -> None:
    for number in range(4):
        lanes.put(frame(number))
    dead, other = lanes.take(2, 0), lanes.take(1, 0)
    lanes.finish(other[0], NOBODY)
    lanes.give_back(dead)
    again = lanes.take(99, 0)
    assert [one.number for one in again] == [0, 1, 3]
    for one in again:
        lanes.finish(one, NOBODY)
    assert slots(lanes) == [0, 1, 2, 3]
    assert not counted.of


def test_a_frame_that_kills_workers_is_left_out(lanes: Lanes, counted: Counted) -> None:
    lanes.put(frame(0))
    lanes.put(frame(1))
    for _ in range(TRIES):
        poison, *others = lanes.take(99, 0)
        for one in others:
            lanes.finish(one, NOBODY)
        assert poison.number == 0
        lanes.give_back([poison])
    assert lanes.take(99, 0) == []
    assert slots(lanes) == [1]
    assert counted.of == {("a", "skipped"): 1}


def test_a_frame_nobody_can_look_at_is_left_out(lanes: Lanes, counted: Counted) -> None:
    lanes.put(frame(0))
    lanes.put(frame(1))
    bad, good = lanes.take(2, 0)
    lanes.finish(good, NOBODY)
    lanes.finish(bad, None)
    assert slots(lanes) == [1]
    assert counted.of == {("a", "skipped"): 1}


def test_a_camera_is_lost_after_its_last_frame(lanes: Lanes) -> None:
    lanes.put(frame(0))
    lanes.put(frame(1))
    taken = lanes.take(1, 0)
    lanes.lose("a")
    assert slots(lanes) == []
    lanes.finish(taken[0], NOBODY)
    assert slots(lanes) == [0]
    lanes.finish(lanes.take(1, 0)[0], NOBODY)
    assert slots(lanes) == [1, "lost"]
    lanes.lose("b")
    assert slots(lanes) == ["lost"]


def test_frames_twice_and_in_disorder_come_once_and_in_order(
    lanes: Lanes, counted: Counted
) -> None:
    for number in (0, 2, 1, 1, 3, 5, 4):
        lanes.put(frame(number, picture=False))
    assert slots(lanes) == [0, 1, 2, 3, 4, 5]
    assert counted.of == {("a", "skipped"): 1}


def test_a_source_that_begins_anew_counts_from_0_again(lanes: Lanes) -> None:
    lanes.put(frame(7, picture=False))
    lanes.lose("a")
    lanes.put(frame(0, picture=False))
    assert slots(lanes) == [7, "lost", 0]


def test_nothing_is_held_without_end(lanes: Lanes) -> None:
    for number in range(1000):
        lanes.put(frame(number))
        if number % 3 == 0:
            for one in lanes.take(1, 0):
                lanes.finish(one, NOBODY)
    assert lanes.size() <= 4 + 8
