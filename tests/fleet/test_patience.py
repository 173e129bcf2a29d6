"""When a shard that is behind sheds frames, and when it is given time instead."""

from __future__ import annotations

import pytest

from stepvad.fleet.worker.patience import Patience


@pytest.fixture
def patience() -> Patience:
    """That of a shard that caught up at once."""
    made = Patience.from_now(15.0, now=0.0)
    assert not made.may_shed(9.0, 0.0, restarts=0)
    assert made.may_shed(0.1, 1.0, restarts=0)
    return made


def test_a_shard_that_is_taken_may_catch_up_for_so_long() -> None:
    patience = Patience.from_now(15.0, now=100.0)
    assert not patience.may_shed(30.0, 114.0, restarts=0)
    assert patience.may_shed(30.0, 115.0, restarts=0)
    assert not patience.is_caught_up


def test_frames_that_grow_old_by_and_by_are_shed(patience: Patience) -> None:
    ages = [0.1 + 0.2 * n for n in range(10)]
    assert all(patience.may_shed(age, 2.0 + n, restarts=0) for n, age in enumerate(ages))


def test_a_pause_of_the_worker_and_an_absence_of_the_broker_are_forgiven(
    patience: Patience,
) -> None:
    assert not patience.may_shed(5.0, 6.0, restarts=0)  # paused for five seconds
    assert patience.may_shed(0.2, 7.0, restarts=0)
    assert not patience.may_shed(None, 20.0, restarts=-1)  # the broker does not answer
    assert patience.may_shed(None, 60.0, restarts=-1)
    assert not patience.may_shed(40.0, 61.0, restarts=1)  # it is back
    assert not patience.may_shed(30.0, 75.0, restarts=1)
    assert patience.may_shed(30.0, 76.0, restarts=1)


def test_delays_under_overload_do_not_put_shedding_off_for_ever(patience: Patience) -> None:
    assert not patience.may_shed(3.0, 10.0, restarts=0)
    shed = [
        patience.may_shed(5.0 + n, 11.0 + n, restarts=-1 if n // 5 % 2 else n // 5)
        for n in range(40)
    ]
    assert shed == [False] * 14 + [True] * 26


def test_an_empty_stream_is_caught_up_with() -> None:
    patience = Patience.from_now(15.0, now=0.0)
    assert not patience.may_shed(None, 1.0, restarts=0, is_drained=False)
    assert patience.may_shed(None, 2.0, restarts=0, is_drained=True)
    assert patience.is_caught_up
