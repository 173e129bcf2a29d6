"""Frames go on in order, each once, whatever the bus does to them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepvad.fleet.wire import Batch, CameraConnection, batch_of
from stepvad.fleet.worker.reorder import DEPTH, Reorder


def batch(seq: int, n: int = 1) -> Batch:
    return batch_of(
        [(seq + i, []) for i in range(n)],
        CameraConnection(site="a", camera="b", epoch=1, wall0=0.0, rate=10.0, size=(1, 1)),
        seq,
    )


def numbers(batches: list[Batch]) -> list[int]:
    return [slot for one in batches for slot in one.slots]


@given(st.integers(1, 4), st.sampled_from([0, 100, 9999]), st.integers(0, 2**32))
def test_disorder_within_the_depth_and_duplicates_leave_no_trace(
    size: int, first: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    sent = [batch(first + at, size) for at in range(0, 60 * size, size)]
    head, rest = sent[:1], sent[1:]
    late = np.argsort(np.arange(len(rest)) + rng.uniform(0, DEPTH - 1, len(rest)), kind="stable")
    order = head + [rest[i] for i in late]
    for at in sorted(rng.choice(len(order), 6), reverse=True):
        order.insert(int(at) + int(rng.integers(1, 3)), order[int(at)])
    reorder = Reorder()
    found = [n for one in order for n in numbers(reorder.push(one))]
    assert found + numbers(reorder.flush()) == list(range(first, first + 60 * size))
    assert reorder.duplicates == 6 * size
    assert reorder.missed == 0


def test_what_never_comes_is_counted_and_passed_over() -> None:
    reorder = Reorder()
    found = [n for at in [0, 1, *range(5, 5 + DEPTH + 1)] for n in numbers(reorder.push(batch(at)))]
    assert found == [0, 1, *range(5, 5 + DEPTH + 1)]
    assert reorder.missed == 3
    assert reorder.push(batch(3)) == []
    assert reorder.duplicates == 1


def test_the_first_message_of_a_connection_may_be_late_itself() -> None:
    reorder = Reorder()
    assert numbers(reorder.push(batch(2))) == []
    assert numbers(reorder.push(batch(0, 2))) == [0, 1, 2]


def test_messages_that_overlap_give_each_frame_once() -> None:
    reorder = Reorder()
    assert numbers(reorder.push(batch(0, 4))) == [0, 1, 2, 3]
    assert numbers(reorder.push(batch(2, 4))) == [4, 5]
    assert numbers(reorder.push(batch(8, 2))) == []
    assert numbers(reorder.push(batch(8, 4))) == []
    assert numbers(reorder.push(batch(6, 3))) == [6, 7, 8, 9, 10, 11]


def test_frames_left_out_are_not_waited_for() -> None:
    reorder = Reorder()
    reorder.push(batch(0))
    assert reorder.leave_out(batch(1, 3)) == 3
    assert reorder.leave_out(batch(2, 2)) == 0
    assert numbers(reorder.push(batch(4))) == [4]
