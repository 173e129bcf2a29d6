"""Footage that has changed is told from footage that has not."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import Config, Detector
from stepvad.errors import DataError
from stepvad.evaluation import walkers
from stepvad.events.calibration import Calibration, read_calibration, write_calibration
from stepvad.events.drift import (
    SPAN_BLOCKS,
    SPANS_PER_YEAR,
    BlockStats,
    DriftMonitor,
    score_with_stats,
    span_count,
    spans_needed,
)
from stepvad.events.ledger import LedgerEntry

NAMES = tuple(f"number {n}" for n in range(20))


def blocks(rng: np.random.Generator, n: int) -> BlockStats:
    """Numbers that hang together."""
    return BlockStats(NAMES, rng.normal(size=(n, 20)) @ rng.normal(size=(20, 20)) + 5)


def test_the_scores_beside_the_statistics_are_those_of_the_detector() -> None:
    people = walkers.make(seed=4, train_clips=10, test_clips=1, seconds=12.0)
    clips = [*people.train_clips()]
    detector = Detector.fit(clips[:10], Config(K=12, width=16, max_steps=20, ema_warmup=True))
    scores, stats = score_with_stats(detector, clips[0], 25.0)
    np.testing.assert_array_equal(scores.A, detector.score(clips[0]).A)
    assert stats.values.shape == (1, 2 + 10 + 2 * 12 + 1)
    assert stats.values[0, stats.names.index("score")] == pytest.approx(scores.A.mean(), abs=1e-6)


def test_statistics_are_kept_with_the_calibration(tmp_path: Path) -> None:
    stats = blocks(np.random.default_rng(0), 3)
    ledgers = {"door": [LedgerEntry(watched_s=60.0, quiet=(2.0,))]}
    made = Calibration.from_ledgers(ledgers, model_sha256="a", alerts_per_day=1.0)
    made = replace(made, block_stats={"door": stats})
    write_calibration(made, tmp_path / "c.json")
    read = read_calibration(tmp_path / "c.json").block_stats["door"]
    assert read.names == stats.names
    np.testing.assert_allclose(read.values, stats.values, rtol=1e-5)
    write_calibration(replace(made, block_stats={}), tmp_path / "c.json")
    assert read_calibration(tmp_path / "c.json").block_stats == {}


NUMBERS = 12
MONITORED = tuple(f"number {n}" for n in range(NUMBERS))
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


def blocks_of(values: NDArray[np.float64]) -> BlockStats:
    return BlockStats(MONITORED, values)


def monitor(rng: np.random.Generator, days: float, cycle: float = 0.0) -> DriftMonitor:
    return DriftMonitor(blocks_of(footage(rng, np.arange(round(days * DAY)), cycle)))


def months(rng: np.random.Generator, one: DriftMonitor, n: int, cycle: float = 0.0) -> int:
    """How often a camera that does not change is called changed."""
    found, was = 0, False
    for _ in range(n * 30 * 12):
        at = rng.integers(DAY) if cycle == 0 else (one.spans_seen * 4 * SPAN_BLOCKS) % DAY
        one.observe(blocks_of(footage(rng, at + 4 * np.arange(SPAN_BLOCKS), cycle)))
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
    assert one.missing == SPAN_BLOCKS
    for span in range(one.needed):
        assert not one.has_changed
        values = footage(rng, np.arange(SPAN_BLOCKS))
        values[:, 3] += 2 * values[:, 3].std()
        one.observe(blocks_of(values[:30]))
        assert one.in_a_row == span  # a span is judged once, when it is whole
        one.observe(blocks_of(values[30:]))
    assert one.has_changed
    assert one.changes()[0].name == "number 3"
    assert one.changes()[0].now > one.changes()[0].before
    one.observe(blocks_of(footage(rng, np.arange(SPAN_BLOCKS))))
    assert not one.has_changed


def test_a_night_that_the_calibration_knows_is_no_change() -> None:
    rng = np.random.default_rng(2)
    night = footage(rng, np.full(SPAN_BLOCKS, DAY // 4), 1.5)
    knows, does_not = monitor(rng, 2, 1.5), monitor(rng, 2)
    for one in (knows, does_not):
        for _ in range(one.needed):
            one.observe(blocks_of(night))
    assert not knows.has_changed
    assert does_not.has_changed


def test_a_longer_calibration_needs_fewer_spans() -> None:
    needed = [spans_needed(spans) for spans in (4, 12, 24, 84)]
    assert needed == [16, 5, 4, 3]
    for spans, k in zip((4, 12, 24, 84), needed, strict=True):
        assert comb(spans + k, k) >= SPANS_PER_YEAR > comb(spans + k - 1, k - 1)


def test_a_calibration_of_hours_is_too_short() -> None:
    rng = np.random.default_rng(3)
    short = blocks_of(footage(rng, np.arange(900)))
    assert span_count(short) == 3
    with pytest.raises(DataError, match=r"at least 8 hours with people, got 7\.5; calibrate with"):
        DriftMonitor(short)
