"""Runs and gaps, and the windows that are cut from them."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stepvad.config import Config, Reference
from stepvad.errors import DataError
from stepvad.poses import Clip, PoseRows, Track
from stepvad.skeletons import COCO17, STEP18, of_size
from stepvad.windows import runs
from stepvad.windows.body import Repairs, prepare, standardise
from stepvad.windows.runs import (
    Run,
    WindowIndex,
    clip_runs,
    cut,
    cut_in_pieces,
    fill_gaps,
    in_pieces,
    runs_of,
)
from stepvad.windows.views import CompletedWindows, ViewSettings, Windows
from tests.tracks import all_windows, clip_of, config, floats, random_track


def filled(
    frames: list[int], keypoints: NDArray[np.float32], confidence: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A run of these poses, filled."""
    missed = np.diff(frames, prepend=frames[0] - 1) - 1
    before = np.flatnonzero(missed) - 1
    _, _, poses = fill_gaps(
        missed, (keypoints, confidence), (keypoints[before], confidence[before])
    )
    return poses


def test_a_gap_is_filled_linearly_in_place_and_confidence() -> None:
    keypoints = floats(0, 0, 4, 8, 12, 0).reshape(3, 1, 2)
    between, confidence = filled([10, 11, 15], keypoints, floats(0.2, 0.4, 0.8))
    expected = [[0, 0], [4, 8], [6, 6], [8, 4], [10, 2], [12, 0]]
    np.testing.assert_allclose(between[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(confidence, [0.2, 0.4, 0.5, 0.6, 0.7, 0.8], rtol=1e-6)
    assert between.dtype == confidence.dtype == np.float32


def test_given_poses_keep_their_bits_when_a_gap_is_filled() -> None:
    track = random_track([0, 1, 4, 5, 9])
    confidence = track.confidence.mean(axis=1)
    between, filled_confidence = filled(track.frames.tolist(), track.keypoints, confidence)
    assert len(between) == 10
    np.testing.assert_array_equal(between[track.frames], track.keypoints)
    np.testing.assert_array_equal(filled_confidence[track.frames], confidence)


def test_a_gap_is_told_by_the_pose_it_leads_to_and_the_frames_up_to_it() -> None:
    ones = np.ones((3, 2, 2), np.float32)
    row, ahead, _ = fill_gaps(
        np.array([0, 2, 1]), (ones, ones[:, 0, 0]), (ones[:2], ones[:2, 0, 0])
    )
    assert row.tolist() == [0, 1, 1, 1, 2, 2]
    assert ahead.tolist() == [0, 2, 1, 0, 1, 0]


def runs_and_repairs(clip: Clip, T: int) -> tuple[list[Run], Repairs]:
    pieces = list(clip_runs(clip, [ViewSettings(config(T))], of_size(3)))
    return [run for run, _ in pieces], sum((counts for _, counts in pieces), Repairs())


@pytest.mark.parametrize("T", [1, 2, 3, 12])
def test_a_gap_of_T_frames_is_filled_and_one_more_splits_the_track(T: int) -> None:
    before, after = list(range(T)), list(range(2 * T, 3 * T))  # T frames missing in between
    runs, counts = runs_and_repairs(clip_of(random_track(before + after)), T)
    assert [(run.first_frame, len(run)) for run in runs] == [(0, 3 * T)]
    assert counts.filled_poses == T
    later = [frame + 1 for frame in after]
    runs, counts = runs_and_repairs(clip_of(random_track(before + later)), T)
    assert [(run.first_frame, len(run)) for run in runs] == [(0, T), (2 * T + 1, T)]
    assert counts.filled_poses == 0


def test_a_split_leaves_no_window_across_the_gap() -> None:
    track = random_track([0, 1, 2, 3, 10, 11, 12])
    windows = all_windows(clip_of(track), config(3))
    assert windows.frame.tolist() == [2, 3, 12]


def test_a_gap_is_never_filled_from_another_track() -> None:
    first, second = random_track([0, 1, 2], id_=1), random_track([4, 5, 6], id_=2, seed=1)
    runs, counts = runs_and_repairs(clip_of(first, second), 3)
    assert [(run.track_id, run.first_frame, len(run)) for run in runs] == [(1, 0, 3), (2, 4, 3)]
    assert counts.filled_poses == 0


def test_short_stretches_are_counted_and_give_no_window() -> None:
    track = random_track([0, 1, 10, 20, 21, 22])
    index, counts = cut(clip_of(track), [ViewSettings(config(3))], of_size(3))
    assert counts == Repairs(poses=6, short_runs=2)
    assert index.frame.tolist() == [22]


@pytest.mark.parametrize(("n", "T"), [(12, 12), (30, 12), (5, 1), (1, 1), (4, 3)])
def test_a_track_of_n_frames_gives_n_minus_T_plus_1_windows(n: int, T: int) -> None:
    windows = all_windows(clip_of(random_track(list(range(7, 7 + n)))), config(T))
    assert len(windows) == n - T + 1
    assert windows.frame.tolist() == list(range(7 + T - 1, 7 + n))  # the last frame covered


@pytest.mark.parametrize("n", [0, 1, 11])
def test_a_track_shorter_than_T_gives_no_window(n: int) -> None:
    windows = all_windows(clip_of(random_track(list(range(n)))), config(12))
    assert len(windows) == 0
    assert windows.x.shape == (0, 2, 3, 12)


def test_a_window_shows_its_own_T_poses_in_order() -> None:
    track = random_track([5, 6, 7, 8, 9])
    windows = all_windows(clip_of(track), config(3))
    for i in range(3):
        poses = track.keypoints[i : i + 3]  # (T, V, 2)
        expected, _ = standardise(poses.transpose(2, 1, 0)[None], config(3))
        np.testing.assert_array_equal(windows.x[i], expected[0])
        assert windows.frame[i] == 5 + i + 2


def test_windows_of_several_tracks_do_not_mix() -> None:
    a, b = random_track([0, 1, 2, 3], id_=5), random_track([1, 2, 3], id_=9, seed=1)
    both = all_windows(clip_of(a, b), config(3))
    assert both.track_id.tolist() == [5, 5, 9]
    assert both.frame.tolist() == [2, 3, 3]
    alone = all_windows(clip_of(b), config(3))
    np.testing.assert_array_equal(both.x[2:], alone.x)
    np.testing.assert_array_equal(both.c[2:], alone.c)


def test_a_clip_without_tracks_has_no_windows() -> None:
    index, counts = cut(clip_of(), [ViewSettings(config(4))], of_size(3))
    assert len(index) == 0
    assert index.windows(slice(None)).x.shape == (0, 2, 3, 4)
    assert list(index.batches(10)) == []
    assert counts == Repairs()


@pytest.mark.parametrize("V", [1, 2, 17, 40])
def test_any_number_of_joints_will_do(V: int) -> None:
    clip = clip_of(random_track([0, 1, 2], V), V=V)
    index, _ = cut(clip, [ViewSettings(config(2))], of_size(V))
    assert index.windows(slice(None)).x.shape == (2, 2, V, 2)


def test_coco_poses_become_18_joints() -> None:
    clip = clip_of(random_track([0, 1, 2], 17), V=17)
    index, _ = cut(clip, [ViewSettings(config(2))], STEP18)
    x = index.windows(slice(None)).x
    assert x.shape == (2, 2, 18, 2)
    neck, right, left = x[:, :, 1], x[:, :, 2], x[:, :, 5]
    np.testing.assert_allclose(neck, (right + left) / 2, atol=1e-5)


def test_poses_of_another_skeleton_are_refused() -> None:
    clip = clip_of(random_track([0, 1, 2], 5), V=5)
    with pytest.raises(DataError, match=r"expected poses of skeleton step18 .*got joints5"):
        cut(clip, [ViewSettings(config(2))], STEP18)


def test_the_last_window_of_a_track_can_be_dropped() -> None:
    tracks = (random_track([0, 1, 2, 3, 4]), random_track([0, 1, 2], id_=2))
    whole = all_windows(clip_of(*tracks), config(3))
    dropped = all_windows(clip_of(*tracks), config(3, drop_last_window=True))
    assert whole.frame.tolist() == [2, 3, 4, 2]
    assert dropped.frame.tolist() == [2, 3]
    assert dropped.track_id.tolist() == [1, 1]
    np.testing.assert_array_equal(dropped.x, whole.x[:2])


def test_dropping_the_last_window_does_not_change_what_was_filled() -> None:
    clip = clip_of(random_track([0, 1, 2, 5, 6]))
    _, counts = cut(clip, [ViewSettings(config(3, drop_last_window=True))], of_size(3))
    assert counts.filled_poses == 2
    assert (
        cut(clip_of(), [ViewSettings(config(3, drop_last_window=True))], of_size(3))[1] == Repairs()
    )


def test_flat_windows_are_marked() -> None:
    keypoints = random_track(list(range(6))).keypoints.copy()
    keypoints[:3, :, 1] = 40.0
    track = Track(1, np.arange(6), keypoints, np.ones((6, 3), np.float32))
    windows = all_windows(clip_of(track), config(3))
    assert windows.flat.tolist() == [True, False, False, False]
    assert np.isfinite(windows.x).all()


def test_batches_hold_the_same_bits_as_single_windows() -> None:
    clip = clip_of(random_track([*range(40), *range(45, 80)]), random_track([3, 4, 5], id_=2))
    index, _ = cut(clip, [ViewSettings(config(3))], of_size(3))
    together = index.windows(slice(None))
    for size in (1, 7, 1000):
        batches = list(index.batches(size))
        assert max(len(batch) for batch in batches) <= size
        for name in ("x", "c", "track_id", "frame", "flat"):
            joined = np.concatenate([getattr(batch, name) for batch in batches])
            np.testing.assert_array_equal(joined, getattr(together, name))
    rows = np.array([5, 0, 5, 60])
    np.testing.assert_array_equal(index.windows(rows).x, together.x[rows])
    np.testing.assert_array_equal(index.windows(rows).c, together.c[rows])


def test_windows_are_views_until_a_batch_asks_for_them() -> None:
    n, V, T = 20_000, 18, 12
    rng = np.random.default_rng(0)
    run = Run(1, 0, rng.normal(size=(n, V, 2)).astype(np.float32), np.ones(n, np.float32))
    index = WindowIndex.of_runs([run], [ViewSettings(config(T))], V)
    assert len(index) == n - T + 1
    held = sum(
        getattr(index, name).nbytes
        for name in ("keypoints", "confidence", "start", "track_id", "frame")
    )
    poses = run.keypoints.nbytes + run.confidence.nbytes
    assert held <= poses + 3 * 8 * len(index)  # three numbers per window, not 2 V T


def test_cutting_leaves_the_clip_alone() -> None:
    track = random_track([0, 1, 2, 5, 6], 17)
    keypoints, confidence = track.keypoints.copy(), track.confidence.copy()
    index, _ = cut(clip_of(track, V=17), [ViewSettings(config(2))], STEP18)
    index.windows(slice(None))
    np.testing.assert_array_equal(track.keypoints, keypoints)
    np.testing.assert_array_equal(track.confidence, confidence)


def windows_of(**changed: NDArray[np.generic]) -> Windows:
    arrays: dict[str, NDArray[np.generic]] = {
        "x": np.zeros((2, 2, 3, 4), np.float32),
        "c": np.full(2, 0.5, np.float32),
        "track_id": np.zeros(2, np.int64),
        "frame": np.zeros(2, np.int64),
        "flat": np.zeros(2, np.bool_),
    }
    return Windows(**(arrays | changed))  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("shape", [(2, 24), (2, 3, 2, 4), (2, 2, 3)])
def test_windows_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"x must have shape \(N, 2, V, T\), got") as error:
        windows_of(x=np.zeros(shape, np.float32))
    assert error.value.hint == "put the two coordinates on the second axis"


@pytest.mark.parametrize("name", ["c", "track_id", "frame", "flat"])
def test_every_array_of_windows_has_one_value_per_window(name: str) -> None:
    with pytest.raises(DataError, match=rf"{name} must have shape \(2,\), got \(3,\)") as error:
        windows_of(**{name: np.zeros(3)})
    assert error.value.hint == "give one value per window"


def test_the_weight_of_a_window_is_its_confidence_unless_switched_off() -> None:
    windows = windows_of()
    assert windows.weight(Config()).tolist() == [0.5, 0.5]
    assert windows.weight(Config(confidence=False)).tolist() == [1, 1]


def test_counts_add_up() -> None:
    a = Repairs(poses=1, nan_confidences=2, clipped_confidences=3)
    b = Repairs(poses=10, missing_joints=4, filled_poses=5, short_runs=6)
    assert a + b == Repairs(11, 2, 3, 4, 5, 6)


def test_a_skeleton_of_one_joint_has_windows_too() -> None:
    windows = all_windows(clip_of(random_track([2, 3, 8], 1), V=1), config(4))
    assert windows.x.shape == (4, 2, 1, 4)
    assert windows.frame.tolist() == [5, 6, 7, 8]


def test_windows_in_any_order_are_those_of_their_rows() -> None:
    """Dense or far apart, once or often, the first and last rows near each other or not."""
    clip = clip_of(random_track([*range(300)]), random_track([*range(50)], id_=8, seed=2))
    index, _ = cut(clip, [ViewSettings(config(4))], of_size(3))
    rng = np.random.default_rng(0)
    one_by_one = np.concatenate([index.windows(slice(at, at + 1)).x for at in range(len(index))])
    for n in (1, 2, 5, 40, 344, 1000):
        for _ in range(10):
            rows = rng.integers(len(index), size=n)
            np.testing.assert_array_equal(index.windows(rows).x, one_by_one[rows])


@pytest.mark.parametrize("piece", [1, 2, 5, 7])
@pytest.mark.parametrize("T", [1, 2, 4])
@pytest.mark.parametrize("drop", [False, True])
def test_a_track_cut_in_pieces_gives_every_window_once_and_to_the_bit(
    piece: int, T: int, drop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = [0, 1, 2, 4, 5, 8, 9, 10, 11, 12, 20, 21, 22, 23, 24, 40]
    clip = clip_of(random_track(frames), random_track([3, 4, 5, 6], id_=8, seed=2))
    settings = config(T, drop_last_window=drop)
    whole, counts = cut(clip, [ViewSettings(settings)], of_size(3))
    monkeypatch.setattr("stepvad.windows.runs.PIECE", piece)
    pieces = list(cut_in_pieces(clip, [ViewSettings(settings)], of_size(3)))
    assert len(pieces) > 2
    assert sum((mended for _, mended in pieces), Repairs()) == counts
    batches = [index.windows(slice(None)) for index, _ in pieces]
    expected = whole.windows(slice(None))
    for name in ("x", "c", "track_id", "frame"):
        got = np.concatenate([getattr(batch, name) for batch in batches])
        assert got.tobytes() == getattr(expected, name).tobytes()


def test_cutting_in_pieces_takes_the_same_memory_for_a_clip_twice_as_long() -> None:
    def peak(n: int) -> int:
        rng = np.random.default_rng(0)
        keypoints = rng.standard_normal((n, 17, 2), dtype=np.float32)
        track = Track(0, np.arange(n), keypoints, np.ones((n, 17), np.float32))
        clip = Clip("long", None, n, (track,), COCO17)
        tracemalloc.start()
        for index, _ in cut_in_pieces(clip, [ViewSettings(Config())], STEP18):
            index.windows(slice(0, 10))
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    assert peak(200_000) < 1.1 * peak(100_000)


def test_cutting_many_short_tracks_takes_a_few_looks_at_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = 0

    def counted(run: Run) -> int:
        nonlocal looks
        looks += 1
        return len(run.keypoints)

    monkeypatch.setattr(Run, "__len__", counted)
    clip = clip_of(*(random_track([frame], id_=frame) for frame in range(500)))
    assert (
        sum(len(index) for index, _ in cut_in_pieces(clip, [ViewSettings(config(1))], of_size(3)))
        == 500
    )
    assert looks < 30 * 500


V = 3
CONFIG = Config(T=4, K=2)


def random_rows(seed: int, lengths: list[int]) -> PoseRows:
    """Tracks with gaps short and long, and with confidences as estimators give them."""
    rng = np.random.default_rng(seed)
    track = np.repeat(np.arange(len(lengths)) * 3, lengths)
    steps = rng.choice([1, 1, 1, 1, 2, 4, 5, 6, 9], size=len(track))
    frame = np.concatenate([np.cumsum(part) for part in np.split(steps, np.cumsum(lengths)[:-1])])
    joints = rng.normal(300, 40, (len(track), V, 3)).astype(np.float32)
    joints[..., 2] = rng.choice([0.5, 0.9, 1.2, np.nan, 0.0], size=joints.shape[:2])
    joints[rng.random(joints.shape[:2]) < 0.05] = 0
    return PoseRows(track, frame, joints[..., :2].copy(), joints[..., 2].copy())


def cut_by_parts(rows: PoseRows, edges: list[int], config: Config) -> tuple[list[Windows], Repairs]:
    parts = (rows[slice(first, end)] for first, end in pairwise(edges))
    pieces = [
        *in_pieces(
            runs_of(parts, [ViewSettings(config)], of_size(V), of_size(V)),
            [ViewSettings(config)],
            of_size(V),
        )
    ]
    found = [index.windows(slice(None)) for index, _ in pieces]
    return found, sum((counts for _, counts in pieces), Repairs())


def cut_whole(rows: PoseRows, config: Config) -> tuple[list[Windows], Repairs]:
    clip = Clip("a", None, int(rows.frame.max()) + 1, rows.tracks(), of_size(V))
    pieces = list(cut_in_pieces(clip, [ViewSettings(config)], of_size(V)))
    found = [index.windows(slice(None)) for index, _ in pieces]
    return found, sum((counts for _, counts in pieces), Repairs())


def window_of(
    keypoints: NDArray[np.float32], sure: NDArray[np.float32], id_: int, frame: int, config: Config
) -> Windows:
    """One window of keypoints `(1, T, V, 2)` and mean confidences of poses `(1, T)`."""
    whose = np.array([id_]), np.array([frame]), np.array([config.T])
    found = CompletedWindows(keypoints, sure, *whose, np.ones(sure.shape, np.bool_))
    return Windows.completed(found, [ViewSettings(config)])


def cut_by_a_loop(rows: PoseRows, config: Config) -> list[Windows]:
    """Pose by pose, each gap filled number by number, one window at a time."""
    keypoints, confidence, _ = prepare(rows.keypoints, rows.confidence, of_size(V), of_size(V))
    found: list[Windows] = []
    for id_ in np.unique(rows.track).tolist():
        run: list[tuple[int, np.ndarray, np.float32]] = []
        of_track: list[Windows] = []
        for i in np.flatnonzero(rows.track == id_).tolist():
            frame, new = int(rows.frame[i]), (keypoints[i], confidence[i])
            if run and frame - run[-1][0] - 1 > config.T:
                run = []
            last, *old = run[-1] if run else (frame - 1, *new)
            for between in range(last + 1, frame + 1):
                share = np.float32((between - last) / (frame - last))
                pose = [a + (b - a) * share for a, b in zip(old, new, strict=True)]
                run.append((between, *(new if between == frame else pose)))
                if len(run) >= config.T:
                    window = run[-config.T :]
                    of_track.append(
                        window_of(
                            np.array([[pose for _, pose, _ in window]]),
                            np.array([[sure for _, _, sure in window]]),
                            id_,
                            between,
                            config,
                        )
                    )
        ends_whole = len(run) >= config.T
        found += of_track[:-1] if config.reference.drop_last_window and ends_whole else of_track
    return found


def all_bytes(some: list[Windows], name: str) -> bytes:
    return b"".join(getattr(windows, name).tobytes() for windows in some)


@pytest.mark.parametrize("piece", [5, 16, 32_768])
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    shares=st.lists(st.floats(0, 1), max_size=8),
    drop_last=st.booleans(),
)
def test_poses_in_parts_give_the_windows_and_batches_of_the_clip_read_whole(
    piece: int, seed: int, lengths: list[int], shares: list[float], drop_last: bool
) -> None:
    rows = random_rows(seed, lengths)
    n = len(rows.track)
    edges = sorted({0, n, *(int(share * n) for share in shares)})
    config = replace(CONFIG, reference=Reference(drop_last_window=drop_last))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "PIECE", piece)
        found, counts = cut_by_parts(rows, edges, config)
        expected, expected_counts = cut_whole(rows, config)
    plain = cut_by_a_loop(rows, config)
    assert counts == expected_counts
    assert [len(some) for some in found] == [len(some) for some in expected]
    for name in ("x", "c", "track_id", "frame", "flat"):
        assert all_bytes(found, name) == all_bytes(expected, name) == all_bytes(plain, name)


def test_fractions_of_the_image_are_warned_of_and_pixels_are_not() -> None:
    pixels = np.random.default_rng(0).uniform(0, 1, (3, 17, 2)).astype(np.float32)
    confidence = np.ones((3, 17), np.float32)
    with pytest.warns(UserWarning, match=r"within 0 to 1; multiply x by the width"):
        prepare(pixels, confidence, COCO17, COCO17)
    prepare(pixels + 1, confidence, COCO17, COCO17)
    prepare(pixels - 0.5, confidence, COCO17, COCO17)
    prepare(np.zeros_like(pixels), confidence, COCO17, COCO17)  # joints that nobody found
    prepare(pixels[:0], confidence[:0], COCO17, COCO17)
