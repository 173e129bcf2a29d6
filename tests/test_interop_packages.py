"""People as the real packages give them; each test is skipped unless its package is installed.

None of them is a dependency, and ultralytics, under the AGPL, must not become one. They run in an
environment of their own, which leaves torch and OpenCV as they are:

    python -m venv packages && packages/bin/pip install --upgrade pip
    packages/bin/pip install torch==2.13.0
    packages/bin/pip install --group test -e '.[all]' supervision tqdm addict termcolor yapf
    packages/bin/pip install --no-deps rtmlib mediapipe ultralytics torchvision
    packages/bin/pip install --no-deps mmengine mmpose mmcv-lite pyod numba llvmlite
    packages/bin/pytest tests/test_interop_packages.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepvad import Clip, interop, tracker
from stepvad.skeletons import COCO17, HALPE26, MEDIAPIPE33, WHOLEBODY133
from stepvad.tracker import Tracker
from tests.test_interop import walker

pytestmark = pytest.mark.filterwarnings("ignore")  # of the packages


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


def ultralytics_result(frame: int, *, track_id: int | None = 7, people: int = 1) -> Any:
    torch = package("torch")
    results = package("ultralytics.engine.results")
    joints = np.concatenate([walker(frame), np.full((17, 1), 0.8)], axis=1)
    joints[4] = (0, 0, 0.3)
    box = [90.0, 40, 200, 180, *([] if track_id is None else [float(track_id)]), 0.9, 0]
    return results.Results(
        np.zeros((480, 640, 3), np.uint8),
        "lobby.jpg",
        {0: "person"},
        boxes=torch.tensor([box])[:people],
        keypoints=torch.tensor(joints[None], dtype=torch.float32)[:people],
    )


def test_results_of_ultralytics_have_its_ids() -> None:
    frame = interop.from_ultralytics(ultralytics_result(3))
    (pose,) = frame.poses()
    assert (pose.track_id, type(pose.track_id), frame.skeleton) == (7, int, COCO17)
    np.testing.assert_allclose(pose.keypoints[5:], walker(3)[5:], rtol=1e-6)
    assert pose.confidence[4:6].tolist() == pytest.approx([0, 0.8])
    assert frame.boxes.tolist() == [[90, 40, 200, 180]]
    frames = [interop.from_ultralytics(ultralytics_result(n, people=int(n != 2))) for n in range(5)]
    (track,) = tracker.clip_from_frames(frames, "lobby", fps=25).tracks
    assert (track.id, track.frames.tolist()) == (7, [0, 1, 3, 4])


def test_results_of_ultralytics_without_ids_are_tracked() -> None:
    results = [ultralytics_result(n, track_id=None) for n in range(20)]
    clip = tracker.clip_from_frames(map(interop.from_ultralytics, results), "lobby", fps=25)
    assert [len(track) for track in clip.tracks] == [20]


def test_a_summary_of_ultralytics_is_its_result() -> None:
    result = ultralytics_result(3)
    frame, again = interop.from_ultralytics(result), interop.from_ultralytics(result.summary())
    np.testing.assert_allclose(again.keypoints, frame.keypoints, atol=1e-4)
    np.testing.assert_allclose(again.confidence, frame.confidence, atol=1e-4)
    assert again.poses()[0].track_id == 7


def test_key_points_of_supervision_are_read() -> None:
    sv = package("supervision")
    confidence = np.full((2, 17), 0.8, np.float32)
    joints = np.array([walker(0), walker(0, 300)], np.float32)
    key_points = sv.KeyPoints(
        xy=joints, keypoint_confidence=confidence, data={"tracker_id": np.array([4, 9])}
    )
    assert [pose.track_id for pose in interop.from_supervision(key_points).poses()] == [4, 9]
    frame = interop.from_supervision(key_points, ids=[1, 2])
    assert [pose.track_id for pose in frame.poses()] == [1, 2]
    np.testing.assert_array_equal(frame.keypoints, joints)
    np.testing.assert_array_equal(frame.confidence, confidence)
    bare = interop.from_supervision(sv.KeyPoints(xy=joints))
    assert (bare.ids, bare.confidence.min()) == (None, 1)
    assert len(interop.from_supervision(sv.KeyPoints.empty())) == 0


def test_landmarks_of_mediapipe_become_pixels() -> None:
    vision = package("mediapipe.tasks.python.vision")
    landmark = package("mediapipe.tasks.python.components.containers.landmark")
    marks = [
        landmark.NormalizedLandmark(x=(n + 1) / 40, y=0.5, z=0.0, visibility=0.6) for n in range(33)
    ]
    result = vision.PoseLandmarkerResult(pose_landmarks=[marks], pose_world_landmarks=[])
    frame = interop.from_mediapipe(result, width=640, height=480)
    assert frame.skeleton == MEDIAPIPE33
    assert frame.keypoints[0, 3].tolist() == pytest.approx([64, 240])
    assert len(frame.poses(Tracker())) == 1
    empty = vision.PoseLandmarkerResult(pose_landmarks=[], pose_world_landmarks=[])
    assert len(interop.from_mediapipe(empty, width=640, height=480)) == 0
    names = [member.name.lower() for member in vision.PoseLandmark]
    assert names == [*MEDIAPIPE33.joints]


@pytest.mark.parametrize(("name", "skeleton"), [("halpe26", HALPE26), ("coco133", WHOLEBODY133)])
def test_skeletons_of_rtmlib_have_our_joints_in_our_order(name: str, skeleton: Any) -> None:
    known = getattr(package(f"rtmlib.visualization.skeleton.{name}"), name)
    theirs = [known["keypoint_info"][number]["name"] for number in range(skeleton.V)]
    plain = [joint.replace("-", "").replace("_", "") for joint in theirs]
    assert plain == [joint.replace("_", "") for joint in skeleton.joints]


def test_samples_of_mmpose_are_read() -> None:
    structures = package("mmpose.structures")
    instances = package("mmengine.structures")
    found = instances.InstanceData(
        keypoints=walker(2)[None],
        keypoint_scores=np.full((1, 17), 0.7),
        bboxes=np.array([[90.0, 40, 200, 180]]),
        bbox_scores=np.array([0.9]),
    )
    frame = interop.from_mmpose(structures.PoseDataSample(pred_instances=found))
    np.testing.assert_allclose(frame.keypoints[0], walker(2), rtol=1e-6)
    assert frame.boxes.tolist() == [[90, 40, 200, 180]]
    assert (frame.ids, frame.scores.tolist()) == (None, [pytest.approx(0.9)])


def test_windows_and_scores_go_with_detectors_of_pyod(walkers: list[Clip]) -> None:
    pytest.importorskip("torch")
    ecod = package("pyod.models.ecod")
    standardizer = package("pyod.utils.utility").standardizer
    estimators = package("stepvad.sklearn")
    pipeline = package("sklearn.pipeline").make_pipeline
    theirs = pipeline(estimators.MotionWindows(), ecod.ECOD()).fit(walkers)
    ours = pipeline(
        estimators.MotionWindows(), estimators.StepDetector(4, width=16, max_steps=4)
    ).fit(walkers)
    scores = np.stack([theirs.decision_function(walkers), -ours.score_samples(walkers)], axis=1)
    both = standardizer(scores).mean(axis=1)
    assert both.shape == (len(scores),)
    assert np.isfinite(both).all()
