"""A camera is called changed when it is, and about never when it is not."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.calibration.drift import BlockStats
from stepvad.calibration.drift_monitor import (
    SPAN_LOOKS,
    SPANS_PER_YEAR,
    DriftMonitor,
    span_count,
    spans_needed,
)
from stepvad.errors import DataError

NUMBERS = 12
NAMES = tuple(f"number {n}" for n in range(NUMBERS))
DAY = 2880
"""Blocks of half a minute."""
MIXING = np.random.default_rng(5).normal(size=(NUMBERS, NUMBERS))


def footage(
    rng: np.random.Generator, blocks: NDArray[np.int64], cycle: float = 0.0
) -> NDArray[np.float64]:
    """Numbers of blocks of the day; at night they are otherwise."""
    z = rng.normal(size=(len(blocks), NUMBERS))
    z[:, :4] += cycle * np.sin(2 * np.pi * blocks / DAY)[:, None]
    return np.asarray(z @ MIXING)


def looks(values: NDArray[np.float64]) -> BlockStats:
    return BlockStats(NAMES, values)


def monitor(rng: np.random.Generator, days: float, cycle: float = 0.0) -> DriftMonitor:
    return DriftMonitor(looks(footage(rng, np.arange(round(days * DAY)), cycle)))


def months(rng: np.random.Generator, one: DriftMonitor, n: int, cycle: float = 0.0) -> int:
    """How often a camera that does not change is called changed."""
    found, was = 0, False
    for _ in range(n * 30 * 12):
        at = rng.integers(DAY) if cycle == 0 else (one.spans_seen * 4 * SPAN_LOOKS) % DAY
        one.add(looks(footage(rng, at + 4 * np.arange(SPAN_LOOKS), cycle)))
        found += one.has_changed and not was
        was = one.has_changed
    return found


@pytest.mark.parametrize("cycle", [0.0, 1.5])
def test_a_camera_that_does_not_change_is_not_called_changed(cycle: float) -> None:
    rng = np.random.default_rng(0)
    assert sum(months(rng, monitor(rng, 2, cycle), 2, cycle) for _ in range(6)) <= 1


def test_a_change_is_reported_after_the_spans_it_needs_and_named() -> None:
    rng = np.random.default_rng(1)
    one = monitor(rng, 2)
    assert (one.spans, one.needed) == (24, 4)
    assert one.missing == SPAN_LOOKS
    for span in range(one.needed):
        assert not one.has_changed
        values = footage(rng, np.arange(SPAN_LOOKS))
        values[:, 3] += 2 * values[:, 3].std()
        one.add(looks(values[:30]))
        assert one.in_a_row == span  # a span is judged once, when it is whole
        one.add(looks(values[30:]))
    assert one.has_changed
    assert one.changes()[0].name == "number 3"
    assert one.changes()[0].now > one.changes()[0].before
    one.add(looks(footage(rng, np.arange(SPAN_LOOKS))))
    assert not one.has_changed


def test_a_night_that_the_calibration_knows_is_no_change() -> None:
    rng = np.random.default_rng(2)
    night = footage(rng, np.full(SPAN_LOOKS, DAY // 4), 1.5)
    knows, does_not = monitor(rng, 2, 1.5), monitor(rng, 2)
    for one in (knows, does_not):
        for _ in range(one.needed):
            one.add(looks(night))
    assert not knows.has_changed
    assert does_not.has_changed


def test_a_longer_calibration_needs_fewer_spans() -> None:
    needed = [spans_needed(spans) for spans in (4, 12, 24, 84)]
    assert needed == [16, 5, 4, 3]
    for spans, k in zip((4, 12, 24, 84), needed, strict=True):
        assert comb(spans + k, k) >= SPANS_PER_YEAR > comb(spans + k - 1, k - 1)


def test_a_calibration_of_hours_is_too_short() -> None:
    rng = np.random.default_rng(3)
    short = looks(footage(rng, np.arange(900)))
    assert span_count(short) == 3
    with pytest.raises(DataError, match=r"at least 8 hours with people, got 7\.5; calibrate with"):
        DriftMonitor(short)
