"""A camera's rate on a machine that is too slow for a while."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from stepvad.site.load import REMEDY, Load, RateYield
from stepvad.site.status import LiveStatus


def play(rate: float, seconds: float, able: Callable[[float], float]) -> list[tuple[float, int]]:
    """Times at which the divisor changed, on a machine that looks at `able(now)` frames a second.

    As in a camera process: a looker that is busy, and a slot of one frame before it.
    """
    yields, free_at, changes = RateYield(rate), 0.0, [(0.0, 1)]
    waits = False
    for slot in range(round(seconds * rate)):
        now = slot / rate
        if waits and free_at <= now:
            free_at, waits = free_at + 1 / able(now), False
        if not yields.takes(slot):
            continue
        yields.count(now, kept=not waits, shed=waits)
        if free_at <= now:
            free_at = now + 1 / able(now)
        else:
            waits = True
        if yields.divisor != changes[-1][1]:
            changes.append((now, yields.divisor))
    return changes


def test_a_machine_that_keeps_up_keeps_the_rate() -> None:
    assert play(10, 600, lambda now: 12) == [(0.0, 1)]


def test_a_hiccup_of_a_second_changes_nothing() -> None:
    assert play(10, 600, lambda now: 2 if 100 < now < 101 else 20) == [(0.0, 1)]


def test_the_rate_halves_within_seconds_and_comes_back_once_the_machine_is_calm() -> None:
    changes = play(10, 300, lambda now: 7 if 60 < now < 180 else 20)
    assert [divisor for _, divisor in changes][:2] == [1, 2]
    assert 60 < changes[1][0] < 67
    assert changes[-1][1] == 1
    assert changes[-1][0] < 180 + 2 * 60


def test_it_does_not_swing_under_a_load_that_stays() -> None:
    changes = play(10, 7200, lambda now: 7)
    # longer and longer waits before the full rate is tried again, for some seconds each
    assert len(changes) < 36
    full = [until - at for (at, divisor), (until, _) in pairwise(changes) if divisor == 1]
    assert max(full) < 7
    assert changes[-1][0] - changes[-3][0] > 500


@pytest.mark.parametrize(("rate", "lowest"), [(25.0, 6.25), (10.0, 5.0), (9.0, 9.0), (2.0, 2.0)])
def test_it_never_falls_below_five_a_second_by_itself(rate: float, lowest: float) -> None:
    changes = play(rate, 120, lambda now: 0.5)
    assert rate / max(divisor for _, divisor in changes) == lowest


def test_a_camera_that_was_away_says_nothing_of_the_load() -> None:
    yields = RateYield(10.0)
    for minute in range(20):
        yields.count(60.0 * minute, shed=1)
    assert yields.divisor == 1


def test_a_lowered_rate_is_said_and_frames_lost_beyond_it_are_an_overload() -> None:
    now = [0.0]
    status = LiveStatus(lambda: now[0])
    status.camera("yard", rate=10.0, threshold=3.0, model="m", zones={})
    status.state("yard", "online", "", 0.0)

    def watch(seconds: int, scored: int, shed: int) -> Load:
        for _ in range(seconds):
            now[0] += 1
            status.count("yard", "scored", scored)
            status.count("yard", "shed", shed)
        return status.snapshot().cameras[0].load

    assert watch(12, 6, 4).state == "overloaded"
    status.lower_rate("yard", 2)
    busy = watch(12, 5, 0)
    assert busy.state == "busy"
    assert busy.words == "at 5 of 10 frames a second: the machine is busy"
    assert REMEDY in busy.advice
    overloaded = watch(12, 3, 2)
    assert overloaded.state == "overloaded"
    assert overloaded.words.endswith("frames left out at 5 of 10 frames a second")
    status.lower_rate("yard", 1)
    assert watch(12, 10, 0) == Load()
