"""Waits between retries: doubling, bounded, with jitter."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from stepvad.retries import Backoff


def test_waits_double_up_to_the_longest_and_are_cut_to_half_at_most() -> None:
    backoff = Backoff(1.0, 5.0)
    for full_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        assert full_s / 2 <= backoff.next_s() <= full_s


def test_waits_may_grow_more_slowly() -> None:
    backoff = Backoff(1.0, 1.3, growth=1.25)
    for full_s in (1.0, 1.25, 1.3, 1.3):
        assert full_s / 2 <= backoff.next_s() <= full_s


def test_a_success_begins_from_the_first_wait() -> None:
    backoff = Backoff(1.0, 60.0)
    for _ in range(6):
        backoff.next_s()
    backoff.reset()
    assert backoff.next_s() <= 1.0


def test_two_clients_do_not_come_back_in_step() -> None:
    waits = {Backoff(1.0, 60.0).next_s() for _ in range(20)}
    assert len(waits) == 20


def test_clients_that_wait_longest_do_not_come_back_in_step_either() -> None:
    waits = {Backoff(1.0, 8.0, failures=20).next_s() for _ in range(20)}
    assert len(waits) > 10
    assert all(4.0 <= wait <= 8.0 for wait in waits)


def test_what_the_other_side_asks_for_is_kept_up_to_the_longest() -> None:
    assert Backoff(1.0, 60.0).next_s(at_least_s=7.0) == 7.0
    assert Backoff(1.0, 60.0).next_s(at_least_s=3600.0) == 60.0


def test_failures_that_somebody_else_remembers_count() -> None:
    assert Backoff(1.0, 60.0, failures=4).next_s() >= 8.0


@pytest.mark.parametrize("failures", [10_000, 10**9])
def test_years_of_failures_do_not_overflow(failures: int) -> None:
    assert Backoff(0.5, 60.0, failures=failures).next_s() <= 60.0


def test_a_wait_ends_when_told_to_stop() -> None:
    stop = threading.Event()
    threading.Timer(0.05, stop.set).start()
    began = time.monotonic()
    assert Backoff(30.0, 60.0).wait(stop)
    assert time.monotonic() - began < 10
    assert not Backoff(0.001, 0.01).wait(threading.Event())


def test_a_sleep_counts_as_a_failure() -> None:
    backoff = Backoff(0.001, 0.01)
    asyncio.run(backoff.sleep())
    assert backoff.failures == 1
