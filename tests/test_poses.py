"""Poses, tracks and clips: what they hold, and what they refuse with which words."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.poses import MAX_FRAME, Clip, Pose, Track, n_frames_of
from stepvad.skeletons import COCO17, of_size

V = 3


def keypoints(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(300, 50, size=(*shape, 2)).astype(np.float32)


def track(frames: Sequence[float] | Sequence[Sequence[int]], *, id_: int = 7, V: int = V) -> Track:
    numbers = np.asarray(frames) if frames else np.empty(0, np.int64)
    n = len(numbers)
    return Track(id_, numbers, keypoints(n, V), np.ones((n, V), dtype=np.float32))


def clip(*tracks: Track, n_frames: int = 100, fps: float | None = 25.0) -> Clip:
    return Clip("hall", fps, n_frames, tracks, of_size(V))


def refusal(error: pytest.ExceptionInfo[DataError]) -> tuple[str, str]:
    return error.value.problem, error.value.hint


def test_a_track_holds_dense_arrays_of_the_right_types() -> None:
    given = Track(
        1,
        np.array([0, 2], dtype=np.int32),
        np.asfortranarray(keypoints(2, V), dtype=np.float64),
        np.ones((2, V), dtype=np.float64),
    )
    assert given.frames.dtype == np.int64
    assert given.keypoints.dtype == given.confidence.dtype == np.float32
    assert given.keypoints.flags.c_contiguous
    assert len(given) == 2


def test_a_track_leaves_its_inputs_alone() -> None:
    frames, points, confidence = np.array([1, 4]), keypoints(2, V), np.full((2, V), np.nan)
    before = frames.copy(), points.copy(), confidence.copy()
    Track(1, frames, points, confidence.astype(np.float32))
    for now, then in zip((frames, points, confidence), before, strict=True):
        np.testing.assert_array_equal(now, then)


def test_an_empty_track_is_a_track() -> None:
    assert len(track([])) == 0


def test_tracks_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        track([0]).id = 3  # type: ignore[misc]  # wrong on purpose


@pytest.mark.parametrize("value", [np.nan, -1.0, 7.5, np.inf])
def test_any_confidence_is_taken_as_the_estimator_gave_it(value: float) -> None:
    confidence = np.full((1, V), value, dtype=np.float32)
    np.testing.assert_array_equal(
        Track(0, np.arange(1), keypoints(1, V), confidence).confidence, confidence
    )


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([3, 3], "track 7, frame 3: expected strictly increasing frames, got 3 after 3"),
        ([3, 4, 2], "track 7, frame 2: expected strictly increasing frames, got 2 after 4"),
        ([-1, 4], f"track 7, frame -1: expected frames from 0 to {MAX_FRAME}, got -1"),
        (
            [0, MAX_FRAME + 1],
            f"track 7, frame {MAX_FRAME + 1}: expected frames from 0 to {MAX_FRAME}, "
            f"got {MAX_FRAME + 1}",
        ),
        ([5, -2, 9], "track 7, frame -2: expected strictly increasing frames, got -2 after 5"),
    ],
)
def test_frames_out_of_order_or_range_are_refused(frames: list[int], problem: str) -> None:
    with pytest.raises(DataError) as error:
        track(frames)
    assert refusal(error)[0] == problem
    assert refusal(error)[1]


def test_the_largest_frame_is_allowed() -> None:
    assert track([0, MAX_FRAME]).frames[-1] == MAX_FRAME


@pytest.mark.parametrize("frames", [[0.5, 1.5], [0.0, np.nan], [0.0, 1e300]])
def test_frames_that_are_no_whole_numbers_are_refused(frames: list[float]) -> None:
    with pytest.raises(DataError, match="frames"):
        track(frames)


def test_frames_in_a_table_are_refused() -> None:
    with pytest.raises(DataError, match=r"track 7: frames must have shape \(n,\), got \(2, 1\)"):
        track([[0], [1]])


@pytest.mark.parametrize("shape", [(4, 6), (4, V, 3), (4, V, 1), (4, V, 2, 2)])
def test_keypoints_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as error:
        Track(7, np.arange(4), np.zeros(shape, np.float32), np.ones((4, V), np.float32))
    problem, hint = refusal(error)
    assert problem == f"track 7: keypoints must have shape (n, V, 2), got {shape}"
    assert hint == "reshape to pairs of x and y first"


@pytest.mark.parametrize("shape", [(4,), (4, 2), (3, V), (4, V, 1)])
def test_confidence_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError) as error:
        Track(7, np.arange(4), keypoints(4, V), np.ones(shape, np.float32))
    assert refusal(error) == (
        f"track 7: confidence must have shape (4, 3), got {shape}",
        "give one confidence per keypoint",
    )


def test_as_many_poses_as_frames_are_asked_for() -> None:
    with pytest.raises(DataError) as error:
        Track(7, np.arange(5), keypoints(4, V), np.ones((4, V), np.float32))
    assert refusal(error) == (
        "track 7: expected 5 poses, one per frame, got 4",
        "give one frame number per pose",
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (2e7, "20000000.0"), (-2e7, "-2")],
)
def test_a_coordinate_out_of_range_is_named_by_frame_and_joint(value: float, shown: str) -> None:
    points = keypoints(4, V)
    points[2, 1, 0] = value
    with pytest.raises(DataError) as error:
        Track(7, np.array([3, 5, 8, 9]), points, np.ones((4, V), np.float32))
    problem, hint = refusal(error)
    expected = "track 7, frame 8, joint 1: expected coordinates within ±1e+07, got "
    assert problem.startswith(expected + shown)
    assert hint == "leave the pose out, or put the joint at (0, 0) with confidence 0"


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_a_coordinate_beyond_float32_is_refused_like_any_other(value: float) -> None:
    points = keypoints(1, V).astype(np.float64)
    points[0, 2, 1] = value
    with pytest.raises(DataError, match="track 7, frame 0, joint 2: expected coordinates within"):
        Track(7, np.arange(1), points, np.ones((1, V), np.float32))  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(DataError, match="track 7, joint 2: expected coordinates within"):
        Pose(7, points[0], np.ones(V, np.float32))


def test_a_confidence_beyond_float32_is_an_odd_confidence_like_any_other() -> None:
    wild = np.full((1, V), 1e300)
    held = Track(7, np.arange(1), keypoints(1, V), wild).confidence
    assert (held > 1).all()


def test_a_pose_holds_float32_and_leaves_its_inputs_alone() -> None:
    points, confidence = keypoints(V).astype(np.float64), np.array([0.5, np.nan, 2])
    before = points.copy(), confidence.copy()
    pose = Pose(3, points, confidence)  # type: ignore[arg-type]  # wrong on purpose
    assert pose.keypoints.dtype == pose.confidence.dtype == np.float32
    np.testing.assert_array_equal(points, before[0])
    np.testing.assert_array_equal(confidence, before[1])


WHOLE = [np.int64(7), np.uint8(7), np.array(7), np.float32(7.0), np.array(7.0), 7.0]


@pytest.mark.parametrize("given", WHOLE, ids=lambda given: type(given).__name__)
def test_an_id_of_any_kind_of_whole_number_is_stored_as_an_int(given: Any) -> None:
    pose = Pose(given, keypoints(V), np.ones(V, np.float32))
    made = Track(given, np.arange(1), keypoints(1, V), np.ones((1, V), np.float32))
    assert (pose.track_id, type(pose.track_id)) == (7, int)
    assert (made.id, type(made.id)) == (7, int)


def test_ids_in_tensors_are_one_person_from_frame_to_frame() -> None:
    torch = pytest.importorskip("torch")
    ids = [torch.tensor([3.0, 7.0])[1], torch.tensor(7), torch.tensor(7.0)]
    poses = [Pose(given, keypoints(V), np.ones(V, np.float32)) for given in ids]
    assert {pose.track_id for pose in poses} == {7}


WRONG = ["7", None, 7.5, np.nan, True, np.array(7.5), np.array([7]), [7], np.bool_(True), 1j]


@pytest.mark.parametrize("given", WRONG, ids=repr)
def test_an_id_that_is_no_whole_number_is_refused(given: Any) -> None:
    for make in (
        lambda: Pose(given, keypoints(V), np.ones(V, np.float32)),
        lambda: Track(given, np.arange(1), keypoints(1, V), np.ones((1, V), np.float32)),
    ):
        with pytest.raises(DataError) as error:
            make()
        problem, hint = refusal(error)
        assert problem.startswith("expected a whole number as track id, got ")
        assert "Tracker" in hint


def test_a_pose_of_another_shape_is_refused() -> None:
    with pytest.raises(DataError) as error:
        Pose(3, np.zeros(34, np.float32), np.ones(17, np.float32))
    assert refusal(error)[0] == "track 3: keypoints must have shape (V, 2), got (34,)"
    with pytest.raises(DataError, match=r"track 3: confidence must have shape \(3,\), got \(17,\)"):
        Pose(3, keypoints(V), np.ones(17, np.float32))


def test_a_pose_with_a_coordinate_that_is_no_number_is_refused() -> None:
    points = keypoints(V)
    points[1, 1] = np.nan
    with pytest.raises(DataError, match=r"track 3, joint 1: expected coordinates within .* nan"):
        Pose(3, points, np.ones(V, np.float32))


def test_a_clip_counts_its_poses_and_people() -> None:
    made = clip(track([0, 1, 2]), track([2, 4], id_=8), track([], id_=9), n_frames=6)
    assert made.n_poses == 5
    assert made.persons_per_frame().tolist() == [1, 1, 2, 0, 1, 0]
    assert clip(n_frames=3).persons_per_frame().tolist() == [0, 0, 0]


def test_tracks_of_a_clip_may_come_as_any_sequence() -> None:
    made = Clip("hall", None, 3, [track([0], V=17)])  # type: ignore[arg-type]  # wrong on purpose
    assert isinstance(made.tracks, tuple)
    assert made.skeleton == COCO17


def test_two_tracks_of_one_id_are_refused() -> None:
    with pytest.raises(DataError) as error:
        clip(track([0]), track([5]))
    assert refusal(error) == (
        "clip hall: track ids must be distinct, got 7 twice",
        "merge the poses of one person, or renumber the tracks",
    )


def test_a_track_of_another_skeleton_is_refused() -> None:
    with pytest.raises(DataError) as error:
        Clip("hall", None, 9, (track([0]),))
    assert refusal(error) == (
        "clip hall, track 7: expected 17 joints (coco17), got 3",
        "give the clip the skeleton of its poses",
    )


def test_a_pose_beyond_the_end_is_refused() -> None:
    assert clip(track([9]), n_frames=10).n_frames == 10
    with pytest.raises(DataError) as error:
        clip(track([10]), n_frames=10)
    assert refusal(error) == (
        "clip hall, track 7: expected frames below 10, got 10",
        "frames count from 0; check the clip's length",
    )


@pytest.mark.parametrize("fps", [0.0, -25.0, float("nan"), float("inf")])
def test_an_impossible_frame_rate_is_refused(fps: float) -> None:
    with pytest.raises(DataError) as error:
        clip(fps=fps)
    assert refusal(error) == (
        f"clip hall: fps must be a positive number, got {fps}",
        "leave it out where it is unknown",
    )


@pytest.mark.parametrize("n_frames", [-1, MAX_FRAME + 2])
def test_an_impossible_length_is_refused(n_frames: int) -> None:
    with pytest.raises(DataError) as error:
        clip(n_frames=n_frames)
    assert refusal(error)[0] == (f"clip hall: expected 0 to {MAX_FRAME + 1} frames, got {n_frames}")


@pytest.mark.parametrize("id_", [2**63, -(2**63) - 1])
def test_an_id_beyond_64_bits_is_refused(id_: int) -> None:
    with pytest.raises(DataError, match=f"track {id_}: expected an id of 64 bits"):
        track([0], id_=id_)
    with pytest.raises(DataError, match=f"track {id_}: expected an id of 64 bits"):
        Pose(id_, keypoints(V), np.ones(V, np.float32))


def test_a_clip_can_be_given_another_length() -> None:
    made = clip(track([0, 4]), n_frames=5)
    longer = made.with_length(50)
    assert (longer.n_frames, longer.tracks, longer.fps) == (50, made.tracks, made.fps)
    with pytest.raises(DataError, match="expected frames below 4, got 4"):
        made.with_length(4)


def test_equal_clips_have_equal_digests_and_any_change_shows() -> None:
    same = clip(track([0, 1, 2])).digest()
    assert same == clip(track([0, 1, 2])).digest()
    moved = keypoints(3, V)
    moved[1, 1, 1] += 1
    doubtful = np.ones((3, V), dtype=np.float32)
    doubtful[0, 0] = 0.5
    others = [
        clip(track([0, 1, 3])),
        clip(track([0, 1, 2], id_=8)),
        clip(track([0, 1, 2]), track([], id_=8)),
        clip(Track(7, np.arange(3), moved, np.ones((3, V), np.float32))),
        clip(Track(7, np.arange(3), keypoints(3, V), doubtful)),
        Clip("yard", 25.0, 100, (track([0, 1, 2]),), of_size(V)),
    ]
    assert len({same, *(other.digest() for other in others)}) == 7


def test_upright_poses_have_their_ankles_below_their_nose() -> None:
    standing = np.zeros((2, 17, 2), dtype=np.float32)
    standing[:, 15:, 1] = 100
    standing[1] *= -1
    made = Clip("c", None, 2, (Track(0, np.arange(2), standing, np.ones((2, 17), np.float32)),))
    assert made.n_upright() == 1
    assert Clip("c", None, 2, ()).n_upright() == 0
    assert clip(track([0])).n_upright() is None


def test_the_last_pose_tells_how_long_a_clip_is() -> None:
    assert n_frames_of([track([0, 3]), track([7]), track([])]) == 8
    assert n_frames_of([]) == 0


def test_a_clip_can_be_had_frame_by_frame() -> None:
    one, two = track([1, 2], id_=1), track([2, 4], id_=2)
    clip = Clip("c", None, 6, (one, two), of_size(V))
    frames = list(clip.by_frame())
    assert [frame for frame, _ in frames] == [0, 1, 2, 3, 4, 5]
    assert [[pose.track_id for pose in poses] for _, poses in frames] == [
        [], [1], [1, 2], [], [2], []
    ]  # fmt: skip
    np.testing.assert_array_equal(frames[4][1][0].keypoints, two.keypoints[1])


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(DataError, match="expected a name in UTF-8"):
        Clip("\udcff", None, 0, ())


def test_clips_and_tracks_are_compared_by_identity() -> None:
    one = track([1, 2])
    same = one
    assert one == same
    assert one != track([1, 2])
