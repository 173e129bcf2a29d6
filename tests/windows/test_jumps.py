"""A track that goes over to another body begins again there, the same way everywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.model.footage import Footage
from stepvad.poses import Clip, Track
from stepvad.skeletons import of_size
from stepvad.stream import Stream
from stepvad.windows import Repairs, Windows, cut, runs
from stepvad.windows.assembler import WindowAssembler
from stepvad.windows.bodies import jumped
from tests.windows.test_sampling import V
from tests.windows.test_views import crossing

MOTION = Config(T=8, least=2, K=2, view="motion", split_jumps=True, fps=10.0)
SECOND = np.ones(1)


def moved(track: Track, rows: slice, by: float, growth: float = 1.0) -> Clip:
    """A clip of the track, some of whose poses are somewhere else and larger."""
    there = track.keypoints.copy()
    middle = there[rows].mean(axis=(1, 2), keepdims=True)
    there[rows] = (there[rows] - middle) * np.float32(growth) + middle + np.float32(by)
    moved = Track(track.id, track.frames, there, track.confidence)
    return Clip("x", 10.0, int(track.frames[-1]) + 1, (moved,), of_size(V))


def body(at: float = 0.0, size: float = 1.0) -> np.ndarray:
    """One pose of a body with a spread of `size`, `(1, V, 2)`."""
    rng = np.random.default_rng(0)
    pose = rng.standard_normal((1, V, 2))
    pose -= pose.mean(axis=1, keepdims=True)
    pose *= size / np.sqrt(np.square(pose).sum(axis=2).mean())
    return (pose + np.array([at, 0])).astype(np.float32)


@pytest.mark.parametrize(
    ("seconds", "at", "size", "is_other"),
    [
        (0.0, 0.9, 1.0, False),
        (0.0, 1.1, 1.0, True),
        (1.0, 3.9, 1.0, False),
        (1.0, 4.1, 1.0, True),
        (0.0, 0.0, 1.4, False),
        (0.0, 0.0, 1.5, True),
        (0.0, 0.0, 0.65, True),
        (1.0, 0.0, 1.5, False),
        (1.0, 0.0, 2.0, True),
    ],
)
def test_who_moves_or_grows_too_much_is_somebody_else(
    seconds: float, at: float, size: float, *, is_other: bool
) -> None:
    assert jumped(body(), body(at, size), seconds * SECOND).tolist() == [is_other]


def test_a_track_begins_again_where_its_body_jumps() -> None:
    (track,) = crossing((3.0, -1.0)).tracks
    steady, _ = cut(moved(track, slice(0), 0.0), MOTION, of_size(V))
    index, counts = cut(moved(track, slice(0, 4), 300.0), MOTION, of_size(V))
    assert counts.jumps == 1
    last = index.windows(slice(None)).x[-1:]
    np.testing.assert_allclose(last[:, :, 0], steady.windows(slice(None)).x[-1:, :, 0], atol=1e-5)
    plain, none = cut(
        moved(track, slice(0, 4), 300.0), replace(MOTION, split_jumps=False), of_size(V)
    )
    assert none.jumps == 0
    assert np.abs(plain.windows(slice(None)).x[-1:, :, 0]).max() > 3


def test_one_pose_of_somebody_else_gives_no_window_with_both() -> None:
    (track,) = crossing((3.0, -1.0)).tracks
    index, counts = cut(moved(track, slice(4, 5), 300.0), MOTION, of_size(V))
    assert counts.jumps == 2
    assert index.frame.tolist() == [1, 2, 3, 6, 7]
    speed = np.abs(index.windows(slice(None)).x[:, :, 0, 0])
    assert speed.max() < 1


def test_a_body_that_swells_at_once_is_another_one() -> None:
    (track,) = crossing((0.0, 0.0)).tracks
    index, counts = cut(moved(track, slice(4, 8), 0.0, growth=1.6), MOTION, of_size(V))
    assert counts.jumps == 1
    growth = index.windows(slice(None)).x[:, 0, 1, 0]
    np.testing.assert_allclose(growth, 0, atol=1e-5)


def test_parts_of_any_size_have_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (track,) = crossing((3.0, -1.0)).tracks
    clip = moved(track, slice(3, 4), 300.0)
    whole, _ = cut(clip, MOTION, of_size(V))
    monkeypatch.setattr(runs, "PIECE", 1)
    pieces = [*runs.clip_runs(clip, MOTION, of_size(V))]
    assert sum((one for _, one in pieces), Repairs()).jumps == 0, "without a rate nobody looks"
    parts, counts = cut(clip, MOTION, of_size(V))
    assert counts.jumps == 2
    np.testing.assert_array_equal(parts.frame, whole.frame)


@pytest.mark.parametrize("own", [10.0, 25.0, None])
@pytest.mark.parametrize("stated", [10.0, None])
@pytest.mark.parametrize("clock", [False, True])
@pytest.mark.parametrize("by", [300.0, 14.0])  # 14 pixels along both axes: 1.2 sizes of the body
def test_a_fit_cuts_the_windows_that_are_scored(
    own: float | None, stated: float | None, by: float, *, clock: bool
) -> None:
    (track,) = crossing((0.0, 0.0), n=40).tracks
    clip = replace(moved(track, slice(17, 40), by), fps=own)
    config = replace(MOTION, fps=stated, clock=clock)
    if clock and stated:
        clip = replace(clip, fps=stated)
    footage = Footage.read([clip, clip], config)
    index, counts = cut(clip, footage.config, of_size(V))
    assert footage.counts.jumps == 2 * counts.jumps
    assert counts.jumps == (by == 300 or 10 not in (own, stated))
    scored = index.windows(slice(None)).x
    np.testing.assert_array_equal(
        footage.index.windows(slice(None)).x, np.tile(scored, (2, 1, 1, 1))
    )


def test_a_fit_at_a_common_rate_learns_no_jump_of_a_faster_camera() -> None:
    (track,) = crossing((0.0, 0.0), n=40).tracks
    calm, quick = (replace(moved(track, slice(17, 40), by), fps=20.0) for by in (0.0, 300.0))
    footage = Footage.read([replace(calm, fps=10.0), quick], replace(MOTION, clock=True))
    assert footage.counts.jumps == 1
    numbers = footage.index.windows(slice(None)).x[:, :, 0, 0]
    np.testing.assert_allclose(numbers, 0, atol=1e-5)


def test_what_is_usual_of_a_motion_is_taken_from_no_jump() -> None:
    tracks = [crossing((speed, 0.5), n=300).tracks[0] for speed in (1.0, 2.0, 3.0, 4.0)]
    config = Config(K=1, width=16, max_steps=2, ema_warmup=True).with_views(("pose", "motion"), 10)
    fastest = []
    for by in (0.0, 300.0):
        clips = [moved(track, slice(150, 300), by) for track in tracks]
        views = Detector.fit(clips, config).model.views
        fastest.append([view.usual[0, -1] for view in views if view.usual is not None])
    assert len(fastest[0]) == 2
    np.testing.assert_allclose(fastest[1], fastest[0], rtol=0.05)


def test_a_stream_counts_what_a_clip_counts(small_model: Detector) -> None:
    config = replace(small_model.config, split_jumps=True)
    detector = Detector(replace(small_model.model, config=config))
    rng = np.random.default_rng(1)
    shape = rng.normal(0, 20, (17, 2)).astype(np.float32)
    where = np.repeat([0, 500, 0], [20, 1, 30])[:, None, None]
    track = Track(3, np.arange(51), shape + where.astype(np.float32), np.ones((51, 17), np.float32))
    clip = Clip("x", 25.0, 51, (track,))
    stream = Stream(detector, fps=25.0)
    frames = [
        at for slot, poses in clip.by_frame() for at in stream.push(slot, poses).frame.tolist()
    ]
    index, counts = cut(clip, config, detector.skeleton)
    assert frames == index.frame.tolist()
    assert counts.jumps == stream.counts.jumps == 2
    assembler = WindowAssembler(config, detector.skeleton, 25.0)
    at, who = np.arange(51), np.full(51, 3)
    found = assembler.push(0 * at, at, who, track.keypoints, track.confidence)
    assert [frame for windows, _ in found for frame in windows.frame.tolist()] == frames


def test_a_jump_that_is_taken_back_leaves_no_trace(small_model: Detector) -> None:
    config = replace(small_model.config, split_jumps=True)
    last, sure = config.T - 1, np.ones((1, 17), np.float32)
    shape = np.random.default_rng(1).normal(0, 20, (1, 17, 2)).astype(np.float32)

    def push(assembler: WindowAssembler, frame: int, at: float) -> list[Windows]:
        own = np.array([0]), np.array([frame]), np.array([3])
        return [w for w, _ in assembler.push(*own, shape + np.float32(at + frame), sure)]

    steady, disturbed = (WindowAssembler(config, small_model.skeleton, 25.0) for _ in range(2))
    for frame in range(last):
        assert not push(steady, frame, 0)
        assert not push(disturbed, frame, 0)
    mark = disturbed.mark()
    assert not push(disturbed, last, 500), "somebody else"
    disturbed.undo(mark)
    (expected,), (found,) = push(steady, last, 0), push(disturbed, last, 0)
    np.testing.assert_array_equal(found.x, expected.x)
