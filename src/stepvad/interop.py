"""People of a frame as other packages give them, made into poses; none of them is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stepvad.errors import DataError
from stepvad.formats.json_poses import from_openpose, from_summary
from stepvad.tracker import FramePoses, clip_from_frames

__all__ = [
    "FramePoses",
    "clip_from_frames",
    "from_mediapipe",
    "from_mmpose",
    "from_openpose",
    "from_rtmlib",
    "from_supervision",
    "from_ultralytics",
]


def from_ultralytics(result: Any) -> FramePoses:
    """One `Results` of an ultralytics pose model, or its `summary()`; track ids if it has them."""
    if isinstance(result, list):
        return from_summary(result)
    if getattr(result, "keypoints", None) is None:
        raise DataError(
            f"expected a result with keypoints, got {type(result).__name__} without",
            hint="use a pose model, such as yolo11n-pose",
        )
    joints, boxes = result.keypoints, result.boxes
    return FramePoses.from_arrays(
        joints.xy, joints.conf, ids=boxes.id, boxes=boxes.xyxy, scores=boxes.conf
    )


def from_supervision(key_points: Any, *, ids: ArrayLike | None = None) -> FramePoses:
    """One `KeyPoints` of supervision; `ids` or its data `tracker_id` say who is who."""
    new = hasattr(key_points, "keypoint_confidence")
    confidence = key_points.keypoint_confidence if new else key_points.confidence
    ids = key_points.data.get("tracker_id") if ids is None else ids
    scores = getattr(key_points, "detection_confidence", None)
    return FramePoses.from_arrays(key_points.xy, confidence, ids=ids, scores=scores)


def from_rtmlib(
    keypoints: ArrayLike, scores: ArrayLike, *, ids: ArrayLike | None = None
) -> FramePoses:
    """What the models of rtmlib return: keypoints `(N, V, 2)` and their scores `(N, V)`."""
    return FramePoses.from_arrays(keypoints, scores, ids=ids)


def from_mmpose(result: Any) -> FramePoses:
    """A `PoseDataSample` of MMPose, or the predictions of its inferencer for one image."""
    found = getattr(result, "pred_instances", None)
    if found is not None:
        return FramePoses.from_arrays(
            found.keypoints,
            found.keypoint_scores,
            ids=getattr(found, "track_ids", None),
            boxes=getattr(found, "bboxes", None),
            scores=getattr(found, "bbox_scores", None),
        )
    people = result["predictions"] if isinstance(result, Mapping) else result
    if len(people) == 1 and isinstance(people[0], list):  # the inferencer's one image
        people = people[0]
    return _from_people(people)


def from_mediapipe(result: Any, *, width: int, height: int) -> FramePoses:
    """The pose landmarks of MediaPipe, which are fractions of an image of this size."""
    found = result.pose_landmarks or []
    people = [found.landmark] if hasattr(found, "landmark") else found  # one person, formerly
    marks = np.array(
        [[(m.x, m.y, 1.0 if m.visibility is None else m.visibility) for m in p] for p in people]
    ).reshape(len(people), -1 if people else 33, 3)
    return FramePoses.from_arrays(marks[..., :2] * (width, height), marks[..., 2])


def _from_people(people: Sequence[Mapping[str, Any]]) -> FramePoses:
    """People as dictionaries, as MMPose's inferencer gives them."""

    def column(key: str) -> list[Any] | None:
        return [one[key] for one in people] if people and key in people[0] else None

    boxes = column("bbox")
    return FramePoses.from_arrays(
        column("keypoints") or [],
        column("keypoint_scores"),
        ids=column("track_id"),
        boxes=None if boxes is None else [np.ravel(box)[:4] for box in boxes],
        scores=column("bbox_score"),
    )
