"""Captured joints become COCO-17 with a face, and bodies hide what is behind them."""

from __future__ import annotations

import numpy as np

from stepvad.evaluation.mocap import bodies
from stepvad.skeletons import COCO17
from tests.evaluation.mocap.people import index, standing


def joint(coco: np.ndarray[tuple[int, ...], np.dtype[np.float64]], name: str) -> list[float]:
    return coco[0, COCO17.joints.index(name)].tolist()


def test_joints_keep_their_place_and_side() -> None:
    joints = standing(1)
    coco = bodies.coco17(joints)
    for name, captured in (
        ("left_shoulder", "LeftArm"),
        ("right_elbow", "RightForeArm"),
        ("left_wrist", "LeftHand"),
        ("right_hip", "RightUpLeg"),
        ("left_knee", "LeftLeg"),
        ("right_ankle", "RightFoot"),
    ):
        assert joint(coco, name) == joints[0, index(captured)].tolist()


def test_the_face_looks_ahead_and_has_its_left_on_the_left() -> None:
    coco = bodies.coco17(standing(1))  # faces along +x, +y is to the left
    nose, left_eye, right_eye = (joint(coco, n) for n in ("nose", "left_eye", "right_eye"))
    left_ear = joint(coco, "left_ear")
    assert nose[0] > left_eye[0] > left_ear[0]
    assert left_eye[1] > nose[1] > right_eye[1]
    assert left_ear[1] > left_eye[1]
    assert left_eye[2] > nose[2] > 1.5


def test_a_face_is_seen_from_ahead_and_not_from_behind() -> None:
    joints = standing(1)
    ahead, behind = np.array([10.0, 0.0, 1.5]), np.array([-10.0, 0.0, 1.5])
    assert not bodies.faces_away(joints, ahead)[0, :5].any()
    assert bodies.faces_away(joints, behind)[0, :3].all()
    assert not bodies.faces_away(joints, behind)[0, 5:].any()


def test_from_the_left_the_right_ear_is_hidden() -> None:
    hidden = bodies.faces_away(standing(1), np.array([0.0, 10.0, 1.5]))[0]
    assert not hidden[COCO17.joints.index("left_ear")]
    assert hidden[COCO17.joints.index("right_ear")]


def test_a_trunk_hides_what_is_behind_it() -> None:
    trunk = np.array([[[0.0, 0.0], [0.0, 0.2]]])  # seen at 5 m, one metre long
    depth = np.array([[5.0, 5.0]])
    points = np.array([[[0.0, 0.1], [0.0, 0.1], [0.05, 0.1], [0.0, 0.3]]])
    behind = bodies.behind_trunk(points, np.array([[6.0, 4.0, 6.0, 6.0]]), trunk, depth)
    assert behind.tolist() == [[True, False, False, False]]
