"""Peaks are the limits up to which events are raised; a ledger keeps the highest by the hour."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepvad.events.calibration import RULES
from stepvad.events.ledger import (
    DAY_S,
    MOST_IN_AN_HOUR,
    MOST_PEAKS,
    LedgerEntry,
    Peak,
    by_hour,
    days_since_as_strange,
    peaks_of,
)
from stepvad.events.rules import Event, Rules, events_in
from stepvad.model.scoring import WindowScores

FPS = 10.0


def one_person(values: list[float], *, first: int = 0, id: int = 1) -> WindowScores:
    n = len(values)
    ones = np.ones(n, np.float32)
    A = np.array(values, np.float32)
    return WindowScores(
        np.full(n, id), np.arange(first, first + n), ones, np.empty((n, 0), np.float32), A
    )


def crowd(seed: int) -> WindowScores:
    """Two minutes of five people with gaps and muted windows, whose scores wander."""
    rng = np.random.default_rng(seed)
    people = []
    for id in range(5):
        first, n = rng.integers(0, 800), rng.integers(5, 800)
        values = 1 + 2 * np.convolve(rng.standard_t(3, n + 7), np.ones(8) / 8, "valid")
        one = one_person(values.tolist(), first=int(first), id=id)
        hole = rng.integers(0, n), rng.integers(1, 50)
        kept = np.flatnonzero((rng.random(n) > 0.02) & (abs(np.arange(n) - hole[0]) > hole[1]))
        seen = np.where(rng.random(n) < 0.05, 0.2, 1.0).astype(np.float32)
        people.append(replace(one, seen=seen).part(kept))
    return WindowScores.join(people, 0)


def meets(peak: Peak, event: Event) -> bool:
    return peak.overlaps((event.first_s - 1e-6, event.last_s + 1e-6))


@pytest.mark.parametrize("fps", [10.0, 12.5, 25.0])
@pytest.mark.parametrize("rules", [RULES, Rules(threshold=1.0, min_s=0.0, gap_s=0.5, release=1.0)])
def test_an_event_is_raised_at_every_limit_up_to_its_peak_and_at_none_above(
    fps: float, rules: Rules
) -> None:
    for seed in range(3):
        windows = crowd(seed)
        peaks = peaks_of(windows, fps, rules)
        assert [one.limit for one in peaks] == sorted((p.limit for p in peaks), reverse=True)
        limits = [scale * one.limit for one in peaks[:15] for scale in (1 - 1e-6, 1 + 1e-6)]
        for limit in (*limits, *np.linspace(0.3, 6.0, 15).tolist()):
            events = events_in(windows, fps, replace(rules, threshold=limit))
            above = [one for one in peaks if one.limit >= limit]
            assert len(events) <= len(above)
            assert all(any(meets(one, event) for one in above) for event in events)
            assert all(any(meets(one, event) for event in events) for one in above)


def test_an_event_is_as_high_as_it_lasts() -> None:
    """Four tenths of a second above it, without falling below the calm level."""
    burst = [0.0] * 20 + [5.0] * 4 + [0.0] * 20
    assert peaks_of(one_person(burst), FPS, RULES) == []
    burst[24] = 3.0
    (peak,) = peaks_of(one_person(burst), FPS, RULES)
    assert peak.limit == pytest.approx(3.0 / RULES.release)
    assert peak.first_s == 2.4
    muted = np.where(np.arange(len(burst)) == 22, 0.0, 1.0).astype(np.float32)
    assert peaks_of(replace(one_person(burst), seen=muted), FPS, RULES) == []


def test_what_is_one_event_at_every_limit_is_one_peak() -> None:
    near = [3.0] * 10 + [0.0] * 20 + [4.0] * 10
    far = [3.0] * 10 + [0.0] * 40 + [4.0] * 10
    assert [one.limit for one in peaks_of(one_person(near), FPS, RULES)] == [4.0]
    assert [one.limit for one in peaks_of(one_person(far), FPS, RULES)] == [4.0, 3.0]
    both = WindowScores.join([one_person([3.0] * 10), one_person([4.0] * 10, first=30, id=2)], 0)
    assert [one.limit for one in peaks_of(both, FPS, RULES)] == [4.0]


def test_who_stays_above_the_calm_level_is_in_the_same_event() -> None:
    for between, peaks in ((4.1, [5.0]), (3.9, [5.0, 5.0])):
        walk = one_person([5.0] * 10 + [between] * 40 + [5.0] * 10)
        assert [one.limit for one in peaks_of(walk, FPS, RULES)] == peaks
    again = one_person([3.5] * 10, first=60)
    back = WindowScores.join([one_person([4.0] * 10), again], 0)
    assert [one.limit for one in peaks_of(back, FPS, RULES)] == [4.0, 3.5], "gone for long"


def test_nobody_and_nothing_odd_give_no_peak() -> None:
    assert peaks_of(one_person([]), FPS, RULES) == []
    assert peaks_of(one_person([-1.0] * 30), FPS, RULES) == []
    assert (
        peaks_of(replace(one_person([3.0] * 30), seen=np.zeros(30, np.float32)), FPS, RULES) == []
    )


def entry(values: list[float], **facts: object) -> LedgerEntry:
    whole = {"watched_s": len(values) / FPS, **facts}
    return LedgerEntry.from_windows(one_person(values), FPS, RULES, **whole)  # type: ignore[arg-type]


CALM = [0.0] * 60
VALUES = [2.0] * 10 + CALM + [7.0] * 10 + [0.0] * 25 + [5.0] * 10 + CALM + [3.0] * 10
"""Events at 0 s, 7 s, 10.5 s and 17.5 s; at most limits the two in the middle are one."""


def test_an_alert_is_one_peak_and_what_is_near_it_is_not_quiet() -> None:
    begin = 1_700_000_000.0
    raised = [(begin + 7.2, begin + 7.8)]
    assert entry(VALUES).quiet == (7.0, 3.0, 2.0)
    one = entry(VALUES, begin=begin, alerts=raised)
    assert (one.alerts, one.quiet, one.highest) == ((7.0,), (3.0, 2.0), 7.0)
    (parts,) = [entry([*VALUES[:80], *CALM, *VALUES[80:]], alerts=[(7.2, 17.0)])]
    assert (parts.alerts, parts.quiet) == ((7.0,), (3.0, 2.0)), "its second part is not quiet"
    soon = entry(VALUES, begin=begin, alerts=[(begin + 4.8, begin + 5.0)])
    assert (soon.alerts, soon.quiet) == ((7.0,), (3.0, 2.0)), "by another model, the times shift"
    nowhere = entry(VALUES, begin=begin, alerts=[(begin + 900, begin + 910)])
    assert (nowhere.alerts, nowhere.quiet) == ((), (7.0, 3.0, 2.0))


def test_a_right_alert_leaves_no_trace() -> None:
    gone = entry(VALUES, begin=50.0, left_out=[(55.0, 63.0)])
    assert (gone.alerts, gone.quiet) == ((), (3.0, 2.0))
    assert entry(VALUES, left_out=[(-2.0, 100.0)]).quiet == ()


def test_the_highest_peaks_of_two_minutes_and_of_an_hour_are_kept() -> None:
    many = [value for n in range(60) for value in [*[n + 1.0] * 10, *CALM]]
    file = entry(many, watched_s=60.0, begin=7200.0)
    assert file.quiet == tuple(float(n) for n in range(60, 60 - MOST_PEAKS, -1))
    assert len(entry(many, watched_s=420.0).quiet) == 60
    later = LedgerEntry(begin=10_000.0, watched_s=1800.0, quiet=(0.5,) * 50, alerts=(9.0,))
    time = LedgerEntry(begin=14_400.0, watched_s=3600.0)
    first, second = by_hour([time, later, file])
    assert (first.begin, first.watched_s, first.alerts) == (7200.0, 1860.0, (9.0,))
    assert first.quiet == (*file.quiet, *(0.5,) * (MOST_IN_AN_HOUR - MOST_PEAKS))
    assert second == time, "an hour in which nobody came"
    assert by_hour([time, later, file], since=14_500.0) == (time,)
    assert by_hour([time, later, file], since=18_100.0) == ()


def test_strangeness_is_said_in_days() -> None:
    def on(day: float, *quiet: float) -> LedgerEntry:
        return LedgerEntry(begin=day * DAY_S, watched_s=3600.0, quiet=quiet)

    ledger = [on(1, 2.0), on(3, 9.0), on(4, 5.0), on(12, 5.0)]
    now = 12.5 * DAY_S
    assert days_since_as_strange(ledger, 6.0, now) == pytest.approx(9.5)
    assert days_since_as_strange(ledger, 4.0, now) == pytest.approx(0.5)
    assert days_since_as_strange(ledger, 5.0, now) == pytest.approx(9.5), "its own peak"
    assert days_since_as_strange(ledger, 10.0, now) == pytest.approx(11.5), "since the beginning"
    assert days_since_as_strange(ledger, 4.0, 3.5 * DAY_S) == pytest.approx(0.5)
    assert days_since_as_strange([], 5.0, now) == 0.0
