"""The people before one camera, frame by frame: when to look, and where."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.people import (
    Boxes,
    Float32s,
    People,
    best_pairs,
    centres,
    extents,
    iou,
    join,
    no_boxes,
)
from stepvad.video.estimators import PoseEstimator
from stepvad.video.following import (
    BOX_MARGIN,
    LEAST_CONFIDENCE,
    PATIENCE_S,
    Follower,
    Moment,
    diagonals,
    grown,
    keep_to_own_body,
    recover,
)
from stepvad.video.gate import Gate, Looks
from stepvad.video.source import Image

DETECTED_S = 0.3
"""Time between detections while people move."""
LONGEST_STEP_S = 0.25
"""Longest time between two frames for which boxes are carried from one to the next."""
STILL_S = 1.0
"""Longest time for which somebody who does not move keeps a pose."""
CLOSE = 0.08
"""Overlap of two boxes from which people may be mistaken for each other: they are detected."""
MOST_STEP, MOST_GROWTH = 0.5, 1.8
"""Largest step of a carried pose from where it was expected, in its diagonals, and largest growth
or inverse: what is more is another body."""
BOX_GROWTH, LEAST_FIT = 1.25, 0.25
"""Largest growth of a carried box in one step, and overlap with its pose below which it is lost."""
SMALLEST_SIDE = 8.0
"""Side of a pose, in pixels, below which its growth says nothing."""
SAME_BOX, SAME_PERSON = 0.5, 0.3
"""Overlap from which a detection is of a known person, and two looks are at one person."""
SAME_PLACE, NOBODY_CONFIDENCE, NOBODY_S = 0.85, 0.2, 1.0
"""Overlap with a detection whose pose was less sure than this: for a time, nobody is there."""


class Watch:
    """Looks at the frames of one camera; `asks` and `look` may run in two threads.

    Boxes are carried from frame to frame by the poses, and whoever does not move keeps a pose. The
    detector runs a few times a second, and at once where that may be wrong.
    """

    def __init__(self, estimator: PoseEstimator, rate: float) -> None:
        """`rate`: frames a second, at most."""
        self._estimator, self._tolerance_s = estimator, 0.5 / rate
        self._follower, self._phantoms = Follower(), _Phantoms()
        self._detected_s = -np.inf
        # what both threads use
        self._lock = threading.Lock()
        self._gate, self._looks = Gate(), Looks()
        self._seen, self._somebody_s = _nobody(), -np.inf
        self._stirred_s = -np.inf
        """When something else than the people moved last."""

    def asks(self, luma: NDArray[np.uint8], time_s: float) -> bool:
        """Tell if a frame is worth a look; if not, nobody is there."""
        with self._lock:
            moved = self._gate.moved(luma, self._seen.boxes_at(time_s), time_s)
            is_due = self._looks.due(moved, time_s)
            if moved and is_due:
                self._stirred_s = time_s
            return is_due or 0 <= time_s - self._somebody_s <= PATIENCE_S

    def look(self, image: Image, time_s: float, view: tuple[int, ...]) -> People:
        """The people in a frame; `view` changes with a new connection or another size."""
        moment = Moment(time_s, view)
        seen, still = self._known(moment)
        # whoever is still keeps the pose, and the others are carried unless a detection is due
        is_due = self._is_due(seen, still, moment)
        if is_due:
            people, held = seen.people.select(still), still
        else:
            people, held = self._carried(image, seen, still, moment)
        # whoever is new, or was lost
        if is_due or not held.all():
            people = self._detected(image, people, moment)
            is_due = True
        self._follower.update(moment, people)
        pose_s = np.where(still, seen.pose_s, time_s)[held]
        self._remember(people, pose_s, moment, is_due)
        return people

    def _known(self, moment: Moment) -> tuple[_Seen, NDArray[np.bool_]]:
        """The people seen last in this view, and who of them is still, `(N,)`."""
        with self._lock:
            seen, now_s = self._seen, moment.time_s
            if seen.view != moment.view or not 0 < now_s - seen.time_s <= PATIENCE_S:
                seen = _nobody()
            still = self._gate.still(seen.people.boxes.corners, seen.pose_s.tolist(), now_s)
            still &= now_s - seen.pose_s < STILL_S - self._tolerance_s
            return seen, still

    def _is_due(self, seen: _Seen, still: NDArray[np.bool_], moment: Moment) -> bool:
        """Tell if the people cannot be carried to this moment without a detection."""
        since_s = moment.time_s - self._detected_s + self._tolerance_s
        if not len(seen.people) or self._follower.has_newcomers:
            return True
        if still.all():
            stirred = self._detected_s < self._stirred_s <= moment.time_s + STILL_S
            return stirred or since_s >= STILL_S
        # boxes that overlap with that of somebody who moves, (N, N)
        boxes = seen.boxes_at(moment.time_s)
        close = (iou(boxes, boxes) > CLOSE) & ~np.eye(len(boxes), dtype=np.bool_) & ~still
        is_far = moment.time_s - seen.time_s > LONGEST_STEP_S
        return is_far or since_s >= DETECTED_S or bool(close.any())

    def _carried(
        self, image: Image, seen: _Seen, still: NDArray[np.bool_], moment: Moment
    ) -> tuple[People, NDArray[np.bool_]]:
        """The people in their carried boxes, and who of those seen last they are, `(N,)`."""
        was, rows = seen.people, np.flatnonzero(~still)
        boxes = seen.boxes_at(moment.time_s)
        # joints of those who may have moved; between detections they count as they did at the last
        asked = Boxes(boxes[rows], was.boxes.scores[rows])
        (found,) = self._estimator.estimate([image], [asked])
        keypoints, confidence = was.keypoints.copy(), was.confidence.copy()
        keypoints[rows], confidence[rows] = found.keypoints, found.confidence
        scores, followed = was.boxes.scores, was.boxes.followed
        people = People(Boxes(boxes, scores, followed), keypoints, confidence)
        (people,) = keep_to_own_body(self._estimator, [image], [people])
        # poses that continue those of before; their boxes move and grow with them
        before, after = extents(was.keypoints), extents(people.keypoints)
        moved = (boxes - was.boxes.corners)[:, :2]
        held = people.certain(LEAST_CONFIDENCE) & ~_jumped(before + np.tile(moved, 2), after)
        corners = _carried_boxes(was.boxes.corners, before, after)
        corners[still] = was.boxes.corners[still]
        height, width = image.shape[:2]
        corners = corners.clip(0, [width, height, width, height])
        held &= (corners[:, 2:] - corners[:, :2]).min(axis=1, initial=np.inf) >= 1
        people = People(Boxes(corners, scores, followed), people.keypoints, people.confidence)
        return people.select(held), held

    def _detected(self, image: Image, known: People, moment: Moment) -> People:
        """The known people, those detected beside them, and those lost from detection."""
        (boxes,) = self._estimator.detect([image])
        known, boxes = _confirmed(known, boxes)
        boxes = boxes.select(~self._phantoms.hold(boxes.corners, moment.time_s))
        (found,) = self._estimator.estimate([image], [boxes])
        self._phantoms.note(found, moment.time_s)
        last = self._follower.last_poses(moment)
        (people,) = recover(self._estimator, [image], [join(known, found)], [last])
        return people

    def _remember(
        self, people: People, pose_s: NDArray[np.float64], moment: Moment, detected: bool
    ) -> None:
        """Remember a look; `pose_s` are the times of the first poses, the others are of now."""
        times = np.full(len(people), moment.time_s)
        times[: len(pose_s)] = pose_s
        sure = people.certain(LEAST_CONFIDENCE)
        people = people.select(sure)
        with self._lock:
            speeds = self._seen.speeds_to(people, moment)
            self._seen = _Seen(moment.time_s, moment.view, people, speeds, times[sure])
            if len(people):
                self._somebody_s = moment.time_s
            if detected:
                self._detected_s = moment.time_s
                self._gate.explain(people.boxes.corners, moment.time_s)
                self._looks.looked(moment.time_s, len(people))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The people of the last look: boxes, poses, their speeds `(N, 2)` and times `(N,)`."""

    time_s: float
    view: tuple[int, ...]
    people: People
    speeds: Float32s
    pose_s: NDArray[np.float64]

    def boxes_at(self, time_s: float) -> Float32s:
        """Boxes `(N, 4)` in which the people are by then."""
        moved = self.speeds * np.clip(time_s - self.time_s, 0, LONGEST_STEP_S)
        return np.asarray(self.people.boxes.corners + np.tile(moved, 2), np.float32)

    def speeds_to(self, people: People, moment: Moment) -> Float32s:
        """Speeds of the people of a later look, in pixels a second, `(M, 2)`."""
        elapsed_s = moment.time_s - self.time_s
        if not (len(people) and len(self.people)) or not 0 < elapsed_s <= PATIENCE_S:
            return np.zeros((len(people), 2), np.float32)
        # who is who, by the largest overlap, (M,); averaged, since joints tremble
        overlap = iou(people.boxes.corners, self.boxes_at(moment.time_s))
        rows = overlap.argmax(axis=1)
        step = people.keypoints.mean(axis=1) - self.people.keypoints[rows].mean(axis=1)
        speeds = (step / elapsed_s + self.speeds[rows]) / 2
        known = overlap.max(axis=1) > SAME_PERSON
        return np.where(known[:, None], speeds, np.float32(0))


class _Phantoms:
    """Places where the detector sees somebody and the pose network nobody, such as a coat stand."""

    def __init__(self) -> None:
        self._corners, self._times = np.empty((0, 4), np.float32), np.empty(0)

    def hold(self, corners: Float32s, time_s: float) -> NDArray[np.bool_]:
        """Tell which boxes `(N,)` are at such a place."""
        recent = (time_s - NOBODY_S < self._times) & (self._times <= time_s)
        self._corners, self._times = self._corners[recent], self._times[recent]
        return np.asarray(iou(corners, self._corners).max(axis=1, initial=0) > SAME_PLACE)

    def note(self, found: People, time_s: float) -> None:
        """Note the boxes without a pose."""
        places = found.boxes.corners[~found.certain(NOBODY_CONFIDENCE)]
        self._corners = np.concatenate([self._corners, places])
        self._times = np.concatenate([self._times, np.full(len(places), time_s)])


def _nobody() -> _Seen:
    joints = np.empty((0, 17, 2), np.float32), np.empty((0, 17), np.float32)
    return _Seen(
        -np.inf, (), People(no_boxes(), *joints), np.empty((0, 2), np.float32), np.empty(0)
    )


def _confirmed(known: People, boxes: Boxes) -> tuple[People, Boxes]:
    """The known people with the boxes detected of them, and the boxes of others."""
    if not (len(known) and len(boxes)):
        return known, boxes
    overlap = iou(known.boxes.corners, boxes.corners)
    pairs = [(at, row) for at, row in best_pairs(overlap) if overlap[at, row] >= SAME_BOX]
    corners, scores = known.boxes.corners.copy(), known.boxes.scores.copy()
    followed = known.boxes.followed.copy()
    for at, row in pairs:
        corners[at], scores[at], followed[at] = boxes.corners[row], boxes.scores[row], False
    others = np.setdiff1d(np.arange(len(boxes)), [row for _, row in pairs])
    people = People(Boxes(corners, scores, followed), known.keypoints, known.confidence)
    return people, boxes.select(others)


def _jumped(before: Float32s, after: Float32s) -> NDArray[np.bool_]:
    """Tell which poses `(N,)`, by extents `(N, 4)`, are elsewhere or of another size."""
    size = diagonals(before)
    step = np.linalg.norm(centres(after) - centres(before), axis=1) / size
    growth = diagonals(after) / size
    return np.asarray((step > MOST_STEP) | (growth > MOST_GROWTH) | (growth < 1 / MOST_GROWTH))


def _carried_boxes(boxes: Float32s, before: Float32s, after: Float32s) -> Float32s:
    """Boxes `(N, 4)` that stay where they were relative to the poses, and grow with them."""
    sides = [np.maximum(some[:, 2:] - some[:, :2], SMALLEST_SIDE) for some in (before, after)]
    growth = np.clip(sides[1] / sides[0], 1 / BOX_GROWTH, BOX_GROWTH)
    middle = centres(after) + (centres(boxes) - centres(before)) * growth
    half = (boxes[:, 2:] - boxes[:, :2]) / 2 * growth
    carried = np.concatenate([middle - half, middle + half], axis=1)
    # a box that has come off its pose begins anew around it
    own = grown(after, BOX_MARGIN)
    lost = np.diagonal(iou(own, carried)) < LEAST_FIT
    return np.where(lost[:, None], own, carried)
