"""Time slots and order: what a stream's clock does, and frames twice, late or out of order."""

from __future__ import annotations

import random

import pytest

from stepvad.site.intake.time_slots import JUMP_S, PlayPace, TimeOrder, TimeSlots


def test_slots_go_by_the_time_of_the_stream_not_by_when_frames_arrive() -> None:
    slots = TimeSlots(10)
    late = [0.0, 0.11, 0.9, 0.91, 0.92, 0.93]  # a burst after a pause of the network
    assert [slots.place(500 + 0.1 * i, at) for i, at in enumerate(late)] == [0, 1, 2, 3, 4, 5]


def test_a_faster_stream_gives_each_slot_away_once() -> None:
    slots = TimeSlots(10)
    placed = [slots.place(i / 25, i / 25) for i in range(100)]
    given = [slot for slot in placed if slot is not None]
    assert given == [*range(given[-1] + 1)]
    assert given[-1] in (39, 40)


def test_without_times_the_clock_counts() -> None:
    slots = TimeSlots(10)
    assert [slots.place(None, t) for t in (7.0, 7.1, 7.31)] == [0, 1, 3]


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, -1.5, 6.0])
def test_a_stream_whose_time_jumps_goes_on_where_it_was(jump: float) -> None:
    slots = TimeSlots(10)
    times = [100.0 + 0.1 * i + (jump if i >= 20 else 0) for i in range(40)]
    assert [slots.place(t, 0.1 * i) for i, t in enumerate(times)] == [*range(40)]


def test_a_first_frame_without_a_time_changes_nothing() -> None:
    slots = TimeSlots(10)
    assert [slots.place(t, 0.1 * i) for i, t in enumerate([None, 50.1, 50.2])] == [0, 1, 2]


def test_a_frame_in_disorder_is_skipped_and_the_others_stay() -> None:
    slots = TimeSlots(10)
    assert [slots.place(t, t) for t in (0.0, 0.2, 0.1, 0.3)] == [0, 2, None, 3]


def played(times: list[float], *, rate: float = 25.0, slower_s: float = 0.0) -> list[float]:
    """When frames with these timestamps are due, if each takes that long to decode."""
    pace, clock, due = PlayPace(rate), 1000.0, []
    for pts in times:
        clock += slower_s
        due.append(pace.due(pts, clock))
        clock = max(clock, due[-1])
    return [round(at - 1000.0, 3) for at in due]


def test_a_file_is_played_at_its_own_pace() -> None:
    assert played([7.0, 7.04, 7.08, 9.0, 9.0 + JUMP_S]) == [0.0, 0.04, 0.08, 2.0, 2.0 + JUMP_S]


@pytest.mark.parametrize("jump", [95443.0, -95443.0, JUMP_S + 0.1, -1.5])
def test_a_file_whose_timestamps_jump_goes_on_where_it_was(jump: float) -> None:
    times = [0.04 * i + (jump if i >= 2 else 0.0) for i in range(5)]
    assert played(times) == [0.0, 0.04, 0.08, 0.12, 0.16]


def test_a_file_that_decodes_slowly_catches_up() -> None:
    assert played([0.0, 0.04, 0.08, 3.0], slower_s=0.5) == [0.5, 0.54, 0.58, 3.5]


def test_frames_twice_and_out_of_order_come_once_and_in_order() -> None:
    rng = random.Random(4)
    numbers = [*range(400)]
    for at in rng.sample(range(394), 20):  # late by up to five
        numbers.insert(at + rng.randint(1, 5), numbers.pop(at))
    for at in rng.sample(range(400), 20):
        numbers.insert(at, numbers[at])
    order: TimeOrder[int] = TimeOrder()
    released = [item for n in numbers for item in order.push(n, n)] + order.flush()
    assert released == [*range(400)]
    assert order.dropped == 20


def test_what_never_comes_is_waited_for_a_little_and_counted_if_it_comes_later() -> None:
    order: TimeOrder[int] = TimeOrder()
    released = [[*order.push(n, n)] for n in (0, 2, 3, 4, 5, 6, 7, 8, 1)]
    assert released == [[0], [], [], [], [], [], [2, 3, 4, 5, 6, 7], [8], []]
    assert order.dropped == 1
