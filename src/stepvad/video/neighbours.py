"""Poses that lie on a neighbour's body: found, looked for again, and otherwise left out.

A pose network takes the most visible person of a crop, who may be the one beside.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepvad.video.people import Boxes, Float32s, People, extents, iou, pose_overlap
from stepvad.video.pixels import Image
from stepvad.video.pose import PoseEstimator

LEAST_CONFIDENCE = 0.25
"""Mean joint confidence of a pose that counts."""
SAME_POSE = 0.6
"""Overlap of poses from which they are of one body."""
LEAST_INSIDE = 0.2
"""Share of the joints in their own box below which a pose is of somebody outside."""
SURROUNDINGS = 0.05
"""What remains of the picture around a box at the second look, in heights of the box."""


def keep_to_own_body(
    estimator: PoseEstimator, images: Sequence[Image], found: Sequence[People]
) -> list[People]:
    """The people with their own poses; one that is found on others only has confidence 0.

    A pose on a neighbour's body is estimated again from the box alone, the rest of the picture
    being black.
    """
    rows = [np.flatnonzero(on_neighbour(people)).tolist() for people in found]
    owners = [at for at, some in enumerate(rows) for _ in some]
    if not owners:
        return [*found]
    corners = [found[at].boxes.corners[row] for at, some in enumerate(rows) for row in some]
    again = iter(_alone(estimator, [images[at] for at in owners], corners))
    return [
        _corrected(people, some, [next(again) for _ in some])
        for people, some in zip(found, rows, strict=True)
    ]


def on_neighbour(people: People) -> NDArray[np.bool_]:
    """Mask `(N,)` of sure poses on the body of another person, whose box they fit better."""
    boxes, sure = people.boxes.corners, people.certain(LEAST_CONFIDENCE)
    fit = np.diagonal(iou(extents(people.keypoints), boxes))
    height = np.maximum(boxes[:, 2:] - boxes[:, :2], 1).max(axis=1, initial=1.0)
    joints = people.keypoints, people.confidence
    overlap = pose_overlap(joints, joints, height)
    same = (np.maximum(overlap, overlap.T) > SAME_POSE) & sure[None] & (fit[None] > fit[:, None])
    return np.asarray(sure & (same.any(axis=1) | (_inside(people) < LEAST_INSIDE)))


def _inside(people: People) -> Float32s:
    """Share of the joints in their own box, `(N,)`."""
    low, high = people.boxes.corners[:, None, :2], people.boxes.corners[:, None, 2:]
    within = ((people.keypoints >= low) & (people.keypoints <= high)).all(axis=2)
    return within.mean(axis=1, dtype=np.float32)


def _alone(
    estimator: PoseEstimator, images: Sequence[Image], corners: Sequence[Float32s]
) -> list[People]:
    """The person of every box, seen without the rest of the picture."""
    pieces, boxes, offsets = [], [], []
    for image, box in zip(images, corners, strict=True):
        margin = SURROUNDINGS * (box[3] - box[1])
        low = np.maximum(np.floor(box[:2] - margin), 0).astype(int)
        high = np.maximum(np.ceil(box[2:] + margin).astype(int), low + 1)
        pieces.append(np.ascontiguousarray(image[low[1] : high[1], low[0] : high[0]]))
        offsets.append(np.tile(low, 2).astype(np.float32))
        boxes.append(Boxes((box - offsets[-1])[None], np.ones(1, np.float32)))
    return [
        People(some.boxes, some.keypoints + by[:2], some.confidence)
        for some, by in zip(estimator.estimate(pieces, boxes), offsets, strict=True)
    ]


def _corrected(people: People, rows: Sequence[int], again: Sequence[People]) -> People:
    """The people with the poses of a second look, as far as they are nobody else's."""
    if not rows:
        return people
    keypoints, confidence = people.keypoints.copy(), people.confidence.copy()
    confidence[[*rows]] = 0
    for row, one in zip(rows, again, strict=True):
        if len(one):
            keypoints[row], confidence[row] = one.keypoints[0], one.confidence[0]
    corrected = People(people.boxes, keypoints, confidence)
    still = on_neighbour(corrected)
    corrected.confidence[still] = 0
    return corrected
