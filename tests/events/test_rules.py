"""An event is an incident: who was in it, when it began and when it was over."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import count
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stepvad.codec import from_plain, to_plain
from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation.walkers import make_clips
from stepvad.events.camera import CameraEvents, CameraEventsState, CameraProfile, RecordChange
from stepvad.events.ledger import peaks_of
from stepvad.events.record import Record
from stepvad.events.rules import (
    LATE_S,
    Change,
    Event,
    EventDetector,
    Rules,
    WatchHours,
    events_in,
    relevant,
)
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Pose, Track
from stepvad.site.scoring import Watcher
from stepvad.skeletons import COCO17
from stepvad.stream import update_all

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
    return [(event.first_s, event.last_s) for event in events_in(scores(rows), FPS, rules)]


def test_it_begins_above_the_threshold_and_ends_below_the_lower_one() -> None:
    values = [0, 1.5, 2.5, 1.5, 3.0, 1.2, 0.9, 1.5, 1.5]
    (event,) = events_in(scores(of_track(values)), FPS, RULES)
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
    (event,) = events_in(scores(first + soon), FPS, RULES)
    assert (event.first_s, event.last_s, event.tracks) == (0.0, 1.2, (1, 7))
    assert (event.peak, event.peak_track) == (4.0, 7)
    assert spans(first + late) == [(0.0, 0.2), (1.1, 1.3)]


def test_people_at_once_make_one_event() -> None:
    rows = of_track([3, 3, 3, 3]) + of_track([3, 3, 3, 3], track=2, first=2)
    (event,) = events_in(scores(rows), FPS, RULES)
    assert event.tracks == (1, 2)


def test_a_person_who_was_lost_begins_anew() -> None:
    before, after = of_track([3, 3]), of_track([3, 3], first=20)
    assert spans(before + after) == []


@pytest.mark.parametrize("fps", [5.0, 12.5, 25.0, 50.0])
def test_seconds_do_not_depend_on_the_frame_rate(fps: float) -> None:
    times = np.arange(0, 10, 1 / fps)
    values = np.where((times >= 3) & (times < 5), 3.0, 0.0)
    (event,) = events_in(scores(of_track(values.tolist())), fps, RULES)
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
    assert ended == events_in(scores(rows), FPS, rules) if rows else not ended
    assert _lives(changes) == ["new end"] * len(ended)
    if rows:
        higher = replace(rules, threshold=3.0)
        some = relevant(scores(rows), rules)
        assert events_in(some, FPS, higher) == events_in(scores(rows), FPS, higher)


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
    assert ended == events_in(scores(rows), FPS, rules, clip)
    assert len({(event.tracks[0], event.first_s) for event in ended}) == len(ended)


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


RATE = 10.0
SQUARE = (100, 100)
LEFT = {"left": [(0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)]}


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's time zone has summer time."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str, fold: int = 0) -> float:
    """The Unix time of a local one."""
    moment = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=fold)
    return moment.timestamp()


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        (["08:00-18:00"], ["08:00", "17:59"], ["07:59", "18:00", "00:00"]),
        (["22:00-06:00"], ["22:00", "23:59", "00:00", "05:59"], ["06:00", "21:59"]),
        (["00:00-24:00"], ["00:00", "12:00", "23:59"], []),
        (["18:00-24:00"], ["18:00", "23:59"], ["00:00", "17:59"]),
        (["06:00-07:00", "20:00-21:00"], ["06:30", "20:30"], ["07:00", "12:00"]),
        ([], [], ["00:00", "12:00"]),
    ],
)
def test_a_time_is_inside_from_the_first_minute_to_before_the_last(
    hours: list[str], inside: list[str], outside: list[str]
) -> None:
    watched = WatchHours.parse(hours)
    for clock, expected in [*((c, True) for c in inside), *((c, False) for c in outside)]:
        assert watched.include(at(f"2026-11-17T{clock}")) is expected, clock


def test_a_change_of_the_clock_changes_no_hours() -> None:
    night = WatchHours.parse(["02:30-06:00"])
    # in spring 02:00 is followed by 03:00: half past two never comes, the span starts at three
    assert not night.include(at("2026-03-29T01:59"))
    assert night.include(at("2026-03-29T01:59") + 60)
    # in autumn half past two comes twice, an hour apart; in between it is not yet time again
    first, second = at("2026-10-25T02:30"), at("2026-10-25T02:30", fold=1)
    assert second - first == 3600
    assert night.include(first)
    assert not night.include(at("2026-10-25T02:15", fold=1))
    assert night.include(second)
    day = WatchHours.parse(["08:00-18:00"])
    for date in ("2026-03-28", "2026-03-29", "2026-10-24", "2026-10-25"):
        assert not day.include(at(f"{date}T07:59"))
        assert day.include(at(f"{date}T08:00"))


@pytest.mark.parametrize(
    "text",
    ["8-18", "08:00", "08:00-8:30", "25:00-26:00", "08:00-24:30", "24:00-06:00", "08:00-08:00"],
)
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected hours as HH:MM-HH:MM, got") as raised:
        WatchHours.parse([text])
    assert "22:00-06:00" in raised.value.hint


def events(detector: Detector, wall0: float, **more: object) -> CameraEvents:
    facts: dict[str, object] = {"hours": None, "zone_hours": {}} | more
    profile = CameraProfile(
        camera="door",
        rate=RATE,
        rules=Rules(threshold=3.0, min_s=0.4, gap_s=1.0),
        detector=detector,
        model_id="small",
        model_sha256="0" * 64,
        zones=LEFT,
        **facts,  # type: ignore[arg-type]
    )
    made = CameraEvents(profile, count(1).__next__)
    made.start_connection(wall0)
    return made


def play(made: CameraEvents, seconds: float, *, x: float = 20.0) -> list[RecordChange]:
    """Somebody moves abnormally all the time, standing at `x`."""
    found: list[RecordChange] = []
    body = np.linspace((x - 1, 50), (x + 1, 90), 17).astype(np.float32)
    for slot in range(round(seconds * RATE)):
        windows = WindowScores(
            A=np.array([9.0], np.float32),
            E=np.ones((1, 4), np.float32),
            c=np.ones(1, np.float32),
            track_id=np.array([1]),
            frame=np.array([slot]),
        )
        pose = Pose(1, body, np.ones(17, np.float32))
        found += made.observe(slot, SQUARE, [pose], windows)
    return found


def test_events_are_raised_within_the_hours_alone(small_model: Detector) -> None:
    hours = WatchHours.parse(["08:00-18:00"])
    opens = at("2026-11-17T08:00")
    made = events(small_model, opens - 10, hours=hours)
    (first, record), *_ = play(made, 15)
    assert first == "new"
    assert record.start_time == pytest.approx(opens)

    closes = at("2026-11-17T18:00")
    found = play(events(small_model, closes - 5, hours=hours), 15)
    kind, record = found[-1]
    assert (kind, record.ended_by) == ("end", "calm")
    assert record.end_time == pytest.approx(closes, abs=0.2)
    assert [kind for kind, _ in found].count("new") == 1
    assert not play(events(small_model, closes + 60, hours=hours), 15)


def test_a_zone_has_hours_of_its_own(small_model: Detector) -> None:
    noon = at("2026-11-17T12:00")
    night = {"left": WatchHours.parse(["22:00-06:00"])}
    assert not play(events(small_model, noon, zone_hours=night), 5, x=20)
    assert play(events(small_model, noon, zone_hours=night), 5, x=80)
    assert play(events(small_model, at("2026-11-17T23:00"), zone_hours=night), 5, x=20)
    never = {"left": WatchHours.parse([])}
    assert not play(events(small_model, noon, zone_hours=never), 5, x=20)


SIZE = (1280, 720)
Row = tuple[int, int, float, float]
"""Track, frame, score and share of seen poses."""


def seen_scores(rows: list[Row]) -> WindowScores:
    track, frame = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    A, seen = (np.array([row[i] for row in rows], np.float32) for i in (2, 3))
    return WindowScores(track, frame, np.ones_like(A), np.repeat(A[:, None], 4, axis=1), A, seen)


def of_seen_track(values: list[float], seen: list[float]) -> list[Row]:
    return [(1, at, *pair) for at, pair in enumerate(zip(values, seen, strict=True))]


def test_a_window_counts_up_to_the_stated_share_of_interpolated_poses() -> None:
    sixths = seen_scores([(1, 0, 3.0, n / 6) for n in range(7)])
    assert RULES.muted(sixths).tolist() == [True] * 3 + [False] * 4
    assert not replace(RULES, max_interpolated=1.0).muted(sixths).any()
    strict = replace(RULES, max_interpolated=0.0).muted(sixths)
    assert strict.tolist() == [True] * 6 + [False]
    third = replace(RULES, max_interpolated=1 / 3).muted(sixths)
    assert third.tolist() == [True] * 4 + [False] * 3


def test_muted_windows_neither_begin_nor_raise_nor_prolong_an_event() -> None:
    high = [3.0] * 10
    assert events_in(seen_scores(of_seen_track(high, [0.4] * 10)), FPS, RULES) == []
    (event,) = events_in(
        seen_scores(of_seen_track([3, 3, 3, 9, 9, 9], [1, 1, 1, 0.4, 0.4, 0.4])), FPS, RULES
    )
    assert (event.first_s, event.last_s, event.peak) == (0.0, 0.2, 3.0)
    (event,) = events_in(
        seen_scores(of_seen_track([9, 9, 3, 3, 3], [0.1, 0.1, 0.5, 0.5, 0.5])), FPS, RULES
    )
    assert (event.first_s, event.peak) == (0.2, 3.0)


def test_a_low_score_that_is_muted_calms_nobody() -> None:
    (event,) = events_in(
        seen_scores(of_seen_track([3, 3, 3, 0, 1.5], [1, 1, 1, 0.2, 1])), FPS, RULES
    )
    assert (event.first_s, event.last_s) == (0.0, 0.4)


def test_time_out_of_sight_is_no_time_above_the_threshold() -> None:
    """Two glimpses with a gap between them are not a high score that lasts."""
    unseen = [1, 1, *[0.2] * 6, 1, 1]
    assert events_in(seen_scores(of_seen_track([3] * 10, unseen)), FPS, RULES) == []
    (event,) = events_in(seen_scores(of_seen_track([3] * 11, [*unseen, 1])), FPS, RULES)
    assert (event.first_s, event.last_s) == (0.8, 1.0)


def test_a_low_score_after_a_muted_one_calms() -> None:
    (event,) = events_in(
        seen_scores(of_seen_track([3, 3, 3, 3, 0, 1.5, 3], [1, 1, 1, 0.2, 1, 1, 1])), FPS, RULES
    )
    assert (event.first_s, event.last_s) == (0.0, 0.2)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(0, 60),
            st.floats(-1, 5, width=32),
            st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        ),
        min_size=1,
        max_size=80,
        unique_by=lambda row: row[:2],
    ),
    st.sampled_from([0.0, 0.2, 0.5]),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_live_and_later_the_events_are_those_of_the_windows_that_count(
    rows: list[Row], min_s: float, most: float
) -> None:
    rules = replace(RULES, min_s=min_s, max_interpolated=most)
    counting = [row for row in rows if row[3] >= 1 - most]
    expected = (
        events_in(seen_scores(counting), FPS, replace(rules, max_interpolated=1.0))
        if counting
        else []
    )
    assert events_in(seen_scores(rows), FPS, rules) == expected
    higher = replace(rules, threshold=3.0)
    assert events_in(relevant(seen_scores(rows), rules), FPS, higher) == events_in(
        seen_scores(rows), FPS, higher
    )
    watch, changes = EventDetector(rules), list[Change]()
    for frame in range(70):
        now = np.flatnonzero([row[1] == frame for row in rows])
        changes += watch.update(frame / FPS, seen_scores(rows).part(now), FPS)
    changes += watch.finish()
    assert [change.event for change in changes if change.kind == "end"] == expected


def profile(detector: Detector, threshold: float, **rules: float) -> CameraProfile:
    return CameraProfile(
        camera="door",
        rate=25.0,
        rules=Rules(threshold=threshold, min_s=0.2, gap_s=1.0, **rules),
        detector=detector,
        model_id="small",
        model_sha256="0" * 64,
        zones={},
    )


def test_a_record_says_how_much_was_interpolated(small_model: Detector) -> None:
    live = CameraEvents(profile(small_model, 2.0), count().__next__)
    live.start_connection(0.0)
    told: list[Record] = []
    for slot in range(12):
        seen, A = (0.3, 9.0) if slot in (8, 9) else (0.75, 3.0)
        changes = live.observe(slot, SIZE, [], seen_scores([(1, slot, A, seen)]))
        told += [record for _, record in changes]
        state = json.loads(json.dumps(to_plain(live.state())))
        again = CameraEvents(live.profile, count().__next__)
        again.restore(from_plain(CameraEventsState, state, "events of a camera"))
        assert again.state() == live.state()
    told += [record for _, record in live.end_open("stopped")]
    assert [(record.score, record.top_score, record.seen) for record in told] == [
        (3.0, 3.0, 0.75)
    ] * len(told)
    assert {record.doubt for record in told} == {"25 % of the poses were interpolated"}
    assert from_plain(Record, to_plain(told[-1]), "event") == told[-1]
    assert to_plain(told[-1])["doubt"] == "25 % of the poses were interpolated"
    assert replace(told[-1], seen=1.0).doubt is None


def thinned(clip: Clip, keep: int) -> Clip:
    """The clip with one of `keep` frames of everybody."""
    tracks = []
    for track in clip.tracks:
        kept = track.frames % keep == 0
        tracks.append(
            Track(track.id, track.frames[kept], track.keypoints[kept], track.confidence[kept])
        )
    return replace(clip, tracks=tuple(tracks))


@pytest.fixture(scope="module")
def odd_clips() -> list[Clip]:
    return [clip for clip, _ in make_clips(3, seed=5, seconds=24.0, anomalies=True)]


@pytest.mark.parametrize(("keep", "alerts"), [(1, True), (2, True), (5, False)])
def test_a_site_that_drops_most_frames_does_not_alert_on_interpolation(
    small_model: Detector, odd_clips: list[Clip], keep: int, alerts: bool
) -> None:
    said, unmuted = 0, 0
    for clip in (thinned(clip, keep) for clip in odd_clips):
        threshold = float(np.quantile(small_model.score(clip).A, 0.8))
        for most in (0.5, 1.0):
            live = Watcher(profile(small_model, threshold, max_interpolated=most), count().__next__)
            live.start_connection(0.0)
            n = 0
            for slot, poses in clip.by_frame():
                (windows,) = update_all([(live.stream, slot, poses)])
                n += len(live.events.observe(slot, SIZE, poses, windows))
            said, unmuted = (said + n, unmuted) if most == 0.5 else (said, unmuted + n)
    assert unmuted > 0
    assert (said > 0) == alerts


def test_calibration_counts_the_events_that_a_site_would_report(
    small_model: Detector, odd_clips: list[Clip]
) -> None:
    clips = [thinned(clip, 2 + 3 * (at % 2)) for at, clip in enumerate(odd_clips)]
    scored = [small_model.score(clip).windows for clip in clips]
    threshold = float(np.quantile(np.concatenate([one.A for one in scored]), 0.9))
    counts = []
    for most in (0.5, 1.0):
        rules = Rules(threshold=threshold, min_s=0.2, gap_s=1.0, max_interpolated=most)
        peaks = [peak for one in scored for peak in peaks_of(one, FPS, rules)]
        found = [event for one in scored for event in events_in(one, FPS, rules)]
        assert sum(peak.limit >= threshold for peak in peaks) >= len(found)
        counts.append(len(found))
    assert 0 < counts[0] < counts[1]


def test_a_muted_score_moves_no_threshold() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    A = rng.exponential(size=n).astype(np.float32)
    ones = np.ones(n, np.float32)
    E, frames = np.empty((n, 0), np.float32), np.arange(n)
    calm = WindowScores(np.ones(n, np.int64), frames, ones, E, A)
    wild = frames % 500 < 40
    loud = np.where(wild, np.float32(50), A)
    muted = replace(calm, A=loud, seen=np.where(wild, 0.2, 1.0).astype(np.float32))
    gone = calm.part(np.flatnonzero(~wild))
    rules = Rules(threshold=1.0, min_s=0.0, gap_s=1.0)
    assert peaks_of(muted, FPS, rules) == peaks_of(gone, FPS, rules)
    assert peaks_of(gone, FPS, rules)[0].limit < 50
