"""Follow people whom the detector loses, and keep each to their own body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.people import (
    NOBODY,
    Boxes,
    Float32s,
    LastPoses,
    People,
    best_pairs,
    centres,
    extents,
    heights,
    iou,
    join,
    pose_overlap,
)
from stepvad.video.estimators import PoseEstimator
from stepvad.video.source import Image

REACH = 1.2
"""Sides of the box in which a person is looked for, relative to those of the last pose."""
WIDENING = 0.5
"""Growth of the box per second unseen."""
FIRST_SCORE = 0.5
"""Detection score from which a person is followed; a tracker starts no track below."""
FIRST_DETECTIONS = 2
"""Detections from which a person is followed; what a detector sees once may be a mistake."""
FARTHEST = 0.5
"""Largest movement of the middle of a pose, in diagonals of the person's pose."""
SMALLEST, LARGEST = 0.4, 1.8
"""Limits of a pose's diagonal, relative to the size of the person."""
SHRINKING = 0.3
"""Share of a person's size that may be lost in a second, such as by walking away."""
SAME_POSE = 0.15
"""Mean distance of joints, in diagonals, below which two poses are of one person."""
SAME_PLACE = 0.7
"""Overlap of two poses above which they are of one person: of two, one would be hidden."""
LEAST_SCORE, MORE_SCORE = 0.5, 0.04
"""Score of a followed box, and what full confidence adds: it continues tracks and starts none."""
BOX_MARGIN = 1.2
"""Sides of a followed box relative to those of its pose, as a detector's boxes have them."""
PATIENCE_S = 1.0
"""Time for which a person is looked for since they were last seen."""
LONGEST_S = 20.0
"""Time for which a person is followed without any detection, unless the pose is sure."""
SURE_CONFIDENCE = 0.45

LEAST_CONFIDENCE = 0.25
"""Mean joint confidence of a pose that counts."""
SAME_BODY = 0.6
"""Overlap of poses from which they are of one body."""
LEAST_INSIDE = 0.2
"""Share of the joints in their own box below which a pose is of somebody outside."""
SURROUNDINGS = 0.05
"""Surroundings of a box that remain at the second look, in heights of the box."""


def detect_and_recover(
    estimator: PoseEstimator, images: Sequence[Image], last: Sequence[LastPoses]
) -> list[People]:
    """Find the people in every image: those detected, then those followed from their last pose."""
    found = estimator.estimate(images, estimator.detect(images))
    return recover(estimator, images, found, last)


def recover(
    estimator: PoseEstimator,
    images: Sequence[Image],
    found: Sequence[People],
    last: Sequence[LastPoses],
) -> list[People]:
    """The people found with their own poses, and those lost from detection at their last pose."""
    found = keep_to_own_body(estimator, images, found)
    # people whom the detector lost, by image: a second look around their last pose
    lost = [_lost(poses, people) for poses, people in zip(last, found, strict=True)]
    rows = [row for row, poses in enumerate(lost) if len(poses)]
    if rows:
        regions = [grown(lost[row].corners, REACH) for row in rows]
        boxes = [Boxes(corners, np.zeros(len(corners), np.float32)) for corners in regions]
        again = estimator.estimate([images[row] for row in rows], boxes)
        for row, people in zip(rows, again, strict=True):
            found[row] = join(found[row], _continued(people, lost[row], found[row]))
    return found


class Follower:
    """Remembers the last poses of the people of one source.

    Its state depends on the people of the frames so far and on nothing else, so stored frames
    restore it.
    """

    def __init__(self) -> None:
        self._known: list[_Known] = []
        self._time_s = -np.inf
        self._view: tuple[int, ...] = ()

    def last_poses(self, moment: Moment) -> LastPoses:
        """The people to look for in a frame of this moment."""
        known = [one for one in self._recent(moment) if one.detections >= FIRST_DETECTIONS]
        return _last_poses(known, moment.time_s)

    @property
    def has_newcomers(self) -> bool:
        """Somebody of the last frame was detected there for the first time."""
        latest = [one for one in self._known if one.seen_s == self._time_s]
        return any(one.detections < FIRST_DETECTIONS for one in latest)

    def update(self, moment: Moment, people: People) -> None:
        """Remember the people of a frame."""
        # sure poses continue the people known so far
        people = people.select(people.certain(LEAST_CONFIDENCE))
        corners, sure = extents(people.keypoints), people.certain(SURE_CONFIDENCE)
        known, now_s = self._recent(moment), moment.time_s
        owners = {row: known[at] for at, row in _pairs(_last_poses(known, now_s), corners)}
        for row, one in owners.items():
            one.corners, one.seen_s, one.is_sure = corners[row], now_s, bool(sure[row])
        # detections confirm people, or introduce new ones
        sizes = diagonals(corners)
        for row in np.flatnonzero(~people.boxes.followed).tolist():
            if row in owners:
                one = owners[row]
                # whoever bends or crouches is no smaller, and stretches again when falling
                kept = one.diagonal * (1 - SHRINKING * min(now_s - one.detected_s, 1.0))
                one.diagonal, one.detected_s = max(float(sizes[row]), kept), now_s
                one.detections += 1
            elif people.boxes.scores[row] >= FIRST_SCORE:
                known.append(_Known(corners[row], float(sizes[row]), now_s, now_s))
        self._known = [one for one in known if one.is_sure or now_s - one.detected_s < LONGEST_S]
        self._time_s, self._view = now_s, moment.view

    def _recent(self, moment: Moment) -> list[_Known]:
        # nobody is in the same place after a new connection or another size
        if moment.view != self._view:
            return []
        return [one for one in self._known if 0 <= moment.time_s - one.seen_s <= PATIENCE_S]


@dataclass(frozen=True, slots=True)
class Moment:
    """Time of a frame, in seconds of any clock, and its view.

    Frames of another view, such as a new connection or another size, have nothing in common.
    """

    time_s: float
    view: tuple[int, ...] = ()


def keep_to_own_body(
    estimator: PoseEstimator, images: Sequence[Image], found: Sequence[People]
) -> list[People]:
    """The people with their own poses; one that is found on others only has confidence 0.

    A pose on a neighbour's body is estimated again from the box alone, the rest of the picture
    being black.
    """
    # rows of borrowed poses by image, and the box of each
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
    # how well each pose fits its own box, (N,), and how alike poses are, (N, N)
    fit = np.diagonal(iou(extents(people.keypoints), boxes))
    joints = people.keypoints, people.confidence
    overlap = pose_overlap(joints, joints, heights(boxes))
    same = (np.maximum(overlap, overlap.T) > SAME_BODY) & sure[None] & (fit[None] > fit[:, None])
    return np.asarray(sure & (same.any(axis=1) | (_inside(people) < LEAST_INSIDE)))


@dataclass(slots=True)
class _Known:
    """A person seen lately: last pose, size, and when they were seen and detected."""

    corners: Float32s
    diagonal: float
    seen_s: float
    detected_s: float
    detections: int = 1
    is_sure: bool = True


def _last_poses(known: Sequence[_Known], now_s: float) -> LastPoses:
    """Boxes in which people may be by now."""
    if not known:
        return NOBODY
    # boxes (N, 4) around the last poses, the larger the longer they were not seen
    unseen_s = np.array([now_s - one.seen_s for one in known], np.float32)
    corners = grown(np.stack([one.corners for one in known]), 1 + WIDENING * unseen_s)
    return LastPoses(corners, np.array([one.diagonal for one in known], np.float32))


def _lost(last: LastPoses, people: People) -> LastPoses:
    """The people of whom no detected pose is a continuation."""
    # the rows of `last` that no sure pose continues
    certain = people.select(people.certain(LEAST_CONFIDENCE))
    found = [at for at, _ in _pairs(last, extents(certain.keypoints))]
    return last.select(np.setdiff1d(np.arange(len(last)), found))


def _continued(candidates: People, lost: LastPoses, detected: People) -> People:
    """The candidates that continue a lost person and are nobody else."""
    candidates = candidates.select(candidates.certain(LEAST_CONFIDENCE))
    # the surest first: a pose that is there already is not added
    rows = [row for _, row in _pairs(lost, extents(candidates.keypoints))]
    others = list(detected.keypoints[detected.certain(LEAST_CONFIDENCE)])
    kept: list[int] = []
    for row in sorted(rows, key=lambda row: -candidates.confidence[row].mean()):
        pose = candidates.keypoints[row]
        if not _is_among(pose, others):
            kept.append(row)
            others.append(pose)
    # boxes like a detector's, with scores that continue tracks and start none
    people = candidates.select(np.array(sorted(kept), np.int64))
    corners = grown(extents(people.keypoints), BOX_MARGIN)
    scores = LEAST_SCORE + MORE_SCORE * people.confidence.mean(axis=1).clip(0, 1)
    boxes = Boxes(corners, scores, np.ones(len(people), np.bool_))
    return People(boxes, people.keypoints, people.confidence)


def _is_among(pose: Float32s, others: Sequence[Float32s]) -> bool:
    """Tell if a pose `(V, 2)` shows the same person as one of the others."""
    if not others:
        return False
    # overlap of the boxes and mean distance of the joints, (n,) each
    corners, poses = extents(pose[None]), np.stack(others)
    overlap = iou(corners, extents(poses))
    distance = np.linalg.norm(poses - pose, axis=2).mean(axis=1) / diagonals(corners)[0]
    return bool((overlap > SAME_PLACE).any() or (distance < SAME_POSE).any())


def _pairs(last: LastPoses, corners: Float32s) -> list[tuple[int, int]]:
    """Pair last poses with poses that may continue them, the nearest first."""
    if not (len(last) and len(corners)):
        return []
    # distance and growth of every pair, (N, M), in sizes of the person
    step = centres(last.corners)[:, None] - centres(corners)[None]
    distance = np.linalg.norm(step, axis=2) / last.diagonals[:, None]
    growth = diagonals(corners)[None] / last.diagonals[:, None]
    near = (distance <= FARTHEST) & (growth >= SMALLEST) & (growth <= LARGEST)
    # the nearest pairs altogether, then those of them that are near at all
    worth = np.where(near, 2 * FARTHEST - distance, 0)
    return [(row, column) for row, column in best_pairs(worth) if near[row, column]]


def grown(corners: Float32s, ratio: float | Float32s) -> Float32s:
    """Boxes with the same middles and larger sides, by one ratio or one for each."""
    # a ratio for each box, (N, 1)
    ratios = np.broadcast_to(np.asarray(ratio, np.float32), len(corners))[:, None]
    middle, half = centres(corners), ratios * (corners[:, 2:] - corners[:, :2]) / 2
    return np.asarray(np.concatenate([middle - half, middle + half], axis=1), np.float32)


def diagonals(corners: Float32s) -> Float32s:
    """Diagonals of boxes, `(N,)`: at least 1 pixel."""
    sides = corners[:, 2:] - corners[:, :2]
    return np.asarray(np.maximum(np.linalg.norm(sides, axis=1), 1), np.float32)


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
        # the box with a margin, cut out of the picture
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
    # borrowed poses count for nothing until a second look finds their own
    keypoints, confidence = people.keypoints.copy(), people.confidence.copy()
    confidence[[*rows]] = 0
    for row, one in zip(rows, again, strict=True):
        if len(one):
            keypoints[row], confidence[row] = one.keypoints[0], one.confidence[0]
    corrected = People(people.boxes, keypoints, confidence)
    # a second look may take the neighbour again
    still = on_neighbour(corrected)
    corrected.confidence[still] = 0
    return corrected
