"""What a stream says frame by frame is what the detector says of the finished clip."""

from __future__ import annotations

from dataclasses import astuple, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad import Clip, Config, Detector, Pose, Stream, Track
from stepvad.config import Reference
from stepvad.errors import ConfigError, DataError
from stepvad.model.scoring import WindowScores
from stepvad.skeletons import COCO17, of_size
from stepvad.windows.runs import cut
from stepvad.windows.views import Windows

V = 5


@cache
def small_detector(T: int) -> Detector:
    """A detector of five joints, fitted on random walks."""
    rng = np.random.default_rng(T)
    n = 80 + T
    walk = rng.standard_normal((n, V, 2), dtype=np.float32).cumsum(axis=0)
    track = Track(0, np.arange(n), walk, rng.uniform(0.2, 1, (n, V)).astype(np.float32))
    config = Config(T=T, K=4, width=8, blocks=2, sigma_width=4, L=3, max_steps=3, batch_size=64)
    return Detector.fit([Clip("walk", None, n, (track,), of_size(V))], config)


@cache
def usual_detector() -> Detector:
    """Usual motion of five joints, poses, motion and place, fitted on random walks."""
    rng = np.random.default_rng(0)
    walks = (200 + 3 * rng.standard_normal((24, 90, V, 2)).cumsum(axis=1)).astype(np.float32)
    c = np.ones((90, V), np.float32)
    people = tuple(Track(id_, np.arange(90), walk, c) for id_, walk in enumerate(walks))
    config = Config.usual(25.0, ("pose", "motion", "place"))
    return Detector.fit([Clip("walks", 25.0, 90, people, of_size(V))], config)


@st.composite
def tracks(draw: st.DrawFn, id_: int) -> Track:
    """Births, deaths, gaps short and long, single frames, odd confidences, joints not found."""
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 1, 2, 3, 4, 6, 7, 9, 20]), max_size=25))
    frames = draw(st.integers(0, 12)) + np.cumsum([0, *steps])
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    keypoints = (rng.standard_normal((len(frames), V, 2)) * 30 + 200).astype(np.float32)
    confidence = rng.uniform(0, 1, (len(frames), V)).astype(np.float32)
    confidence[rng.random(confidence.shape) < 0.1] = np.nan
    confidence[rng.random(confidence.shape) < 0.1] = 1.03
    missing = rng.random(confidence.shape) < draw(st.sampled_from([0.0, 0.2]))
    keypoints[missing], confidence[missing] = 0, 0
    if draw(st.booleans()):
        keypoints[:] = keypoints[0]  # a frozen pose
    return Track(id_, frames, keypoints, confidence)


@st.composite
def clips(draw: st.DrawFn) -> Clip:
    people = tuple(draw(tracks(id_)) for id_ in range(draw(st.integers(0, 3))))
    n_frames = max([int(track.frames[-1]) + 1 for track in people], default=4)
    return Clip("made", None, n_frames, people, of_size(V))


def feed(stream: Stream, clip: Clip, *, twice: bool = False) -> list[tuple[int, WindowScores]]:
    """Every frame's scores; `twice` repeats each pose, shifted, under the same track id."""
    said = []
    for frame in range(clip.n_frames):
        poses = []
        for track in clip.tracks:
            for at in np.flatnonzero(track.frames == frame):
                poses.append(Pose(track.id, track.keypoints[at], track.confidence[at]))
                if twice:
                    poses.append(Pose(track.id, track.keypoints[at] + 9, track.confidence[at]))
        said.append((frame, stream.update(frame, poses)))
    return said


def in_order(windows: Windows | WindowScores) -> NDArray[np.int64]:
    return np.lexsort((windows.frame, windows.track_id))


def joined(parts: list[Any], field: str) -> NDArray[Any]:
    return np.concatenate([getattr(part, field) for part in parts])


@pytest.mark.ci
@pytest.mark.parametrize("T", [1, 2, 3, 5])
def test_a_stream_cuts_the_same_windows_and_gives_the_same_scores(
    T: int, cut_by_stream: list[Windows]
) -> None:
    @settings(max_examples=40)
    @given(clips(), st.booleans())
    def check(clip: Clip, twice: bool) -> None:
        detector = small_detector(T)
        expected = cut(clip, detector.view_settings, detector.skeleton)[0].windows(slice(None))
        offline = detector.score(clip)
        cut_by_stream.clear()
        stream = Stream(detector, skeleton=clip.skeleton)
        online = [scores for _, scores in feed(stream, clip, twice=twice)]
        order = np.lexsort((joined(cut_by_stream, "frame"), joined(cut_by_stream, "track_id")))
        assert len(order) == len(expected)
        for field in ("x", "c", "track_id", "frame", "flat", "seen"):
            now, then = joined(cut_by_stream, field)[order], getattr(expected, field)
            assert now[...].tobytes() == then[in_order(expected)].tobytes(), field
        A = joined(online, "A")[order]
        scale = max(1.0, float(np.abs(A).max(initial=0)))
        np.testing.assert_allclose(A, offline.A[in_order(offline.windows)], atol=1e-5 * scale)
        assert stream.duplicate_poses == (clip.n_poses if twice else 0)
        assert stream.flat_windows == offline.flat_windows
        assert astuple(stream.counts)[:5] == astuple(offline.counts)[:5]

    check()


@pytest.mark.ci
def test_a_stream_of_several_views_cuts_and_scores_as_the_clip(
    cut_by_stream: list[Windows],
) -> None:
    @settings(max_examples=40)
    @given(clips())
    def check(clip: Clip) -> None:
        clip, detector = replace(clip, fps=25.0), usual_detector()
        expected = cut(clip, detector.view_settings, detector.skeleton)[0].windows(slice(None))
        offline = detector.score(clip).windows
        cut_by_stream.clear()
        stream = Stream(detector, fps=25.0, skeleton=clip.skeleton)
        online = [scores for _, scores in feed(stream, clip)]
        for number, own in enumerate(expected.views):
            parts = [part.views[number].windows for part in cut_by_stream]
            order = np.lexsort((joined(parts, "frame"), joined(parts, "track_id")))
            for field in ("x", "track_id", "frame", "flat"):
                now, then = joined(parts, field)[order], getattr(own.windows, field)
                assert now.tobytes() == then[in_order(own.windows)].tobytes(), field
        order = np.lexsort((joined(online, "frame"), joined(online, "track_id")))
        A = joined(online, "A")[order]
        scale = max(1.0, float(np.abs(A).max(initial=0)))
        np.testing.assert_allclose(A, offline.A[in_order(offline)], atol=1e-5 * scale)

    check()


def test_windows_of_missed_frames_come_with_the_frame_that_closes_the_gap() -> None:
    detector = small_detector(3)
    frames = np.array([0, 1, 2, 3, 7])  # three frames missing, as many as T
    rng = np.random.default_rng(0)
    track = Track(
        4, frames, rng.standard_normal((5, V, 2), dtype=np.float32), np.ones((5, V), np.float32)
    )
    clip = Clip("gap", None, 9, (track,), of_size(V))
    said = {
        frame: scores.frame.tolist()
        for frame, scores in feed(Stream(detector, skeleton=of_size(V)), clip)
    }
    assert said == {0: [], 1: [], 2: [2], 3: [3], 4: [], 5: [], 6: [], 7: [4, 5, 6, 7], 8: []}


def test_a_longer_gap_starts_the_track_anew() -> None:
    detector = small_detector(3)
    frames = np.array([0, 1, 2, 7, 8, 9])  # four frames missing, one more than T
    rng = np.random.default_rng(0)
    track = Track(
        4, frames, rng.standard_normal((6, V, 2), dtype=np.float32), np.ones((6, V), np.float32)
    )
    clip = Clip("gap", None, 10, (track,), of_size(V))
    said = feed(Stream(detector, skeleton=of_size(V)), clip)
    assert [scores.frame.tolist() for _, scores in said if len(scores)] == [[2], [9]]


def test_a_stream_forgets_people_who_left() -> None:
    stream = Stream(small_detector(5), skeleton=of_size(V))
    rng = np.random.default_rng(0)
    for frame in range(200):  # a new person in every frame
        stream.update(
            frame,
            [Pose(frame, rng.standard_normal((V, 2), dtype=np.float32), np.ones(V, np.float32))],
        )
        assert len(stream._tracks) <= 16


def test_frames_must_come_in_order() -> None:
    stream = Stream(small_detector(2), skeleton=of_size(V))
    stream.update(3, [])
    for frame in (3, 2):
        with pytest.raises(DataError, match=f"expected a frame after 3, got {frame}"):
            stream.update(frame, [])


def test_a_pose_of_another_skeleton_is_refused_and_leaves_the_stream_usable() -> None:
    stream = Stream(small_detector(2), skeleton=of_size(V))
    with pytest.raises(DataError, match="expected 5 joints"):
        stream.update(0, [Pose(1, np.zeros((17, 2), np.float32), np.ones(17, np.float32))])
    assert len(stream.update(0, [])) == 0


def test_a_stream_of_another_skeleton_than_the_model_is_refused() -> None:
    stream = Stream(small_detector(2), skeleton=COCO17)
    with pytest.raises(DataError, match="skeleton"):
        stream.update(0, [Pose(1, np.zeros((17, 2), np.float32), np.ones(17, np.float32))])


def test_a_stream_cannot_drop_the_last_window() -> None:
    rng = np.random.default_rng(0)
    track = Track(
        0,
        np.arange(60),
        rng.standard_normal((60, V, 2), dtype=np.float32),
        np.ones((60, V), np.float32),
    )
    config = Config(T=2, K=2, width=4, L=2, max_steps=1, reference=Reference(drop_last_window=True))
    detector = Detector.fit([Clip("c", None, 60, (track,), of_size(V))], config)
    with pytest.raises(ConfigError, match="drop_last_window"):
        Stream(detector)
