"""Queues between cameras and scores: order, shedding, and workers that die."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from stepvad.people import People, no_boxes
from stepvad.site.intake.frame_buffers import BufferPool
from stepvad.site.intake.frame_queues import TRIES, FrameQueues, Lost, QueuedFrame

NOBODY = People(no_boxes(), np.empty((0, 17, 2), np.float32), np.empty((0, 17), np.float32))


def frame(
    number: int, camera: str = "a", *, picture: bool = True, pool: BufferPool | None = None
) -> QueuedFrame:
    """A frame with an image in the buffer of its number, or with poses."""
    pool = pool or BufferPool(1 + number, 48)
    return QueuedFrame(
        camera=camera,
        number=number,
        connection=0,
        wall0=0.0,
        slot=number,
        arrived=0.0,
        size=(4, 4),
        image=pool.hold(number, (4, 4, 3)) if picture else None,
        poses=None if picture else (),
    )


class Counted:
    def __init__(self) -> None:
        self.of: Counter[tuple[str, str]] = Counter()

    def count(self, name: str, field: str, n: int = 1) -> None:
        if field != "frames_in":
            self.of[name, field] += n


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def queues(counted: Counted) -> FrameQueues:
    return FrameQueues(["a", "b"], counted)


def slots(queues: FrameQueues) -> list[int | str]:
    """What is handed on, of all cameras."""
    found: list[int | str] = []
    while items := queues.next(0):
        found += ["lost" if isinstance(item, Lost) else item.slot for _, item in items]
    return found


def test_the_oldest_frames_are_shed_and_counted(queues: FrameQueues, counted: Counted) -> None:
    for number in range(10):
        queues.put(frame(number))
    assert [one.number for one in queues.take(99, 0)] == [6, 7, 8, 9]
    assert counted.of == {("a", "shed"): 6}


def test_poses_that_are_not_scored_in_time_are_shed_too(
    queues: FrameQueues, counted: Counted
) -> None:
    for number in range(10):
        queues.put(frame(number, picture=False))
    assert slots(queues) == [*range(2, 10)]
    assert counted.of == {("a", "shed"): 2}


def test_cameras_take_turns(queues: FrameQueues) -> None:
    for number in range(4):
        queues.put(frame(number, "a"))
    queues.put(frame(0, "b"))
    taken = queues.take(3, 0)
    assert sorted((one.camera, one.number) for one in taken) == [("a", 0), ("a", 1), ("b", 0)]


def test_workers_may_finish_in_any_order(queues: FrameQueues) -> None:
    for number in range(4):
        queues.put(frame(number))
    first, second = queues.take(2, 0), queues.take(2, 0)
    for one in (*second, first[1]):
        queues.finish(one, NOBODY)
    assert slots(queues) == []
    queues.finish(first[0], NOBODY)
    assert slots(queues) == [0, 1, 2, 3]


def test_frames_of_a_dead_worker_come_first_again(queues: FrameQueues, counted: Counted) -> None:
    for number in range(4):
        queues.put(frame(number))
    dead, other = queues.take(2, 0), queues.take(1, 0)
    queues.finish(other[0], NOBODY)
    queues.give_back(dead)
    again = queues.take(99, 0)
    assert [one.number for one in again] == [0, 1, 3]
    for one in again:
        queues.finish(one, NOBODY)
    assert slots(queues) == [0, 1, 2, 3]
    assert not counted.of


def test_a_frame_that_kills_workers_is_left_out(queues: FrameQueues, counted: Counted) -> None:
    queues.put(frame(0))
    queues.put(frame(1))
    for _ in range(TRIES):
        poison, *others = queues.take(99, 0)
        for one in others:
            queues.finish(one, NOBODY)
        assert poison.number == 0
        queues.give_back([poison])
    assert queues.take(99, 0) == []
    assert slots(queues) == [1]
    assert counted.of == {("a", "skipped"): 1}


def test_a_frame_nobody_can_look_at_is_left_out(queues: FrameQueues, counted: Counted) -> None:
    queues.put(frame(0))
    queues.put(frame(1))
    bad, good = queues.take(2, 0)
    queues.finish(good, NOBODY)
    queues.finish(bad, None)
    assert slots(queues) == [1]
    assert counted.of == {("a", "skipped"): 1}


def test_a_camera_is_lost_after_its_last_frame(queues: FrameQueues) -> None:
    queues.put(frame(0))
    queues.put(frame(1))
    taken = queues.take(1, 0)
    queues.lose("a")
    assert slots(queues) == []
    queues.finish(taken[0], NOBODY)
    assert slots(queues) == [0]
    queues.finish(queues.take(1, 0)[0], NOBODY)
    assert slots(queues) == [1, "lost"]
    queues.lose("b")
    assert slots(queues) == ["lost"]


def test_frames_twice_and_in_disorder_come_once_and_in_order(
    queues: FrameQueues, counted: Counted
) -> None:
    for number in (0, 2, 1, 1, 3, 5, 4):
        queues.put(frame(number, picture=False))
    assert slots(queues) == [0, 1, 2, 3, 4, 5]
    assert counted.of == {("a", "skipped"): 1}


def test_a_source_that_begins_anew_counts_from_0_again(queues: FrameQueues) -> None:
    queues.put(frame(7, picture=False))
    queues.lose("a")
    queues.put(frame(0, picture=False))
    assert slots(queues) == [7, "lost", 0]


def test_nothing_is_held_without_end(queues: FrameQueues) -> None:
    for number in range(1000):
        queues.put(frame(number))
        if number % 3 == 0:
            for one in queues.take(1, 0):
                queues.finish(one, NOBODY)
    assert queues.size() <= 4 + 8


def test_the_buffer_of_a_frame_is_freed_when_it_is_done_with(queues: FrameQueues) -> None:
    pool = BufferPool(8, 48)
    for number in range(6):
        queues.put(frame(number, pool=pool))
    assert pool.lend_freed() == (0, 1), "shed"
    done, failed = queues.take(2, 0)
    assert pool.lend_freed() == ()
    queues.finish(done, NOBODY)
    assert pool.lend_freed() == (2,)
    queues.finish(failed, None)
    assert pool.lend_freed() == (3,)
    queues.put(replace(frame(7, pool=pool), number=0))
    assert pool.lend_freed() == (7,), "late"


def test_the_buffer_of_a_frame_given_back_is_kept_until_the_last_try(queues: FrameQueues) -> None:
    pool = BufferPool(8, 48)
    queues.put(frame(0, pool=pool))
    for _ in range(TRIES):
        assert pool.lend_freed() == ()
        queues.give_back(queues.take(1, 0))
    assert pool.lend_freed() == (0,)


def test_a_frame_given_back_to_a_full_queue_is_shed_with_its_buffer(queues: FrameQueues) -> None:
    pool = BufferPool(8, 48)
    queues.put(frame(0, pool=pool))
    taken = queues.take(1, 0)
    for number in range(1, 5):
        queues.put(frame(number, pool=pool))
    queues.give_back(taken)
    assert pool.lend_freed() == (0,)
    assert [one.number for one in queues.take(99, 0)] == [1, 2, 3, 4]
