"""How alike tracked people and detections are: overlap, pose, motion and size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.video.glitches import LastGood
from stepvad.video.motion import BoxMotion
from stepvad.video.people import Float32s, People, iou, pose_overlap

LOST_S = 0.35
"""A person not seen for longer is lost, and taken up again only if place, size and pose agree."""
POSE, MOTION, SIZE, UNSEEN = 0.2, 0.015, 0.6, 0.2
"""Weights beside the overlap of boxes: pose overlap, squared deviation from the predicted place,
squared log ratio of the sizes, seconds unseen. Fitted to who is who in `vtest.avi`, first half."""
LEAST, LEAST_SPREAD, LEAST_LOST = 0.4, 2.0, -0.1
"""Least likeness of a person who stands still, its decrease by uncertainty, and its lower bound."""
LEAST_ALONE = 0.05
"""Least likeness if nobody else comes into question."""
MOST_DEVIATION, MOST_DEVIATION_LOST = 6.0, 2.5
"""Largest deviation from the predicted place, in standard deviations."""
MOST_DISTANCE = 1.0
"""Largest distance from the predicted place, in body heights."""
MOST_GROWTH, MOST_GROWTH_LOST = 0.7, 0.35
"""Largest log ratio of the sizes, the square roots of the boxes' areas."""
LOW_PENALTY = 0.1
"""Additional likeness required of a detection with a low score."""

ONE_BODY, ONE_POSE = 0.45, 0.6
"""Shared part of the smaller of two boxes, or overlap of poses, from which both may be of one
body."""


@dataclass(slots=True, eq=False)
class Person:
    """State of one tracked person; `time_s`, the box and the joints are of the last sighting."""

    motion: BoxMotion
    corners: Float32s
    keypoints: Float32s
    confidence: Float32s
    time_s: float
    track_id: int | None = None
    """None until seen twice."""
    good: LastGood | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Likeness:
    """Likeness `(N, M)` of N persons and M detections, and the pairs that may be the same."""

    values: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    known: NDArray[np.bool_]
    """Persons with a track id, `(N,)`."""
    unseen_s: NDArray[np.float64]
    lost: NDArray[np.bool_]


def likeness(
    persons: Sequence[Person], people: People, high: NDArray[np.bool_], now: float, dt: float
) -> Likeness:
    """Compare persons, predicted to time `now`, with the detections of a frame.

    `high` marks detections with a high score: others only continue tracks that are not lost.
    """
    shape = len(persons), len(people)
    unseen_s = np.array([now - person.time_s for person in persons])
    known = np.array([person.track_id is not None for person in persons], np.bool_)
    lost = unseen_s > max(LOST_S, 1.5 * dt)
    if 0 in shape:
        return Likeness(np.zeros(shape), np.zeros(shape, np.bool_), known, unseen_s, lost)
    boxes = np.array([person.motion.corners() for person in persons])
    spread = np.array([person.motion.spread for person in persons])[:, None]
    centre, sides = _centre(boxes), boxes[:, 2:] - boxes[:, :2]
    height = sides.max(axis=1)
    seen = people.boxes.corners
    distance = np.linalg.norm(centre[:, None] - _centre(seen)[None], axis=2) / height[:, None]
    growth = np.abs(np.log(_size(seen)[None] / _size(boxes)[:, None]))
    values = (
        iou(boxes, seen)
        + POSE * pose_overlap(_moved(persons, centre), _joints(people), height)
        - MOTION * (distance / spread) ** 2
        - SIZE * growth**2
        - UNSEEN * unseen_s[:, None]
    )
    allowed = (
        (distance < spread * np.where(lost, MOST_DEVIATION_LOST, MOST_DEVIATION)[:, None])
        & (distance < MOST_DISTANCE)
        & (growth < np.where(lost, MOST_GROWTH_LOST, MOST_GROWTH)[:, None])
        & (values > _least(values, spread, known, high) + np.where(high, 0, LOW_PENALTY))
        & (high[None] | (known & ~lost)[:, None])
    )
    return Likeness(values, allowed, known, unseen_s, lost)


def twins(people: People) -> NDArray[np.bool_]:
    """Pairs of detections that may be of one body, `(M, M)`: by their poses or their boxes."""
    boxes = people.boxes.corners
    height = np.maximum(boxes[:, 2:] - boxes[:, :2], 1).max(axis=1, initial=1.0)
    overlap, area = iou(boxes, boxes), np.square(_size(boxes))
    shared = overlap / (1 + overlap) * (area[:, None] + area[None])
    same = shared > ONE_BODY * np.minimum(area[:, None], area[None])
    same |= pose_overlap(_joints(people), _joints(people), height) > ONE_POSE
    np.fill_diagonal(same, val=False)
    return np.asarray(same)


def _least(
    values: NDArray[np.float64],
    spread: NDArray[np.float64],
    known: NDArray[np.bool_],
    high: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The likeness required: more where others come into question."""
    near = values > LEAST_ALONE
    persons, detections = near & known[:, None], near & high[None]
    others = persons.sum(axis=0) - persons + detections.sum(axis=1)[:, None] - detections
    least = LEAST - LEAST_SPREAD * spread
    return np.maximum(np.where(others > 0, least, np.minimum(least, LEAST_ALONE)), LEAST_LOST)


def _moved(persons: Sequence[Person], centre: Float32s) -> tuple[Float32s, Float32s]:
    """Joints of the last sighting, moved to the predicted place."""
    moved = centre - _centre(np.array([person.corners for person in persons]))
    keypoints = np.array([person.keypoints for person in persons]) + moved[:, None]
    return keypoints, np.array([person.confidence for person in persons])


def _joints(people: People) -> tuple[Float32s, Float32s]:
    return people.keypoints, people.confidence


def _centre(boxes: Float32s) -> Float32s:
    return np.asarray((boxes[:, :2] + boxes[:, 2:]) / 2, np.float32)


def _size(boxes: Float32s) -> Float32s:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 1)
    return np.asarray(np.sqrt(sides[:, 0] * sides[:, 1]), np.float32)
