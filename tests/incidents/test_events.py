"""An event is an incident: who was in it, when it began and when it was over."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepvad.errors import ConfigError
from stepvad.incidents.events import (
    LATE_S,
    Change,
    Event,
    EventDetector,
    Rules,
    clip_event_id,
    find,
    that_matter,
)
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Track
from stepvad.skeletons import COCO17

RULES = Rules(threshold=2.0, release=0.5, min_s=0.2, gap_s=1.0)
"""Calm below 1."""
FPS = 10.0


def scores(rows: list[tuple[int, int, float]]) -> WindowScores:
    """Windows of (track, frame, score)."""
    track, frame, A = (np.array([row[i] for row in rows]) for i in range(3))
    nothing = np.empty((len(rows), 0), np.float32)
    return WindowScores(
        track.astype(np.int64), frame.astype(np.int64), A.astype(np.float32), nothing,
        A.astype(np.float32),
    )  # fmt: skip


def of_track(
    values: list[float], *, track: int = 1, first: int = 0
) -> list[tuple[int, int, float]]:
    return [(track, first + number, value) for number, value in enumerate(values)]


def spans(rows: list[tuple[int, int, float]], rules: Rules = RULES) -> list[tuple[float, float]]:
    return [(event.first_s, event.last_s) for event in find(scores(rows), FPS, rules)]


def test_it_begins_above_the_threshold_and_ends_below_the_lower_one() -> None:
    values = [0, 1.5, 2.5, 1.5, 3.0, 1.2, 0.9, 1.5, 1.5]
    (event,) = find(scores(of_track(values)), FPS, RULES)
    assert (event.first_s, event.last_s) == (0.2, 0.5)
    assert (event.peak, event.peak_s, event.peak_track) == (3.0, 0.4, 1)


def test_what_is_too_short_is_nothing() -> None:
    assert spans(of_track([0, 3, 3, 0])) == []
    assert spans(of_track([0, 3, 3, 3, 0])) == [(0.1, 0.3)]
    assert spans(of_track([0, 3, 0]), replace(RULES, min_s=0.0)) == [(0.1, 0.1)]


def test_what_follows_within_the_gap_belongs_to_it_whoever_it_is() -> None:
    first = of_track([3, 3, 3, 0])
    soon = of_track([3, 3, 4], track=7, first=10)
    late = of_track([3, 3, 3], track=7, first=11)
    (event,) = find(scores(first + soon), FPS, RULES)
    assert (event.first_s, event.last_s, event.tracks) == (0.0, 1.2, (1, 7))
    assert (event.peak, event.peak_track) == (4.0, 7)
    assert spans(first + late) == [(0.0, 0.2), (1.1, 1.3)]


def test_people_at_once_make_one_event() -> None:
    rows = of_track([3, 3, 3, 3]) + of_track([3, 3, 3, 3], track=2, first=2)
    (event,) = find(scores(rows), FPS, RULES)
    assert event.tracks == (1, 2)


def test_a_person_who_was_lost_begins_anew() -> None:
    before, after = of_track([3, 3]), of_track([3, 3], first=20)
    assert spans(before + after) == []


@pytest.mark.parametrize("fps", [5.0, 12.5, 25.0, 50.0])
def test_seconds_do_not_depend_on_the_frame_rate(fps: float) -> None:
    times = np.arange(0, 10, 1 / fps)
    values = np.where((times >= 3) & (times < 5), 3.0, 0.0)
    (event,) = find(scores(of_track(values.tolist())), fps, RULES)
    assert event.first_s == pytest.approx(3, abs=1 / fps)
    assert event.last_s == pytest.approx(5, abs=1.01 / fps)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 60), st.floats(-1, 5, width=32)),
        max_size=80,
        unique_by=lambda row: row[:2],
    ),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_frame_by_frame_as_on_the_finished_clip(
    rows: list[tuple[int, int, float]], min_s: float, gap_s: float
) -> None:
    rules = replace(RULES, min_s=min_s, gap_s=gap_s)
    watch, changes = EventDetector(rules), list[Change]()
    for frame in range(70):
        now = sorted(row for row in rows if row[1] == frame)
        changes += watch.update(
            frame / FPS, scores(now) if now else scores([(0, 0, 0.0)]).part(slice(0)), FPS
        )
    changes += watch.finish()
    ended = [change.event for change in changes if change.kind == "end"]
    assert ended == find(scores(rows), FPS, rules) if rows else not ended
    assert _lives(changes) == ["new end"] * len(ended)
    if rows:
        higher = replace(rules, threshold=3.0)
        some = that_matter(scores(rows), rules)
        assert find(some, FPS, higher) == find(scores(rows), FPS, higher)


@example([{0, 45}, {0, 46}], 0, 0.0, 0.0)  # who joins late began before the event
@given(
    st.lists(st.sets(st.integers(0, 50), min_size=2, max_size=25), min_size=1, max_size=3),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_windows_that_come_late_make_the_same_events_live_and_later(
    seen: list[set[int]], seed: int, min_s: float, gap_s: float
) -> None:
    rules = replace(RULES, min_s=min_s, gap_s=gap_s)
    rng = np.random.default_rng(seed)
    rows, arrival, tracks = list[tuple[int, int, float]](), dict[tuple[int, int], int](), []
    for number, frames in enumerate(map(sorted, seen), start=1):
        for frame in range(frames[0], frames[-1] + 1):
            rows.append((number, frame, float(rng.choice([0.0, 1.5, 3.0, 4.0]))))
            arrival[number, frame] = min(f for f in frames if f >= frame)
        n = len(frames)
        joints = np.zeros((n, 17, 2), np.float32), np.ones((n, 17), np.float32)
        tracks.append(Track(number, np.array(frames), *joints))
    watch, changes = EventDetector(rules), list[Change]()
    for frame in range(51):
        now = [row for row in rows if arrival[row[:2]] == frame]
        if now or frame % 3 == 0:  # a frame without windows may be missing altogether
            windows = scores(now) if now else scores([(0, 0, 0.0)]).part(slice(0))
            changes += watch.update(frame / FPS, windows, FPS)
    changes += watch.finish()
    clip = Clip("a", FPS, 51, tuple(tracks), COCO17)
    ended = [change.event for change in changes if change.kind == "end"]
    assert ended == find(scores(rows), FPS, rules, clip)
    assert len({clip_event_id("a", event, FPS) for event in ended}) == len(ended)


def _lives(changes: list[Change]) -> list[str]:
    """Kinds of change, updates left out, from each beginning to its end."""
    words = " ".join(change.kind for change in changes if change.kind != "update")
    return [life.strip() for life in words.replace("end", "end,").split(",") if life.strip()]


def test_updates_tell_of_new_people_and_higher_peaks_alone() -> None:
    watch = EventDetector(RULES)
    rows = of_track([3, 3, 3, 3, 4, 3]) + of_track([3, 3, 3], track=2, first=3)
    kinds: list[tuple[str, float]] = []
    for frame in range(6):
        now = scores(sorted(row for row in rows if row[1] == frame))
        kinds += [(c.kind, frame / FPS) for c in watch.update(frame / FPS, now, FPS)]
    assert kinds == [("new", 0.2), ("update", 0.4), ("update", 0.5)]


def test_the_silence_of_a_camera_ends_its_event_and_forgets_its_people() -> None:
    watch = EventDetector(RULES)
    nobody = scores([(0, 0, 0.0)]).part(slice(0))
    for frame in range(4):
        watch.update(frame / FPS, scores([(1, frame, 3.0)]), FPS)
    assert watch.update(1.3, nobody, FPS) == []
    (change,) = watch.update(1.4, nobody, FPS)
    assert (change.kind, change.event.last_s) == ("end", 0.3)
    watch.update(1.4 + LATE_S, nobody, FPS)
    assert watch._alarmed == {}


def test_joined_events_keep_the_higher_peak_and_the_beginning_of_the_first() -> None:
    one = Event(first_s=1, last_s=2, tracks=(1,), peak=3, peak_s=1.5, peak_track=1)
    other = Event(first_s=0, last_s=1, tracks=(2, 1), peak=5, peak_s=0.5, peak_track=2)
    both = Event(first_s=1, last_s=2, tracks=(1, 2), peak=5, peak_s=0.5, peak_track=2)
    assert one.joined(other) == both
    assert other.joined(one) == replace(both, first_s=0, tracks=(2, 1))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"threshold": 0.0}, "threshold: expected a number above 0, got 0.0"),
        ({"threshold": float("nan")}, "threshold: expected a number above 0"),
        ({"release": 0.0}, "release: expected more than 0 and at most 1"),
        ({"min_s": -1.0}, "min_s: expected at least 0 seconds, got -1"),
        ({"gap_s": float("inf")}, "gap_s: expected at least 0 seconds"),
        ({"max_interpolated": 1.5}, "max_interpolated: expected a share from 0 to 1, got 1.5"),
        ({"max_interpolated": float("nan")}, "max_interpolated: expected a share from 0 to 1"),
    ],
)
def test_rules_without_sense_are_refused(wrong: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Rules(**{"threshold": 2.0, **wrong})
