"""One camera, live: the windows, scores and events of its recorded tracks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from stepvad.codec import decode, to_plain
from stepvad.detector import Detector
from stepvad.evaluation.walkers import make_clips
from stepvad.events.camera import (
    CameraEvents,
    CameraEventsState,
    CameraProfile,
    RecordChange,
    box_of,
    inside,
)
from stepvad.events.record import Record
from stepvad.events.rules import Rules, events_in
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Pose, Track
from stepvad.site.scoring import Watcher
from stepvad.stream import update_all
from stepvad.windows.runs import cut
from stepvad.windows.views import Windows

WALL0 = 1_700_000_000.0
SIZE = (1280, 720)
LATER = 75
"""Frames, three times as long as the gap that ends an event."""
Zones = dict[str, list[tuple[float, float]]]


def watcher(detector: Detector, threshold: float, zones: Zones | None = None) -> Watcher:
    profile = CameraProfile(
        camera="door",
        rate=25.0,
        rules=Rules(threshold=threshold, min_s=0.2, gap_s=1.0),
        detector=detector,
        model_id="small",
        model_sha256="0" * 64,
        zones=zones or {},
    )
    made = Watcher(profile, count(3).__next__)
    made.start_connection(WALL0)
    return made


def without(clip: Clip, shed: set[int]) -> Clip:
    """What is left of a clip when whole frames are shed."""
    tracks = []
    for track in clip.tracks:
        kept = ~np.isin(track.frames, [*shed])
        tracks.append(
            Track(track.id, track.frames[kept], track.keypoints[kept], track.confidence[kept])
        )
    return Clip(clip.name, clip.fps, clip.n_frames, tuple(tracks), clip.skeleton)


def play(
    live: Watcher, clip: Clip, shed: set[int], *, end: int | None = None
) -> list[RecordChange]:
    found: list[RecordChange] = []
    for slot, poses in clip.by_frame():
        if slot not in shed and (end is None or slot < end):
            (windows,) = update_all([(live.stream, slot, poses)])
            found += live.events.observe(slot, SIZE, poses, windows)
    return found


def some_shed(rng: np.random.Generator, n: int, T: int) -> set[int]:
    """Single frames, bursts that are filled in, and bursts that are too long for that."""
    shed = {int(frame) for frame in rng.choice(n, n // 12, replace=False)}
    for length in (3, T, T + 5):
        first = int(rng.integers(0, n - length))
        shed |= set(range(first, first + length))
    return shed


@pytest.fixture(scope="module")
def long_clips() -> list[Clip]:
    """Four clips of two stretches each; in most somebody does what is unusual, twice."""
    return [clip for clip, _ in make_clips(4, seed=5, seconds=24.0, anomalies=True)]


@pytest.mark.parametrize("seed", range(12))
def test_live_windows_scores_and_events_are_those_of_the_recorded_tracks(
    long_clips: list[Clip],
    small_model: Detector,
    cut_by_stream: list[Windows],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    clip = long_clips[seed % len(long_clips)]
    shed = some_shed(rng, clip.n_frames, small_model.config.T) if seed else set()
    recorded = without(clip, shed)
    offline = small_model.score(recorded)
    threshold = max(float(np.quantile(offline.A, rng.uniform(0.6, 0.95))), 0.05)
    live = watcher(small_model, threshold)
    cut_by_stream.clear()
    changes = play(live, clip, shed) + live.events.end_open("stopped")
    rates = {(record.camera_fps, record.model_fps) for _, record in changes}
    assert rates <= {(25.0, small_model.config.fps)}

    x = np.concatenate([windows.x for windows in cut_by_stream])
    track = np.concatenate([windows.track_id for windows in cut_by_stream])
    frame = np.concatenate([windows.frame for windows in cut_by_stream])
    index, _ = cut(recorded, small_model.view_settings, small_model.skeleton)
    whole = index.windows(slice(None))
    ours, theirs = np.lexsort((frame, track)), np.lexsort((whole.frame, whole.track_id))
    assert np.array_equal(track[ours], whole.track_id[theirs])
    assert np.array_equal(frame[ours], whole.frame[theirs])
    assert x[ours].tobytes() == whole.x[theirs].tobytes()

    found = events_in(offline.windows, 25.0, live.profile.rules, recorded)
    ended = [record for kind, record in changes if kind == "end"]
    assert len(found) > 0
    assert [(r.start_time, r.end_time, r.tracks, r.track_id) for r in ended] == [
        (WALL0 + e.first_s, WALL0 + e.last_s, e.tracks, e.peak_track) for e in found
    ]
    assert np.allclose([r.top_score for r in ended], [e.peak for e in found], rtol=1e-5, atol=1e-5)


def test_every_event_begins_once_ends_once_and_keeps_its_id(
    walker_test: list[tuple[Clip, FrameLabels]], small_model: Detector
) -> None:
    clip = walker_test[1][0]
    threshold = float(np.quantile(small_model.score(clip).A, 0.9))
    live = watcher(small_model, threshold)
    changes = play(live, clip, set()) + live.events.end_open("stopped")
    of: dict[str, list[str]] = {}
    for kind, record in changes:
        of.setdefault(record.id, []).append(kind)
    assert of
    for kinds in of.values():
        assert kinds[0] == "new"
        assert kinds[-1] == "end"
        assert set(kinds[1:-1]) <= {"update"}


def test_people_join_in_the_order_of_time_also_when_their_windows_come_late(
    small_model: Detector,
) -> None:
    """Frames 10 to 19 were shed; with frame 20 come the windows of two people, one by one."""
    live = watcher(small_model, 3.0)
    frame = np.tile(np.arange(10, 21), 2)
    track = np.repeat([1, 2], 11)
    A = np.where(frame >= np.where(track == 1, 14, 11), 5.0, 0.0).astype(np.float32)
    sure, E = np.ones(22, np.float32), np.repeat(A[:, None], 4, axis=1)
    changes = live.events.observe(20, SIZE, [], WindowScores(track, frame, sure, E, A))
    changes += live.events.end_open("stopped")
    assert [record.tracks for kind, record in changes if kind == "end"] == [(2, 1)]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_stopped_at_any_frame_and_restored_it_tells_the_same(
    long_clips: list[Clip], small_model: Detector, which: int
) -> None:
    clip = long_clips[which]
    threshold = float(np.quantile(small_model.score(clip).A, 0.9))
    whole = watcher(small_model, threshold)
    frames, states = [], []
    expected: list[list[RecordChange]] = []
    for slot, poses in clip.by_frame():
        (windows,) = update_all([(whole.stream, slot, poses)])
        frames.append((slot, poses, windows))
        states.append(json.dumps(to_plain(whole.events.state())))
        expected.append(whole.events.observe(slot, SIZE, poses, windows))
    states.append(json.dumps(to_plain(whole.events.state())))
    assert {kind for told in expected for kind, _ in told} == {"new", "update", "end"}
    for first in range(0, len(frames), 3):
        end = min(first + LATER, len(frames))
        again = CameraEvents(whole.profile, count(3).__next__, kept_s=0.0)
        again.restore(decode(CameraEventsState, states[first], "events of a camera"))
        found = [again.observe(frame[0], SIZE, *frame[1:]) for frame in frames[first:end]]
        assert found == expected[first:end]
        assert json.dumps(to_plain(again.state())) == states[end]  # and so for ever
    assert again.end_open("stopped") == whole.events.end_open("stopped")


def one_event(small_model: Detector, clip: Clip, zones: Zones) -> tuple[Record, Record, Watcher]:
    threshold = float(np.quantile(small_model.score(clip).A, 0.9))
    live = watcher(small_model, threshold, zones)
    changes = play(live, clip, set()) + live.events.end_open("stopped")
    first = next(record for kind, record in changes if kind == "new")
    last = next(record for kind, record in changes if kind == "end" and record.id == first.id)
    return first, last, live


def test_a_record_tells_where_how_sure_and_at_which_scales(
    walker_test: list[tuple[Clip, FrameLabels]], small_model: Detector
) -> None:
    clip = walker_test[1][0]
    zones: Zones = {
        "all": [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)],
        "none": [(0, 0), (0, 0), (0, 0)],
    }
    first, last, live = one_event(small_model, clip, zones)
    windows = small_model.score(clip).windows
    row = int(np.argmin(np.abs(windows.A - last.top_score)))
    assert last.track_id == windows.track_id[row]
    assert last.scales == pytest.approx(tuple(windows.E[row].tolist()), rel=1e-5)
    assert last.confidence == pytest.approx(float(windows.c[row]))
    track = next(track for track in clip.tracks if track.id == last.track_id)
    at = np.flatnonzero(track.frames == windows.frame[row])
    assert last.box is not None
    assert np.allclose(last.box[:2], track.keypoints[at[0]].min(axis=0))
    assert np.allclose(last.box[2:], track.keypoints[at[0]].max(axis=0))
    assert last.zones == ("all",)
    assert (first.epoch, first.threshold) == (3, live.profile.rules.threshold)


def busy(live: Watcher, clip: Clip) -> int:
    """Play until an event has gone on for a while; the next frame."""
    for slot, poses in clip.by_frame():
        (windows,) = update_all([(live.stream, slot, poses)])
        live.events.observe(slot, SIZE, poses, windows)
        if live.events.open is not None and slot > live.events.open.frame_seq + 10:
            return slot + 1
    pytest.fail("nothing happened")


def test_a_lost_camera_ends_the_event_and_no_window_spans_the_gap(
    walker_test: list[tuple[Clip, FrameLabels]],
    small_model: Detector,
    cut_by_stream: list[Windows],
) -> None:
    clip = walker_test[1][0]
    scores = small_model.score(clip)
    threshold = float(np.quantile(scores.A, 0.5))
    live = watcher(small_model, threshold)
    middle = busy(live, clip)
    assert live.events.open is not None
    open_id = live.events.open.id
    ((kind, over),) = live.events.end_open("camera lost")
    assert (kind, over.id, over.ended_by) == ("end", open_id, "camera lost")
    assert over.end_time is not None
    live.start_connection(WALL0 + 60)
    assert live.events.epoch == 4
    cut_by_stream.clear()
    play(live, clip, set(range(middle)))
    frames = np.concatenate([windows.frame for windows in cut_by_stream])
    assert frames.min() == middle + small_model.config.T - 1


def test_what_is_kept_of_people_is_a_clip(
    walker_test: list[tuple[Clip, FrameLabels]], small_model: Detector
) -> None:
    clip = walker_test[0][0]
    live = watcher(small_model, 5.0)
    play(live, clip, set())
    assert live.events.clip()[1].n_poses == clip.n_poses
    one = clip.tracks[0].id
    assert [track.id for track in live.events.clip([one])[1].tracks] == [one]
    first, part = live.events.clip(first=100)
    assert (first, part.n_frames) == (100, clip.n_frames - 100)


def test_a_point_is_inside_a_polygon_or_not() -> None:
    corner = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    assert inside((0.2, 0.2), corner)
    assert not inside((0.8, 0.8), corner)
    assert not inside((-0.1, 0.5), corner)


def test_a_box_leaves_out_joints_that_were_not_found(walkers: list[Clip]) -> None:
    track = walkers[0].tracks[0]
    keypoints, confidence = track.keypoints[0].copy(), track.confidence[0].copy()
    keypoints[3], confidence[3] = 0, 0
    assert min(box_of(Pose(1, keypoints, confidence))) > 0


def test_restored_after_missing_frames_it_still_waits_for_whoever_may_come_back(
    small_model: Detector,
) -> None:
    def see(live: Watcher, slots: range, score: float) -> list[str]:
        found = list[str]()
        for slot in slots:
            A, sure = np.full(1, score, np.float32), np.ones(1, np.float32)
            windows = WindowScores(np.array([1]), np.array([slot]), sure, A[:, None], A)
            live.looked(slot, windows)
            found += [kind for kind, _ in live.events.observe(slot, SIZE, (), windows)]
        return [kind for kind in found if kind != "update"]

    before, after = watcher(small_model, 3.0), watcher(small_model, 3.0)
    assert see(before, range(5), 4.0) == []
    assert see(before, range(5, 10), 5.0) == ["new"]
    assert see(before, range(70, 72), 0.0) == []
    state = before.events.state()
    after.events.restore(decode(CameraEventsState, json.dumps(to_plain(state)), "state"))
    assert after.events.peak_slot == before.events.peak_slot == 5
    assert see(after, range(72, 80), 4.0) == [], "one event, as without the restart"


def test_another_threshold_counts_at_once_and_an_open_event_goes_on(
    small_model: Detector,
) -> None:
    live = watcher(small_model, 3.0)

    def use(threshold: float) -> None:
        rules = Rules(threshold=threshold, min_s=0.2, gap_s=1.0)
        live.events.use(replace(live.profile, rules=rules))

    def see(slots: range, score: float) -> list[str]:
        A, sure = np.full(1, score, np.float32), np.ones(1, np.float32)
        found: list[str] = []
        for slot in slots:
            windows = WindowScores(np.array([1]), np.array([slot]), sure, A[:, None], A)
            found += [kind for kind, _ in live.events.observe(slot, SIZE, (), windows)]
        return found

    assert see(range(8), 4.0) == ["new"]
    use(2.0)
    assert "end" not in see(range(8, 30), 2.5)
    use(5.0)  # a limit that was too low would hold this event open for ever, and no other begins
    assert see(range(30, 90), 4.0)[-1] == "end"
    assert see(range(90, 100), 6.0) == ["new"]


def test_frames_that_are_missing_end_no_event_and_seeing_somebody_calm_does(
    small_model: Detector,
) -> None:
    def changes(seen: Sequence[tuple[range, float]]) -> list[str]:
        live, found = watcher(small_model, 3.0), list[str]()
        for slots, score in seen:
            for slot in slots:
                A, sure = np.full(1, score, np.float32), np.ones(1, np.float32)
                windows = WindowScores(np.array([1]), np.array([slot]), sure, A[:, None], A)
                live.looked(slot, windows)
                found += [kind for kind, _ in live.events.observe(slot, SIZE, (), windows)]
        return [kind for kind in found if kind != "update"]

    fall, rise = (range(10), 4.0), (range(70, 80), 4.0)
    assert changes([fall, rise]) == ["new"]
    assert changes([fall, (range(10, 70), 0.0), rise]) == ["new", "end", "new"]
    assert changes([fall, (range(500, 510), 4.0)]) == ["new", "end", "new"], "gone for too long"
    assert changes([fall, (range(60, 70), 0.0), (range(70, 200), 0.0)]) == ["new", "end"]
