"""People of a frame as other packages give them, made into poses; none of them is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad import skeletons
from stepvad.errors import DataError
from stepvad.poses import Clip, Pose, tracks_of
from stepvad.skeletons import Skeleton
from stepvad.video.people import Boxes, People
from stepvad.video.tracker import Tracker

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


MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""Errors of reading a document as something that it is not."""


@dataclass(frozen=True, slots=True, eq=False)
class FramePoses:
    """The people of one frame, with ids or without; made by `of` or from a package's results.

    Keypoints `(N, V, 2)` are in pixels, confidence is `(N, V)`. A joint that was not found is at
    (0, 0) with confidence 0. Boxes `(N, 4)` and their scores `(N,)` help a tracker.
    """

    keypoints: NDArray[np.float32]
    confidence: NDArray[np.float32]
    ids: NDArray[Any] | None
    boxes: NDArray[np.float32]
    scores: NDArray[np.float32]
    skeleton: Skeleton

    @classmethod
    def of(
        cls,
        keypoints: ArrayLike,
        confidence: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        boxes: ArrayLike | None = None,
        scores: ArrayLike | None = None,
        skeleton: Skeleton | None = None,
    ) -> FramePoses:
        """Arrays, lists or tensors of one frame; joints at (0, 0) or NaN were not found.

        Without confidence all other joints count as seen, without boxes the extent of the joints
        is taken, and without a skeleton the known one with as many joints.
        """
        xy = _joints(keypoints)
        n, joints = xy.shape[:2]
        lost = ~np.isfinite(xy).all(axis=2) | (xy == 0).all(axis=2)
        xy = np.where(lost[..., None], np.float32(0), xy)
        sure = np.ones((n, joints), np.float32)
        if confidence is not None:
            given = _rows("confidence", confidence, (n, joints)).astype(np.float32)
            sure = np.clip(np.nan_to_num(given, nan=0.0), 0, 1)
        sure[lost] = 0
        corners = _extents(xy, sure > 0) if boxes is None else _rows("boxes", boxes, (n, 4))
        rated = np.ones(n) if scores is None else _rows("scores", scores, (n,))
        return cls(
            xy,
            sure,
            None if ids is None else _rows("ids", ids, (n,)),
            corners.astype(np.float32),
            rated.astype(np.float32),
            skeleton or skeletons.of_size(joints),
        )

    def __len__(self) -> int:
        """Number of people."""
        return len(self.keypoints)

    def poses(self, tracker: Tracker | None = None, *, time_s: float | None = None) -> list[Pose]:
        """Poses for a `Stream`: with the ids of the frame, or with those that a tracker gives.

        `time_s` is the time of the frame for the tracker. One tracker serves one camera.
        """
        if tracker is not None:
            return tracker.update(self.people(), time_s=time_s)
        if self.ids is None:
            if not len(self):
                return []
            raise DataError(
                f"expected an id for each of {len(self)} people, got none",
                hint="run a tracker in your pipeline, or give one: poses(Tracker())",
            )
        rows = zip(self.ids, self.keypoints, self.confidence, strict=True)
        return [Pose(track_id, keypoints, confidence) for track_id, keypoints, confidence in rows]

    def people(self) -> People:
        """The people with at least one joint, for a tracker."""
        some = (self.confidence > 0).any(axis=1)
        boxes = Boxes(self.boxes[some], self.scores[some])
        return People(boxes, self.keypoints[some], self.confidence[some])


def from_ultralytics(result: Any) -> FramePoses:
    """One `Results` of an ultralytics pose model, or its `summary()`; track ids if it has them."""
    if isinstance(result, list):
        return _from_summary(result)
    if getattr(result, "keypoints", None) is None:
        raise DataError(
            f"expected a result with keypoints, got {type(result).__name__} without",
            hint="use a pose model, such as yolo11n-pose",
        )
    joints, boxes = result.keypoints, result.boxes
    return FramePoses.of(joints.xy, joints.conf, ids=boxes.id, boxes=boxes.xyxy, scores=boxes.conf)


def from_supervision(key_points: Any, *, ids: ArrayLike | None = None) -> FramePoses:
    """One `KeyPoints` of supervision; `ids` or its data `tracker_id` say who is who."""
    new = hasattr(key_points, "keypoint_confidence")
    confidence = key_points.keypoint_confidence if new else key_points.confidence
    ids = key_points.data.get("tracker_id") if ids is None else ids
    scores = getattr(key_points, "detection_confidence", None)
    return FramePoses.of(key_points.xy, confidence, ids=ids, scores=scores)


def from_rtmlib(
    keypoints: ArrayLike, scores: ArrayLike, *, ids: ArrayLike | None = None
) -> FramePoses:
    """What the models of rtmlib return: keypoints `(N, V, 2)` and their scores `(N, V)`."""
    return FramePoses.of(keypoints, scores, ids=ids)


def from_mmpose(result: Any) -> FramePoses:
    """A `PoseDataSample` of MMPose, or the predictions of its inferencer for one image."""
    found = getattr(result, "pred_instances", None)
    if found is not None:
        return FramePoses.of(
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
    return FramePoses.of(marks[..., :2] * (width, height), marks[..., 2])


def from_openpose(document: Any) -> FramePoses:
    """The parsed JSON that OpenPose writes for one frame; BODY_25 or its 18 joints of COCO."""
    try:
        people = document["people"]
        joints = np.array([np.reshape(p["pose_keypoints_2d"], (-1, 3)) for p in people], np.float64)
        ids = [int(person.get("person_id", [-1])[0]) for person in people]
    except MALFORMED as error:
        raise DataError(
            "expected people, each with x, y and confidence of the same joints under "
            "pose_keypoints_2d, got something else",
            hint="give what OpenPose writes with --write_json",
        ) from error
    if not people:
        return FramePoses.of([])
    tracked = min(ids) >= 0  # -1: OpenPose did not track
    return FramePoses.of(joints[..., :2], joints[..., 2], ids=ids if tracked else None)


def clip_from_frames(
    frames: Iterable[FramePoses],
    name: str,
    *,
    fps: float | None = None,
    tracker: Tracker | None = None,
) -> Clip:
    """A clip from the people of consecutive frames.

    If any frame has ids, people without one are left out. Otherwise they are tracked, by the given
    tracker or a new one.
    """
    frames = list(frames)
    skeleton = _one_skeleton(frames, name)
    if tracker is None and not any(frame.ids is not None for frame in frames):
        tracker = Tracker()
    rows = []
    for number, frame in enumerate(frames):
        if tracker is not None:
            poses = frame.poses(tracker, time_s=number / fps if fps else None)
        else:
            poses = [] if frame.ids is None else frame.poses()
        rows += [(pose.track_id, number, pose.keypoints, pose.confidence) for pose in poses]
    tracks = tracks_of(*(np.array(column) for column in zip(*rows, strict=True))) if rows else ()
    return Clip(name, fps, len(frames), tracks, skeleton)


def _one_skeleton(frames: Sequence[FramePoses], name: str) -> Skeleton:
    """The skeleton of all frames with people; COCO-17 if there are none."""
    kinds = {frame.skeleton for frame in frames if len(frame)} or {skeletons.COCO17}
    if len(kinds) > 1:
        raise DataError(
            f"clip {name}: expected poses of one skeleton, got "
            f"{' and '.join(sorted(kind.name for kind in kinds))}",
            hint="make one clip from the frames of one model",
        )
    return kinds.pop()


def _from_people(people: Sequence[Mapping[str, Any]]) -> FramePoses:
    """People as dictionaries, as MMPose's inferencer gives them."""

    def column(key: str) -> list[Any] | None:
        return [one[key] for one in people] if people and key in people[0] else None

    boxes = column("bbox")
    return FramePoses.of(
        column("keypoints") or [],
        column("keypoint_scores"),
        ids=column("track_id"),
        boxes=None if boxes is None else [np.ravel(box)[:4] for box in boxes],
        scores=column("bbox_score"),
    )


def _from_summary(people: Sequence[Mapping[str, Any]]) -> FramePoses:
    """People as ultralytics' `summary()` and `to_json()` give them."""
    try:
        joints = [one["keypoints"] for one in people]
        xy = np.array([(some["x"], some["y"]) for some in joints], np.float64).swapaxes(1, 2)
        seen = [some.get("visible", np.ones(len(some["x"]))) for some in joints]
        boxes = [[one["box"][side] for side in ("x1", "y1", "x2", "y2")] for one in people]
        scores = [one["confidence"] for one in people]
        tracked = all("track_id" in one for one in people)
        ids = [one["track_id"] for one in people] if tracked else None
        return FramePoses.of(xy, seen, ids=ids, boxes=boxes, scores=scores)
    except MALFORMED as error:
        if not people:
            return FramePoses.of([])
        raise DataError(
            "expected people with keypoints, box and confidence, got something else",
            hint="give what result.summary() of a pose model returns",
        ) from error


def _array(values: Any) -> NDArray[Any]:
    """An array from an array, a list, or a tensor on any device."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values)


def _joints(keypoints: ArrayLike) -> NDArray[Any]:
    """Keypoints `(N, V, 2)`; nobody is an empty array of any shape."""
    with np.errstate(over="ignore"):  # what is too large counts as not found
        xy = _array(keypoints).astype(np.float32)
    if xy.ndim == 3 and xy.shape[1] and xy.shape[2] == 2:
        return xy
    if xy.size:
        raise DataError(
            f"keypoints must have shape (N, V, 2), got {xy.shape}",
            hint="give x and y of every joint of every person",
        )
    return np.empty((0, skeletons.COCO17.V, 2), np.float32)


def _rows(name: str, given: ArrayLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """One row for each person; nobody is an empty array of any shape."""
    values = _array(given)
    if values.shape != shape and (values.size or shape[0]):
        raise DataError(
            f"{name} must have shape {shape}, got {values.shape}", hint="give one row per person"
        )
    return values.reshape(shape)


def _extents(keypoints: NDArray[np.float32], seen: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Corners `(N, 4)` around the joints that were seen."""
    low = np.where(seen[..., None], keypoints, np.inf).min(axis=1, initial=np.inf)
    high = np.where(seen[..., None], keypoints, -np.inf).max(axis=1, initial=-np.inf)
    return np.concatenate([low, high + 1], axis=1).astype(np.float32)
