"""People as other packages give them; tests/test_interop_packages.py has the packages' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad import interop
from stepvad.errors import DataError
from stepvad.formats import json_poses
from stepvad.skeletons import BODY25, COCO17, HALPE26, STEP18, of_size
from stepvad.tracker import FramePoses, Tracker, clip_from_frames

FIGURE = np.random.default_rng(0).uniform(0, 100, (17, 2)) * (0.4, 1)


def walker(frame: int, x: float = 100.0) -> NDArray[np.float64]:
    """A person who walks to the right."""
    return FIGURE + np.array([x + 2 * frame, 50])


def summary(frame: int, *, track_id: int | None = None) -> dict[str, Any]:
    """A person as ultralytics writes it."""
    x, y = walker(frame).T.tolist()
    box = {"x1": min(x), "y1": min(y), "x2": max(x), "y2": max(y)}
    one = {"name": "person", "confidence": 0.9, "box": box}
    one["keypoints"] = {"x": x, "y": y, "visible": [0.8] * 17}
    return one if track_id is None else one | {"track_id": track_id}


def openpose(frame: int, *, joints: int = 25, person_id: int = -1) -> dict[str, Any]:
    """A frame as OpenPose writes it."""
    places = np.arange(joints * 2).reshape(joints, 2) * 3.0 + (100 + 2 * frame, 50)
    keypoints = np.concatenate([places, np.full((joints, 1), 0.9)], axis=1).ravel().tolist()
    person = {"person_id": [person_id], "pose_keypoints_2d": keypoints}
    return {"version": 1.3, "people": [person]}


def test_joints_that_were_not_found_have_no_confidence() -> None:
    joints, confidence = walker(0)[None], np.full((1, 17), 0.3)
    joints[0, 3], joints[0, 4], joints[0, 5] = 0, np.nan, 1e300
    confidence[0, 6], confidence[0, 7] = np.nan, 1.4
    frame = FramePoses.from_arrays(joints, confidence, ids=[4.0])
    (pose,) = frame.poses()
    assert (pose.track_id, frame.skeleton) == (4, COCO17)
    assert pose.keypoints[3:6].tolist() == [[0, 0]] * 3
    assert pose.confidence[2:8].tolist() == pytest.approx([0.3, 0, 0, 0, 0, 1])


def test_without_confidence_every_joint_that_was_found_counts() -> None:
    assert FramePoses.from_arrays([walker(0)]).confidence.tolist() == [[1.0] * 17]


def test_a_frame_without_ids_asks_for_a_tracker() -> None:
    frame = FramePoses.from_arrays([walker(0)])
    with pytest.raises(DataError, match="expected an id for each of 1 people, got none"):
        frame.poses()
    assert [pose.track_id for pose in frame.poses(Tracker())] == [1]
    for nobody in (FramePoses.from_arrays([]), FramePoses.from_arrays(np.empty((0, 0, 2)))):
        assert nobody.poses() == nobody.poses(Tracker()) == []


def test_the_box_of_a_person_is_around_the_joints_that_were_found() -> None:
    joints = walker(0)
    joints[0] = 0
    low, high = joints[1:].min(axis=0), joints[1:].max(axis=0)
    (corners,) = FramePoses.from_arrays([joints]).people().boxes.corners.tolist()
    assert corners == pytest.approx([*low, *(high + 1)])
    assert len(FramePoses.from_arrays(np.zeros((2, 17, 2))).people()) == 0


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({"keypoints": walker(0)}, r"keypoints must have shape \(N, V, 2\), got \(17, 2\)"),
        ({"confidence": [0.5] * 17}, r"confidence must have shape \(1, 17\), got \(17,\)"),
        ({"ids": [1, 2]}, r"ids must have shape \(1,\), got \(2,\)"),
        ({"boxes": [1, 2, 3, 4]}, r"boxes must have shape \(1, 4\), got \(4,\)"),
    ],
)
def test_arrays_of_other_shapes_are_refused(arrays: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        FramePoses.from_arrays(**{"keypoints": [walker(0)]} | arrays)


def test_frames_with_ids_become_a_clip_of_these_tracks() -> None:
    frames = [FramePoses.from_arrays([walker(n), walker(n, 400)], ids=[3, 9]) for n in range(5)]
    frames[2] = FramePoses.from_arrays([walker(2)])  # a frame in which nobody was tracked
    clip = clip_from_frames(frames, "door", fps=25)
    assert [track.id for track in clip.tracks] == [3, 9]
    assert clip.tracks[1].frames.tolist() == [0, 1, 3, 4]
    assert (clip.name, clip.fps, clip.n_frames, clip.skeleton) == ("door", 25, 5, COCO17)
    np.testing.assert_allclose(clip.tracks[1].keypoints[3], walker(4, 400), rtol=1e-6)


def test_frames_without_ids_are_tracked() -> None:
    frames = [FramePoses.from_arrays([walker(n), walker(n, 400)]) for n in range(30)]
    clip = clip_from_frames(frames, "door", fps=25)
    assert [len(track) for track in clip.tracks] == [30, 30]
    np.testing.assert_allclose(clip.tracks[0].keypoints[29], walker(29), rtol=1e-6)
    given = clip_from_frames(frames, "door", tracker=Tracker(new_score=1.1))
    assert given.tracks == ()


def test_frames_of_two_skeletons_make_no_clip() -> None:
    frames = [FramePoses.from_arrays([walker(0)]), FramePoses.from_arrays(np.ones((1, 26, 2)))]
    with pytest.raises(DataError, match="expected poses of one skeleton, got coco17 and halpe26"):
        clip_from_frames(frames, "door")
    assert clip_from_frames([FramePoses.from_arrays([])], "door").tracks == ()


@pytest.mark.parametrize(("joints", "skeleton"), [(25, BODY25), (18, STEP18), (5, of_size(5))])
def test_a_frame_of_openpose_has_the_skeleton_of_its_size(joints: int, skeleton: Any) -> None:
    frame = json_poses.from_openpose(openpose(3, joints=joints))
    assert (frame.skeleton, frame.ids) == (skeleton, None)
    assert frame.keypoints[0, 1].tolist() == [112, 59]
    assert frame.confidence.tolist() == [pytest.approx([0.9] * joints)]
    assert len(json_poses.from_openpose({"people": []})) == 0


def test_ids_of_openpose_are_used_where_it_tracked() -> None:
    assert json_poses.from_openpose(openpose(0, person_id=6)).poses()[0].track_id == 6


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, [], {}, {"people": 3}, {"people": [{}]}, {"people": [[]]}),
        {"people": [{"pose_keypoints_2d": [1, 2]}]},
        {"people": [{"pose_keypoints_2d": ["a", 1, 2]}]},
        {"people": [{"pose_keypoints_2d": [1] * 3}, {"pose_keypoints_2d": [1] * 6}]},
    ],
    ids=repr,
)
def test_what_openpose_did_not_write_is_refused(wrong: Any) -> None:
    with pytest.raises(DataError, match="expected people, each with x, y and confidence"):
        json_poses.from_openpose(wrong)


def test_a_summary_of_ultralytics_is_read_with_ids_and_without() -> None:
    frame = interop.from_ultralytics([summary(2, track_id=5)])
    np.testing.assert_allclose(frame.poses()[0].keypoints, walker(2), rtol=1e-6)
    assert frame.poses()[0].track_id == 5
    assert frame.confidence[0, 0] == pytest.approx(0.8)
    assert frame.scores.tolist() == pytest.approx([0.9])
    assert interop.from_ultralytics([summary(2), summary(3, track_id=1)]).ids is None
    assert len(interop.from_ultralytics([])) == 0


@pytest.mark.parametrize("wrong", [[{}], [3], [summary(0) | {"keypoints": {"x": [1]}}]], ids=str)
def test_a_summary_without_keypoints_is_refused(wrong: Any) -> None:
    with pytest.raises(DataError, match="expected people with keypoints, box and confidence"):
        interop.from_ultralytics(wrong)


def test_a_result_without_keypoints_is_refused() -> None:
    with pytest.raises(DataError, match="expected a result with keypoints, got object without"):
        interop.from_ultralytics(object())


def test_predictions_of_the_inferencer_of_mmpose_are_read() -> None:
    person = {
        "keypoints": walker(1).tolist(),
        "keypoint_scores": [0.7] * 17,
        "bbox": ([90.0, 40, 150, 160],),
        "bbox_score": 0.95,
    }
    for given in ({"predictions": [[person]]}, [[person]], [person]):
        frame = interop.from_mmpose(given)
        np.testing.assert_allclose(frame.keypoints[0], walker(1), rtol=1e-6)
        assert frame.boxes.tolist() == [[90, 40, 150, 160]]
        assert (frame.ids, frame.scores.tolist()) == (None, [pytest.approx(0.95)])
    assert interop.from_mmpose([person | {"track_id": 3}]).poses()[0].track_id == 3
    assert len(interop.from_mmpose({"predictions": [[]]})) == 0


def test_results_of_rtmlib_are_read() -> None:
    joints = np.arange(2 * 26 * 2).reshape(2, 26, 2) + 1.0
    frame = interop.from_rtmlib(joints, np.full((2, 26), 1.3), ids=[1, 2])
    assert (frame.skeleton, len(frame.poses())) == (HALPE26, 2)
    assert frame.confidence.max() == 1
