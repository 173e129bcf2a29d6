"""A promise of few false events is kept as often as it says, and not given lightly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import genpareto, poisson

from stepvad.errors import ConfigError, DataError
from stepvad.events.calibration import (
    RULES,
    Calibration,
    calibrate_cameras,
    calibration_path,
    from_counts,
    read_calibration,
    write_calibration,
)
from stepvad.events.marks import Marks, recalibrate
from stepvad.events.rules import Rules, events_in
from stepvad.events.threshold import (
    PEAKS,
    Counted,
    Marked,
    NormalClip,
    Tails,
    base_level,
    duration,
    hours_for_promise,
    hours_to_count,
    levels_for,
    strictest,
    threshold_for,
    threshold_or_guess,
    upper_rate,
)
from stepvad.model.scoring import WindowScores

LEVELS = np.geomspace(2.0, 40.0, 100)


def drawn(
    rng: np.random.Generator, hours: float, *, rate: float = 40.0, shape: float = 0.1
) -> Counted:
    """Events of a known tail above 2, in blocks of a tenth of an hour."""
    blocks = []
    for _ in range(round(10 * hours)):
        heights = 2 + genpareto.rvs(shape, size=rng.poisson(rate / 10), random_state=rng)
        blocks.append((heights[:, None] >= LEVELS).sum(axis=0))
    return Counted(LEVELS, np.array(blocks), np.full(len(blocks), 0.1))


def true_rate(threshold: float, *, rate: float = 40.0, shape: float = 0.1) -> float:
    return float(rate * genpareto.sf(threshold - 2, shape))


def scored(values: list[float], *, fps: float = 10.0) -> NormalClip:
    n = len(values)
    A = np.array(values, dtype=np.float32)
    windows = WindowScores(
        np.ones(n, np.int64), np.arange(n), np.ones(n, np.float32), np.empty((n, 0), np.float32), A
    )
    return NormalClip(windows, n, fps)


def test_nothing_seen_in_three_hours_promises_one_an_hour() -> None:
    assert upper_rate(0, 3.0, 0.95) == pytest.approx(0.9986, abs=1e-4)
    assert hours_to_count(1.0, 0.95) == pytest.approx(2.9957, abs=1e-4)
    for events in (0, 3, 11):  # exact: as few or fewer events have a chance of 5 %
        mean = upper_rate(events, 1.0, 0.95)
        assert poisson.cdf(events, mean) == pytest.approx(0.05)
    assert upper_rate(8, 1.0, 0.95, dispersion=2.0) > upper_rate(8, 1.0, 0.95)


def test_events_are_counted_by_block_at_every_level() -> None:
    calm, odd = [0.0] * 1500, [3.0] * 10 + [0.0] * 1490
    clip = scored(calm + odd + [5.0] * 10 + [0.0] * 1490 + odd)
    levels = np.array([2.0, 4.0, 6.0])
    counted = Counted.from_clips([clip], levels, replace(RULES, release=1.0))
    assert counted.events.tolist() == [[1, 0, 0], [2, 1, 0]]
    assert counted.hours.tolist() == pytest.approx([300 / 3600] * 2)
    for level in levels.tolist():
        rules = replace(RULES, threshold=level, release=1.0)
        assert counted.totals[levels == level] == len(events_in(clip.windows, clip.fps, rules))


def test_what_was_not_watched_is_no_footage() -> None:
    clip = replace(scored([0.0] * 2000 + [3.0] * 10 + [0.0] * 1990), first_frame=1000)
    counted = Counted.from_clips([clip], np.array([2.0, 4.0]), RULES)
    assert counted.hours.tolist() == pytest.approx([300 / 3600])
    assert counted.events.tolist() == [[1, 0]]


def test_a_lower_level_never_has_fewer_events() -> None:
    """A long one that falls apart at a higher level is counted as its parts at the lower too."""
    clip = scored([3.0] * 10 + [1.0] * 50 + [3.0] * 10)
    counted = Counted.from_clips([clip], np.array([0.9, 2.0]), replace(RULES, release=1.0))
    assert counted.events.tolist() == [[2, 2]]


def test_levels_reach_from_many_windows_to_the_highest_score() -> None:
    values = np.linspace(0, 10, 1001, dtype=np.float32)
    levels = levels_for([scored(values[:500].tolist()), scored(values[500:].tolist())], RULES)
    assert (levels[0], levels[-1]) == pytest.approx((9.5, 10.0))
    with pytest.raises(DataError, match="expected footage with people who are scored above 0"):
        levels_for([scored([-1.0] * 3)], RULES)


def test_the_tail_is_found_again() -> None:
    counted = drawn(np.random.default_rng(0), 500.0, shape=0.2)
    tails = Tails.sample(counted, 0)
    assert np.mean(tails.shape) == pytest.approx(0.2, abs=0.03)
    there = tails.thresholds(0.1)
    assert np.median(there) == pytest.approx(2 + genpareto.isf(0.1 / 40, 0.2), rel=0.08)
    np.testing.assert_allclose(tails.rates(there).diagonal(), 0.1)
    np.testing.assert_allclose(tails.thresholds(100.0), tails.level)
    assert base_level(counted) > 0
    assert counted.totals[base_level(counted)] >= PEAKS > counted.totals[base_level(counted) + 1]


@pytest.mark.parametrize(
    ("hours", "rate", "how"),
    [(10.0, 1.0, "counted"), (2.0, 1.0, "tail"), (3.0, 0.1, "tail"), (20.0, 0.01, "tail")],
)
def test_the_promise_is_kept_as_often_as_it_says(hours: float, rate: float, how: str) -> None:
    rng = np.random.default_rng(3)
    found = [threshold_for(drawn(rng, hours), rate) for _ in range(100)]
    kept = np.mean([true_rate(threshold.value) <= rate for threshold in found])
    inside = np.mean([low <= true_rate(t.value) <= high for t in found for low, high in (t.rate,)])
    assert sum(threshold.how == how for threshold in found) >= 90
    assert kept >= 0.9
    assert inside >= 0.85
    assert np.median([true_rate(threshold.value) for threshold in found]) > rate / 20


def test_groups_of_events_make_it_more_careful() -> None:
    rng = np.random.default_rng(0)
    alone = drawn(rng, 20.0)
    grouped = replace(alone, events=np.where(np.arange(200)[:, None] < 20, 10, 0) * (LEVELS < 4))
    spread = replace(alone, events=np.ones((200, 1), np.int64) * (LEVELS < 4))
    assert spread.totals[0] == grouped.totals[0] == 200
    assert spread.dispersion(0) == 1.0
    assert grouped.dispersion(0) > 5
    assert alone.dispersion(0) < 1.5


def test_little_footage_gives_a_guess_above_all_that_it_shows() -> None:
    counted = drawn(np.random.default_rng(0), 3.0)
    for fewer, hours in ((30, 3.0), (4, 0.3)):
        some = replace(counted, events=counted.events[:fewer], hours=np.full(fewer, hours / fewer))
        found = threshold_or_guess(some, 0.01)
        assert (found.how, found.is_promised, found.events) == ("provisional", False, 0)
        highest = some.levels[np.flatnonzero(some.totals)[-1]]
        assert highest <= found.value < 4 * highest
        assert "no promise yet" in found.words
    assert hours_for_promise(counted, 0.01, 0.95) == pytest.approx(10.0)
    assert threshold_or_guess(counted, 0.5).how == "tail"


def test_footage_without_events_gives_a_guess_above_its_highest_score() -> None:
    nothing = Counted(LEVELS, np.zeros((1, len(LEVELS)), np.int64), np.full(1, 0.01))
    found = threshold_or_guess(nothing, 0.1)
    assert found.value == pytest.approx(1.25 * LEVELS[-1])
    assert found.rate == pytest.approx((0.0, 369), rel=0.01)
    assert hours_for_promise(nothing, 0.1, 0.95) == pytest.approx(1.0)  # by counting: 30


@pytest.mark.parametrize(
    ("hours", "words"), [(0.01, "36 s"), (0.2, "12 min"), (3.5, "3.5 h"), (100, "4.2 days")]
)
def test_hours_are_said_as_people_say_them(hours: float, words: str) -> None:
    assert duration(hours) == words


def test_a_mark_moves_a_provisional_threshold_above_it() -> None:
    counted = drawn(np.random.default_rng(0), 0.3)
    before = from_counts(
        {"yard": counted}, model_sha256="x", alerts_per_hour=0.01, confidence=0.95, rules=RULES
    )
    peak = 1.5 * before.threshold.value
    marks = Marks(normal={"a": Marked(camera="yard", peak=peak)})
    after = recalibrate(before, marks)
    assert after.threshold.value >= peak > before.threshold.value
    back = recalibrate(after, Marks(not_normal=["a"]))
    assert back.threshold.value == before.threshold.value


def test_no_promise_without_grounds() -> None:
    counted = drawn(np.random.default_rng(0), 3.0)
    assert strictest(3.0) == pytest.approx(1 / 30)
    with pytest.raises(DataError, match=r"at least 0.033 from 3 hours of footage, got 0.01") as e:
        threshold_for(counted, 0.01)
    assert "record 10 hours" in str(e.value)
    few = replace(counted, events=counted.events[:2], hours=np.full(2, 10.0))
    with pytest.raises(DataError, match="expected footage with at least 20 events"):
        threshold_for(few, 0.06)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="alerts_per_hour: expected a number above 0"):
            threshold_for(counted, wrong)
    with pytest.raises(ConfigError, match=r"confidence: expected from 0.5 to below 1, got 1"):
        threshold_for(counted, 1.0, confidence=1.0)


def noisy_cameras() -> dict[str, list[NormalClip]]:
    rng = np.random.default_rng(0)
    values = {
        name: np.repeat(scale * rng.exponential(size=(hours * 720, 10)), 5, axis=1).ravel()
        for name, scale, hours in (("door", 1.0, 4), ("hall", 2.0, 4), ("attic", 1.0, 1))
    }
    return {name: [scored(some.tolist())] for name, some in values.items()}


def test_cameras_have_thresholds_of_their_own_where_they_can(tmp_path: Path) -> None:
    rules = Rules(threshold=1.0, gap_s=0.5)
    made = calibrate_cameras(noisy_cameras(), model_sha256="abc", alerts_per_hour=0.05, rules=rules)
    assert made.cameras.keys() == {"door", "hall"}
    assert made.rules_of("hall").threshold > made.rules_of("door").threshold
    assert made.rules_of("attic").threshold == made.threshold.value == made.rules.threshold
    assert made.rules.gap_s == 0.5
    same(made, tmp_path)


def same(made: Calibration, directory: Path) -> None:
    path = calibration_path(directory / "model.safetensors")
    assert path.name == "model.calibration.json"
    write_calibration(made, path)
    read = read_calibration(path)
    assert replace(read, counted={}) == replace(made, counted={})
    for name, counted in made.counted.items():
        np.testing.assert_array_equal(read.counted[name].events, counted.events)
        np.testing.assert_array_equal(read.counted[name].levels, counted.levels)
        np.testing.assert_array_equal(read.counted[name].hours, counted.hours)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 1}', "\x00", '{"schema": 1, "levels": 3}']
)
def test_another_file_is_not_a_calibration(text: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"odd.json: expected a calibration, got something else"):
        read_calibration(path)
    path.write_text('{"schema": 99}', encoding="utf-8")
    with pytest.raises(DataError, match=r"odd.json: calibration: expected version 1, got 99"):
        read_calibration(path)
    with pytest.raises(DataError, match="expected a calibration, got: No such file"):
        read_calibration(tmp_path / "none.json")


@cache
def whole() -> Calibration:
    counted = {name: drawn(np.random.default_rng(7), 20.0) for name in ("door", "hall")}
    rules = Rules(threshold=1.0)
    facts = {"model_sha256": "abc", "alerts_per_hour": 1.0, "confidence": 0.95}
    return from_counts(counted, rules=rules, **facts)  # type: ignore[arg-type]


def spoilt(directory: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A calibration with something else in it."""
    path = directory / "a.calibration.json"
    write_calibration(whole(), path)
    facts = json.loads(path.read_bytes())
    change(facts)
    path.write_text(json.dumps(facts), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"levels": [2.0, 1.0]},
        {"levels": [*range(1, 20_000)]},
        {"blocks": {"door": []}},
        {"blocks": {"door": [[1.0, []]] * 300_000}},
        {"block_stats": {"door": [[math.nan] * 3]}, "statistics": ["a", "b", "c"]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_counts_that_nobody_counted_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.calibration\.json: ") as error:
        read_calibration(spoilt(tmp_path, lambda facts: facts.update(change)))
    assert error.value.hint


def test_footage_without_any_event_promises_what_its_hours_carry() -> None:
    nothing = Counted(LEVELS, np.zeros((10, len(LEVELS)), np.int64), np.ones(10))
    found = threshold_for(nothing, 1.0)
    assert (found.value, found.how, found.events) == (LEVELS[0], "counted", 0)
    assert found.rate == pytest.approx((0, 0.369), abs=1e-3)
    with pytest.raises(DataError, match="at least 20 events"):
        threshold_for(nothing, 0.1)
