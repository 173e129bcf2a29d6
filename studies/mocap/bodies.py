"""COCO-17 joints of a captured body, and their occlusion by bodies."""

from __future__ import annotations

import numpy as np

from stepvad.skeletons import COCO17
from studies.mocap.motions import (
    ANKLES,
    ELBOWS,
    HEAD,
    HIP_JOINTS,
    HIPS,
    KNEES,
    NECK,
    SHOULDERS,
    WRISTS,
    Float64s,
)
from studies.mocap.truth import Mask

EYES_M = (0.10, 0.08, 0.033)
"""Offset of an eye from the base of the head: forward, up, sideways."""
NOSE_M = (0.12, 0.045, 0.0)
EAR_M = (0.01, 0.06, 0.075)
TRUNK_M, TRUNK_DEEP_M = 0.17, 0.12
"""Half the width of a trunk, and how far behind its axis a joint must be to be occluded."""


def coco17(joints: Float64s) -> Float64s:
    """COCO-17 joints `(n, 17, 3)` from captured joints `(n, 15, 3)`.

    The face is derived from head and arms.
    """
    forward, across, up = head_axes(joints)
    head = joints[:, HEAD]

    def at(offset: tuple[float, float, float], side: int) -> Float64s:
        return head + offset[0] * forward + offset[1] * up + side * offset[2] * across

    face = [at(NOSE_M, 0), at(EYES_M, 1), at(EYES_M, -1), at(EAR_M, 1), at(EAR_M, -1)]
    body = joints[:, [*SHOULDERS, *ELBOWS, *WRISTS, *HIP_JOINTS, *KNEES, *ANKLES]]
    return np.concatenate([np.stack(face, axis=1), body], axis=1)


def head_axes(joints: Float64s) -> tuple[Float64s, Float64s, Float64s]:
    """Forward, left and up unit vectors of the head, each `(n, 3)`."""
    left = joints[:, SHOULDERS[0]] - joints[:, SHOULDERS[1]]
    up = _unit(joints[:, HEAD] - joints[:, NECK])
    across = _unit(left - (left * up).sum(axis=1, keepdims=True) * up)
    return np.cross(across, up), across, up


def faces_away(joints: Float64s, eye: Float64s) -> Mask:
    """Mask `(n, 17)` of face joints on the side of the head hidden from the camera at `eye`."""
    forward, across, _ = head_axes(joints)
    to_camera = _unit(eye - joints[:, HEAD])
    ahead = (forward * to_camera).sum(axis=1)
    left = (across * to_camera).sum(axis=1)
    hidden = np.zeros((len(joints), COCO17.V), dtype=np.bool_)
    hidden[:, 0] = ahead < -0.1
    hidden[:, 1], hidden[:, 2] = ahead + 0.5 * left < -0.05, ahead - 0.5 * left < -0.05
    hidden[:, 3], hidden[:, 4] = left < -0.35, left > 0.35
    return hidden


def behind_trunk(points: Float64s, depth: Float64s, trunk: Float64s, trunk_depth: Float64s) -> Mask:
    """Mask `(n, V)` of the points `(n, V, 2)` at `depth (n, V)` that lie behind a trunk.

    `trunk (n, 2, 2)` are its upper and lower end, `trunk_depth (n, 2)` their depths. Points are
    pixels divided by the focal length, so an offset times the depth is in metres.
    """
    top, axis = trunk[:, :1], trunk[:, 1:] - trunk[:, :1]
    length = np.maximum((axis**2).sum(axis=-1), 1e-12)
    along = np.clip(((points - top) * axis).sum(axis=-1) / length, 0, 1)  # (n, V)
    off = np.linalg.norm(points - top - along[..., None] * axis, axis=-1)
    axis_depth = trunk_depth[:, :1] + along * (trunk_depth[:, 1:] - trunk_depth[:, :1])
    return (off * axis_depth < TRUNK_M) & (depth > axis_depth + TRUNK_DEEP_M)


def trunk_of(joints: Float64s) -> Float64s:
    """Upper and lower end of a trunk, `(n, 2, 3)`: between the shoulders, and above the knees."""
    lower = 0.5 * joints[:, HIPS] + 0.5 * joints[:, KNEES].mean(axis=1)
    return np.stack([joints[:, SHOULDERS].mean(axis=1), lower], axis=1)


def _unit(vectors: Float64s) -> Float64s:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
