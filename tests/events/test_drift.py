"""Footage that has changed is told from footage that has not."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import Clip, Config, Detector, Track
from stepvad.errors import DataError
from stepvad.evaluation import walkers
from stepvad.events.calibration import Calibration, read_calibration, write_calibration
from stepvad.events.drift import (
    SPAN_BLOCKS,
    SPANS_PER_YEAR,
    SURE,
    BlockStats,
    DriftMonitor,
    compare,
    score_with_stats,
    span_count,
    spans_needed,
)
from stepvad.events.rules import Rules
from stepvad.events.threshold import Counted, Threshold

NAMES = tuple(f"number {n}" for n in range(20))


def blocks(rng: np.random.Generator, n: int, shift: float = 0.0) -> BlockStats:
    """Numbers that hang together, of which the third may have moved."""
    values = rng.normal(size=(n, 20)) @ rng.normal(size=(20, 20)) + 5
    values[:, 3] += shift * values[:, 3].std()
    return BlockStats(NAMES, values)


def test_blocks_of_one_kind_are_seldom_called_changed() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(20, 20))
    p = []
    for seed in range(200):
        values = rng.normal(size=(60, 20)) @ mixing
        p.append(
            compare(BlockStats(NAMES, values[:40]), BlockStats(NAMES, values[40:]), seed=seed).p
        )
    assert np.mean(np.array(p) < SURE) <= 0.02
    assert 0.3 < np.mean(p) < 0.7  # neither too careful


def test_a_number_that_moved_is_named_first() -> None:
    rng = np.random.default_rng(1)
    before, now = blocks(rng, 60), blocks(rng, 20)
    now.values[:, 3] = before.values[:20, 3] + 1.5 * before.values[:, 3].std()
    now.values[:, :3], now.values[:, 4:] = before.values[20:40, :3], before.values[20:40, 4:]
    found = compare(before, now)
    assert found.is_real
    assert found.changes[0].name == "number 3"
    assert found.changes[0].now > found.changes[0].before


def test_too_little_footage_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match=r"recent footage: expected at least 5 blocks .*, got 4"):
        compare(blocks(rng, 60), blocks(rng, 4))
    with pytest.raises(DataError, match="calibration: expected at least 5 blocks"):
        compare(blocks(rng, 2), blocks(rng, 20))


def at_half_rate(clip: Clip) -> Clip:
    tracks = [
        Track(t.id, t.frames[even] // 2, t.keypoints[even], t.confidence[even])
        for t in clip.tracks
        for even in (t.frames % 2 == 0,)
    ]
    return Clip(clip.name, clip.fps, clip.n_frames // 2 + 1, tuple(tracks), clip.skeleton)


def test_a_halved_frame_rate_is_noticed_and_the_scores_are_those_of_the_detector() -> None:
    people = walkers.make(seed=4, train_clips=40, test_clips=1, seconds=12.0)
    clips = [*people.train_clips()]
    detector = Detector.fit(clips[:10], Config(K=12, width=16, max_steps=20, ema_warmup=True))
    scores, stats = score_with_stats(detector, clips[0], 25.0)
    np.testing.assert_array_equal(scores.A, detector.score(clips[0]).A)
    assert stats.values.shape == (1, 2 + 10 + 2 * 12 + 1)
    assert stats.values[0, stats.names.index("score")] == pytest.approx(scores.A.mean(), abs=1e-6)
    every = [score_with_stats(detector, clip, 25.0)[1] for clip in clips]
    slow = [score_with_stats(detector, at_half_rate(clip), 25.0)[1] for clip in clips[30:]]
    assert not compare(BlockStats.join(every[:30]), BlockStats.join(every[30:])).is_real
    assert compare(BlockStats.join(every[:30]), BlockStats.join(slow)).is_real


def test_statistics_are_kept_with_the_calibration(tmp_path: Path) -> None:
    stats = blocks(np.random.default_rng(0), 3)
    threshold = Threshold(
        value=2.0, alerts_per_hour=1.0, confidence=0.95, how="tail", hours=1.0, events=0,
        rate=(0.0, 1.0),
    )  # fmt: skip
    counted = Counted(np.array([1.0, 2.0]), np.array([[1, 0]]), np.array([1.0]))
    made = Calibration(
        model_sha256="a", rules=Rules(threshold=2.0), threshold=threshold,
        counted={"door": counted}, block_stats={"door": stats},
    )  # fmt: skip
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
