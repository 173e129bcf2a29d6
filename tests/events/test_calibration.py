"""A detector and normal clips give limits, kept in a file beside the model."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad import Clip, Detector
from stepvad.errors import ConfigError, DataError, StepvadError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.calibration import (
    RULES,
    Calibration,
    ScoredFootage,
    calibrate,
    calibration_path,
    find_calibration,
    read_calibration,
    rules_for,
    write_calibration,
)
from stepvad.events.ledger import DAY_S, LedgerEntry
from stepvad.events.rules import Rules, events_in, find_events
from stepvad.formats.labels import FrameLabels

A_LOT = 400.0
"""Alerts per hour, of which half a minute of footage holds a few."""


def test_it_is_the_threshold_that_a_site_of_this_footage_has(
    small_model: Detector, walkers: list[Clip]
) -> None:
    rules = replace(RULES, gap_s=1.0)
    found = calibrate(small_model, iter(walkers), alerts_per_hour=A_LOT, rules=rules)
    footage = ScoredFootage(rules)
    footage.score(small_model, "door", walkers)
    made = footage.calibrate("a" * 64, alerts_per_day=24 * A_LOT)
    assert found == made.threshold == made.cameras["door"]
    assert (found.alerts_per_hour, made.rules.gap_s) == (A_LOT, 1.0)
    assert found.hours == pytest.approx(sum(clip.n_frames for clip in walkers) / 25 / 3600)
    assert (made.rates, [*made.block_stats]) == ({"door": (25.0,)}, ["door"])
    elsewhere = ScoredFootage(rules)
    for clip in walkers:
        one = ScoredFootage(rules)
        one.score(small_model, "door", [clip])
        elsewhere.join([one])
    assert elsewhere.calibrate("a" * 64, alerts_per_day=24 * A_LOT).ledgers == made.ledgers


def test_more_alerts_lower_the_threshold_and_strict_ones_raise_it(small_model: Detector) -> None:
    clips = [clip for clip, _ in make_clips(6, seed=5, seconds=30.0)]
    few, many = (calibrate(small_model, clips, alerts_per_hour=rate).value for rate in (100, 400))
    sure = calibrate(small_model, clips, alerts_per_hour=100, strict=True)
    assert many < few < sure.value
    assert sure.how == "counted"
    part = replace(clips[0], tracks=tuple(one.between(400, 750) for one in clips[0].tracks))
    seconds = 3600 * calibrate(small_model, [part], alerts_per_hour=A_LOT).hours
    assert seconds == pytest.approx(30 - part.first_frame / 25), "a part of a longer video"
    assert seconds <= 14


def test_the_frame_rate_may_be_told(small_model: Detector, walkers: list[Clip]) -> None:
    silent = [replace(clip, fps=None) for clip in walkers]
    with pytest.raises(DataError, match=r"expected a frame rate.*fps=25"):
        calibrate(small_model, silent, alerts_per_hour=A_LOT)
    told = calibrate(small_model, silent, alerts_per_hour=A_LOT, fps=25.0)
    assert told == calibrate(small_model, walkers, alerts_per_hour=A_LOT)


def test_footage_that_is_too_little_says_how_much_is_needed(
    small_model: Detector, walkers: list[Clip]
) -> None:
    with pytest.raises(DataError, match=r"strict: not before 12 days without an alert"):
        calibrate(small_model, walkers, alerts_per_hour=0.01, strict=True)
    with pytest.raises(DataError, match="above 0, got none"):
        calibrate(small_model, [], alerts_per_hour=A_LOT)
    with pytest.raises(ConfigError, match="expected a rate above 0"):
        calibrate(small_model, walkers, alerts_per_hour=0.0)


def test_events_are_found_above_a_threshold_or_by_rules(
    small_model: Detector, walker_test: list[tuple[Clip, FrameLabels]]
) -> None:
    odd, fps = 0, 25.0
    for clip, _ in walker_test:
        scores = small_model.score(clip)
        found = find_events(clip, scores, 2.0)
        assert found == find_events(clip, scores, Rules(threshold=2.0))
        assert found == events_in(scores.windows, fps, Rules(threshold=2.0), clip)
        assert find_events(clip, scores, 1e6) == []
        untold = replace(clip, fps=None)
        assert find_events(untold, scores, 2.0, fps=fps) == found
        odd += len(found)
        assert all(0 <= event.first_s <= event.peak_s <= event.last_s <= 8 for event in found)
    assert odd >= 3


def made() -> Calibration:
    """Two cameras, one twice as odd as the other, and one where nobody has been yet."""
    rng = np.random.default_rng(0)
    ledgers = {
        name: [
            LedgerEntry(
                begin=1.7e9 + DAY_S * day,
                watched_s=DAY_S,
                quiet=tuple(np.round(scale * (1 + rng.exponential(size=30)), 4).tolist()),
                alerts=(20.0,) * (day == 3),
            )
            for day in range(5)
        ]
        for name, scale in (("door", 1.0), ("hall", 2.0))
    }
    ledgers["attic"] = [LedgerEntry(begin=1.7e9, watched_s=60.0)]
    rules = Rules(threshold=1.0, gap_s=0.5)
    facts: dict[str, Any] = {"model_sha256": "a" * 64, "alerts_per_day": 1.0, "rules": rules}
    return Calibration.from_ledgers(ledgers, **facts)


def test_each_camera_has_a_threshold_of_its_own_footage() -> None:
    found = made()
    assert found.cameras.keys() == {"door", "hall"}
    assert found.rules_of("hall").threshold > 1.5 * found.rules_of("door").threshold
    assert found.rules_of("attic").threshold == found.threshold.value == found.rules.threshold
    assert found.rules.gap_s == 0.5
    assert found.threshold.hours == pytest.approx(240 + 1 / 60)
    again = replace(found, rates={"door": (25.0,)})
    strict: dict[str, Any] = {"model_sha256": "", "alerts_per_day": 1.0, "strict": True}
    assert Calibration.from_ledgers(again.ledgers, **strict).cameras.keys() == {"door", "hall"}
    door = {"door": found.ledgers["door"], "attic": found.ledgers["attic"]}
    assert Calibration.from_ledgers(door, **strict).threshold.how == "counted"
    with pytest.raises(DataError, match="not before"):
        Calibration.from_ledgers({"door": door["door"][:1]}, **strict)


def test_the_calibration_beside_a_model_gives_its_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, before = tmp_path / "model.safetensors", replace(made(), rates={"door": (25.0, 30.0)})
    with pytest.raises(StepvadError, match="expected a calibration next to the model, got none"):
        rules_for(model, "a" * 64)
    write_calibration(before, calibration_path(model))
    assert calibration_path(model).name == "model.calibration.json"
    assert find_calibration(model, "a" * 64) == before
    rules, budget = rules_for(model, "a" * 64)
    assert (rules.threshold, budget) == (before.threshold.value, before.threshold)
    own, budget = rules_for(model, "a" * 64, camera="door")
    assert (own, budget) == (before.rules_of("door"), before.cameras["door"])
    by_hand, nothing = rules_for(model, "a" * 64, threshold=7.0)
    assert (by_hand.threshold, nothing) == (7.0, None)
    with pytest.raises(StepvadError, match="got 'roof'; it has door"):
        rules_for(model, "a" * 64, camera="roof")
    assert find_calibration(model, "b" * 64) is None
    assert "belongs to another model and is ignored" in caplog.text


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": 1}', "\x00", '{"schema": 1, "ledgers": 3}']
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


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["ledgers"].update(door=[{"watched_s": -1.0}]),
        lambda facts: facts["ledgers"].update(door=[{"watched_s": 1.0, "quiet": [0.0]}]),
        lambda facts: facts["threshold"].update(value=math.nan),
        lambda facts: facts["threshold"].update(how="guessed"),
        lambda facts: facts.update(block_stats={"door": [[1.0] * 2]}, statistics=["a"]),
        lambda facts: facts.update(block_stats={"door": [[]] * 60_000}, statistics=["a"] * 60_000),
    ],
)
def test_ledgers_that_nobody_kept_are_refused(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    path = tmp_path / "a.calibration.json"
    write_calibration(made(), path)
    facts = json.loads(path.read_bytes())
    change(facts)
    path.write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.calibration\.json: ") as error:
        read_calibration(path)
    assert error.value.hint
