"""A camera that never ends: what a stream keeps, counts and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad.config import Config, Reference
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.model.scoring import WindowScores
from stepvad.poses import Clip, Pose, Track
from stepvad.skeletons import STEP18, of_size
from stepvad.stream import Stream, update_all, update_each
from stepvad.windows.body import Repairs
from stepvad.windows.runs import cut
from stepvad.windows.views import ViewSettings, Windows
from tests.tracks import that_cuts

V = 3
SKELETON = of_size(V)


def fitted(T: int) -> Detector:
    rng = np.random.default_rng(T)
    walk = 100 + rng.normal(size=(80, V, 2)).cumsum(axis=0).astype(np.float32)
    track = Track(0, np.arange(80), walk, np.full((80, V), 0.9, np.float32))
    config = Config(T=T, K=3, width=8, blocks=2, sigma_width=4, L=3, max_steps=3)
    return Detector.fit([Clip("walk", None, 80, (track,), SKELETON)], config)


@pytest.fixture(scope="module")
def detectors() -> dict[int, Detector]:
    return {T: fitted(T) for T in (1, 4, 6)}


def person(track_id: int, seed: int) -> Pose:
    rng = np.random.default_rng([track_id, seed])
    return Pose(
        track_id,
        rng.normal(200, 30, size=(V, 2)).astype(np.float32),
        rng.uniform(size=V).astype(np.float32),
    )


def poses_of(clip: Clip) -> Iterator[tuple[int, list[Pose]]]:
    """The frames that show somebody, and who."""
    for frame in sorted({int(f) for track in clip.tracks for f in track.frames}):
        yield (
            frame,
            [
                Pose(track.id, track.keypoints[at], track.confidence[at])
                for track in clip.tracks
                for at in np.flatnonzero(track.frames == frame)
            ],
        )


EDGES: NDArray[np.float32] = np.array([-0.0, 0.0, 1.0, -1.0, 640.25, 1e7], dtype=np.float32)


@st.composite
def edge_clips(draw: st.DrawFn) -> Clip:
    """Two people whose joints sit on few, awkward values: zeros of either sign, equal, far away."""
    tracks = []
    for track_id in (5, 2):
        steps = draw(st.lists(st.sampled_from([1, 1, 2, 5, 6, 7, 8]), max_size=14))
        frames = draw(st.integers(0, 3)) + np.cumsum([0, *steps])
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        points = rng.choice(EDGES[: draw(st.integers(1, len(EDGES)))], size=(len(frames), V, 2))
        confidence = rng.choice(np.array([-0.0, 0, 0.3, 1, 2, np.nan]), size=(len(frames), V))
        tracks.append(Track(track_id, frames, points, confidence.astype(np.float32)))
    length = 1 + max(int(track.frames[-1]) for track in tracks)
    return Clip("edges", None, length, tuple(tracks), SKELETON)


def assert_same_bits(online: list[Windows], offline: Windows) -> None:
    """The windows of a stream are those of the finished clip, whatever their order."""
    fields = ("x", "c", "track_id", "frame", "flat")
    now = Windows(
        *(np.concatenate([getattr(part, name) for part in online]) for name in fields),
        seen=np.concatenate([part.seen for part in online]),
    )
    for name in (*fields, "seen"):
        a, b = (getattr(w, name)[np.lexsort((w.frame, w.track_id))] for w in (now, offline))
        assert a.tobytes() == b.tobytes(), name


@pytest.mark.filterwarnings("ignore:expected coordinates in pixels")  # awkward, too
@pytest.mark.parametrize("T", [1, 4, 6])
def test_a_stream_cuts_the_bits_of_the_finished_clip_also_from_awkward_values(
    detectors: dict[int, Detector], T: int, cut_by_stream: list[Windows]
) -> None:
    @settings(max_examples=60)
    @given(edge_clips())
    def check(clip: Clip) -> None:
        index, counts = cut(clip, [ViewSettings(detectors[T].config)], SKELETON)
        cut_by_stream.clear()
        stream = Stream(detectors[T], skeleton=SKELETON)
        for frame, poses in poses_of(clip):  # frames without anybody need not be fed
            stream.update(frame, poses)
        assert_same_bits(cut_by_stream, index.windows(slice(None)))
        assert replace(counts, short_runs=0) == stream.counts

    check()


def test_an_id_that_comes_back_after_a_long_gap_is_somebody_new(
    detectors: dict[int, Detector],
) -> None:
    stream = Stream(detectors[4], skeleton=SKELETON)
    ends = [len(stream.update(frame, [person(1, frame)])) for frame in range(4)]
    ends += [len(stream.update(frame, [person(1, frame)])) for frame in range(9, 13)]
    assert ends == [0, 0, 0, 1, 0, 0, 0, 1]
    assert stream.counts == Repairs(poses=8)


def test_the_same_id_twice_in_a_frame_counts_once_and_the_first_wins(
    detectors: dict[int, Detector],
) -> None:
    single, double = (Stream(detectors[4], skeleton=SKELETON) for _ in range(2))
    for frame in range(6):
        first, second = person(1, frame), person(1, 1000 + frame)
        alone = single.update(frame, [first, person(2, frame)])
        both = double.update(frame, [first, second, person(2, frame), second])
        np.testing.assert_array_equal(alone.A, both.A)
        np.testing.assert_array_equal(alone.track_id, both.track_id)
    assert (single.duplicate_poses, double.duplicate_poses) == (0, 12)
    assert single.counts == double.counts


def test_what_a_stream_keeps_does_not_grow_with_time(detectors: dict[int, Detector]) -> None:
    T = 6
    stream = Stream(detectors[T], skeleton=SKELETON)
    for frame in range(400):
        stream.update(frame, [person(0, frame), person(1 + frame, 0)])  # one stays, others pass by
        assert len(stream._tracks) <= 16
    assert (
        stream._tracks._keypoints.nbytes <= 16 * 4 * T * 4 * V * 2
    )  # 16 tracks, four windows each


def test_people_of_several_cameras_are_scored_in_one_call(detectors: dict[int, Detector]) -> None:
    apart = [Stream(detectors[4], skeleton=SKELETON) for _ in range(3)]
    together = [Stream(detectors[4], skeleton=SKELETON) for _ in range(3)]
    for frame in range(8):
        poses = [[person(i, frame + camera) for i in range(camera)] for camera in range(3)]
        joined = update_all([(s, frame, p) for s, p in zip(together, poses, strict=True)])
        for stream, seen, scores in zip(apart, poses, joined, strict=True):
            alone = stream.update(frame, seen)
            for name in ("track_id", "frame", "c"):
                np.testing.assert_array_equal(getattr(alone, name), getattr(scores, name))
            np.testing.assert_allclose(alone.A, scores.A, atol=1e-5)
    assert update_all([]) == []
    other = Stream(detectors[6], skeleton=SKELETON)
    with pytest.raises(ConfigError, match="expected one detector for all"):
        update_all([(apart[0], 9, []), (other, 9, [])])


def test_an_empty_frame_is_a_frame(detectors: dict[int, Detector]) -> None:
    stream = Stream(detectors[4], skeleton=SKELETON)
    scores = stream.update(0, [])
    assert len(scores) == 0
    assert scores.E.shape == (0, 3)
    with pytest.raises(DataError, match="expected a frame after 0, got 0"):
        stream.update(0, [])


def test_a_refused_frame_leaves_the_stream_as_it_was(detectors: dict[int, Detector]) -> None:
    clean, troubled = (Stream(detectors[4], skeleton=SKELETON) for _ in range(2))
    wrong = Pose(9, np.zeros((17, 2), np.float32), np.ones(17, np.float32))
    for frame in range(8):
        expected = clean.update(frame, [person(1, frame)])
        with pytest.raises(DataError, match=r"track 9: expected 3 joints .*, got 17"):
            troubled.update(frame, [person(1, frame), wrong])
        np.testing.assert_array_equal(troubled.update(frame, [person(1, frame)]).A, expected.A)
    assert clean.counts == troubled.counts


def test_a_stream_cannot_know_which_window_is_the_last(detectors: dict[int, Detector]) -> None:
    config = replace(detectors[4].config, reference=Reference(drop_last_window=True))
    dropping = that_cuts([config], SKELETON)
    with pytest.raises(ConfigError, match="drop_last_window") as error:
        Stream(dropping, skeleton=SKELETON)
    assert error.value.hint


def test_coco_poses_stream_into_a_model_of_18_joints(
    walkers: list[Clip], cut_by_stream: list[Windows]
) -> None:
    config = Config(T=4, K=8, width=8, blocks=2, sigma_width=4, L=3, max_steps=2)
    detector = Detector.fit(walkers[:1], config)
    assert detector.skeleton == STEP18
    offline = detector.score(walkers[0])
    cut_by_stream.clear()
    stream = Stream(detector)
    parts = [stream.update(frame, poses) for frame, poses in poses_of(walkers[0])]
    index, counts = cut(walkers[0], [ViewSettings(config)], STEP18)
    assert_same_bits(cut_by_stream, index.windows(slice(None)))
    online = WindowScores.join(parts, L=3)
    order = np.lexsort((online.frame, online.track_id))
    np.testing.assert_allclose(online.A[order], offline.A, rtol=1e-5, atol=1e-5)
    assert replace(counts, short_runs=0) == stream.counts
    assert stream.flat_windows == offline.flat_windows


def test_a_frame_that_cannot_be_scored_costs_no_other_camera_its_scores(
    detectors: dict[int, Detector],
) -> None:
    good, bad, alone = (Stream(detectors[4], skeleton=SKELETON) for _ in range(3))
    for frame in range(4):
        update_all([(good, frame, [person(1, frame)]), (bad, frame, [person(1, frame)])])
        alone.update(frame, [person(1, frame)])
    expected = alone.update(4, [person(1, 4)])
    error, scores = update_each([(bad, 3, [person(1, 4)]), (good, 4, [person(1, 4)])])
    assert isinstance(error, DataError)
    assert not isinstance(scores, Exception)
    np.testing.assert_allclose(scores.A, expected.A, atol=1e-5)
    with pytest.raises(DataError, match="expected a frame after"):
        update_all([(bad, 3, [person(1, 4)])])


def test_windows_that_cannot_be_scored_together_are_scored_one_by_one(
    detectors: dict[int, Detector], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [Stream(detectors[4], skeleton=SKELETON) for _ in range(3)]
    for frame in range(3):
        update_all([(s, frame, [person(i, frame)]) for i, s in enumerate(streams)])
    score = Detector.score_windows

    def picky(self: Detector, windows: Windows) -> WindowScores:
        if 1 in windows.track_id:
            raise RuntimeError("an engine that gives up")
        return score(self, windows)

    monkeypatch.setattr(Detector, "score_windows", picky)
    found = update_each([(s, 3, [person(i, 3)]) for i, s in enumerate(streams)])
    assert [type(one) for one in found] == [WindowScores, RuntimeError, WindowScores]
