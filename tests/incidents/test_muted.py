"""A window of mostly interpolated poses makes no event; its score is shown, and why it is muted."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad.calibration import Counted, NormalClip, calibrate_cameras
from stepvad.codec import from_plain, to_plain
from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.incidents.camera_events import CameraEvents, CameraProfile
from stepvad.incidents.camera_state import CameraEventsState
from stepvad.incidents.events import Change, EventDetector, Rules, find, that_matter
from stepvad.incidents.record import Record
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Track
from stepvad.site.scoring import Watcher
from stepvad.stream import update_all

RULES = Rules(threshold=2.0, release=0.5, min_s=0.2, gap_s=1.0)
FPS = 10.0
SIZE = (1280, 720)
Row = tuple[int, int, float, float]
"""Track, frame, score and share of seen poses."""


def scores(rows: list[Row]) -> WindowScores:
    track, frame = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    A, seen = (np.array([row[i] for row in rows], np.float32) for i in (2, 3))
    return WindowScores(track, frame, np.ones_like(A), np.repeat(A[:, None], 4, axis=1), A, seen)


def of_track(values: list[float], seen: list[float]) -> list[Row]:
    return [(1, at, *pair) for at, pair in enumerate(zip(values, seen, strict=True))]


def test_a_window_counts_up_to_the_stated_share_of_interpolated_poses() -> None:
    sixths = scores([(1, 0, 3.0, n / 6) for n in range(7)])
    assert RULES.muted(sixths).tolist() == [True] * 3 + [False] * 4
    assert not replace(RULES, max_interpolated=1.0).muted(sixths).any()
    strict = replace(RULES, max_interpolated=0.0).muted(sixths)
    assert strict.tolist() == [True] * 6 + [False]
    third = replace(RULES, max_interpolated=1 / 3).muted(sixths)
    assert third.tolist() == [True] * 4 + [False] * 3


def test_muted_windows_neither_begin_nor_raise_nor_prolong_an_event() -> None:
    high = [3.0] * 10
    assert find(scores(of_track(high, [0.4] * 10)), FPS, RULES) == []
    (event,) = find(scores(of_track([3, 3, 3, 9, 9, 9], [1, 1, 1, 0.4, 0.4, 0.4])), FPS, RULES)
    assert (event.first_s, event.last_s, event.peak) == (0.0, 0.2, 3.0)
    (event,) = find(scores(of_track([9, 9, 3, 3, 3], [0.1, 0.1, 0.5, 0.5, 0.5])), FPS, RULES)
    assert (event.first_s, event.peak) == (0.2, 3.0)


def test_a_low_score_that_is_muted_calms_nobody() -> None:
    (event,) = find(scores(of_track([3, 3, 3, 0, 1.5], [1, 1, 1, 0.2, 1])), FPS, RULES)
    assert (event.first_s, event.last_s) == (0.0, 0.4)


def test_time_out_of_sight_is_no_time_above_the_threshold() -> None:
    """Two glimpses with a gap between them are not a high score that lasts."""
    unseen = [1, 1, *[0.2] * 6, 1, 1]
    assert find(scores(of_track([3] * 10, unseen)), FPS, RULES) == []
    (event,) = find(scores(of_track([3] * 11, [*unseen, 1])), FPS, RULES)
    assert (event.first_s, event.last_s) == (0.8, 1.0)


def test_a_low_score_after_a_muted_one_calms() -> None:
    (event,) = find(scores(of_track([3, 3, 3, 3, 0, 1.5, 3], [1, 1, 1, 0.2, 1, 1, 1])), FPS, RULES)
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
    expected = find(scores(counting), FPS, replace(rules, max_interpolated=1.0)) if counting else []
    assert find(scores(rows), FPS, rules) == expected
    higher = replace(rules, threshold=3.0)
    assert find(that_matter(scores(rows), rules), FPS, higher) == find(scores(rows), FPS, higher)
    watch, changes = EventDetector(rules), list[Change]()
    for frame in range(70):
        now = np.flatnonzero([row[1] == frame for row in rows])
        changes += watch.update(frame / FPS, scores(rows).part(now), FPS)
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
    live.begin(0.0)
    told: list[Record] = []
    for slot in range(12):
        seen, A = (0.3, 9.0) if slot in (8, 9) else (0.75, 3.0)
        changes = live.see(slot, SIZE, [], scores([(1, slot, A, seen)]))
        told += [record for _, record in changes]
        state = json.loads(json.dumps(to_plain(live.state())))
        again = CameraEvents(live.profile, count().__next__)
        again.restore(from_plain(CameraEventsState, state, "events of a camera"))
        assert again.state() == live.state()
    told += [record for _, record in live.lose("stopped")]
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
            live.begin(0.0)
            n = 0
            for slot, poses in clip.by_frame():
                (windows,) = update_all([(live.stream, slot, poses)])
                n += len(live.events.see(slot, SIZE, poses, windows))
            said, unmuted = (said + n, unmuted) if most == 0.5 else (said, unmuted + n)
    assert unmuted > 0
    assert (said > 0) == alerts


def test_calibration_counts_the_false_events_that_a_site_would_report(
    small_model: Detector, odd_clips: list[Clip]
) -> None:
    clips = [thinned(clip, 2 + 3 * (at % 2)) for at, clip in enumerate(odd_clips)]
    footage = [NormalClip.of(clip, small_model.score(clip)) for clip in clips]
    every = np.concatenate([one.windows.A for one in footage])
    threshold = float(np.quantile(every, 0.9))
    counts = []
    for most in (0.5, 1.0):
        rules = Rules(threshold=threshold, min_s=0.2, gap_s=1.0, max_interpolated=most)
        counted = Counted.of(footage, np.array([threshold, 10 * threshold]), rules)
        found = [event for one in footage for event in find(one.windows, one.fps, rules)]
        assert counted.totals[0] == len(found)
        counts.append(len(found))
    assert 0 < counts[0] < counts[1]


def test_a_muted_score_moves_no_threshold(small_model: Detector) -> None:
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
    made = [
        calibrate_cameras(
            {"door": [NormalClip(one, n, FPS)]}, model_sha256="", alerts_per_hour=60, rules=rules
        )
        for one in (muted, gone)
    ]
    assert made[0].threshold == made[1].threshold
    assert made[0].threshold.value < 50
