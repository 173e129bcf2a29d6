"""Boxes and joints of the people in one image, and how alike they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError

Float32s = NDArray[np.float32]
JOINT_SPREAD = 0.1
"""Distance at which a joint still resembles another, in body heights."""


@dataclass(frozen=True, slots=True, eq=False)
class People:
    """Boxes with joints: keypoints `(N, V, 2)` in pixels and their confidence `(N, V)`."""

    boxes: Boxes
    keypoints: Float32s
    confidence: Float32s

    def __post_init__(self) -> None:
        """Check shapes and numbers."""
        V = self.keypoints.shape[1] if self.keypoints.ndim == 3 else 17
        _set(self, "keypoints", (len(self.boxes), V, 2))
        _set(self, "confidence", (len(self.boxes), V))

    def __len__(self) -> int:
        """Number of people."""
        return len(self.boxes)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> People:
        """Some of them, in this order."""
        return People(self.boxes.select(rows), self.keypoints[rows], self.confidence[rows])

    def certain(self, least_confidence: float) -> NDArray[np.bool_]:
        """Mask `(N,)` of people whose mean joint confidence is at least `least_confidence`."""
        return np.asarray(self.confidence.mean(axis=1) >= least_confidence)


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Bounding boxes: corners `(N, 4)` as left, top, right, bottom in pixels, scores `(N,)`.

    `followed` `(N,)` marks boxes that come from a person's last pose and not from a detector.
    """

    corners: Float32s
    scores: Float32s
    followed: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    """Empty: none is."""

    def __post_init__(self) -> None:
        """Check shapes and numbers."""
        _set(self, "corners", (len(self.corners), 4))
        _set(self, "scores", (len(self.corners),))
        marks = np.asarray(self.followed, np.bool_)
        if not len(marks):
            marks = np.zeros(len(self), np.bool_)
        if marks.shape != (len(self),):
            raise DataError(
                f"followed must have shape {(len(self),)}, got {marks.shape}",
                hint="give one row per person",
            )
        object.__setattr__(self, "followed", marks)

    def __len__(self) -> int:
        """Number of people."""
        return len(self.corners)

    def select(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Boxes:
        """Some of them, in this order."""
        return Boxes(self.corners[rows], self.scores[rows], self.followed[rows])


@dataclass(frozen=True, slots=True, eq=False)
class LastPoses:
    """Regions to search for people: corners `(N, 4)` around their last poses, diagonals `(N,)`.

    The diagonal is that of the detected poses of late: the person's size.
    """

    corners: Float32s
    diagonals: Float32s

    def __len__(self) -> int:
        """Number of people."""
        return len(self.diagonals)

    def select(self, rows: NDArray[np.int64]) -> LastPoses:
        """Some of them, in this order."""
        return LastPoses(self.corners[rows], self.diagonals[rows])


NOBODY = LastPoses(np.empty((0, 4), np.float32), np.empty(0, np.float32))


def no_boxes() -> Boxes:
    """An empty set of boxes."""
    return Boxes(np.empty((0, 4), np.float32), np.empty(0, np.float32))


def join(first: People, second: People) -> People:
    """The people of both, in this order."""
    if not len(second):
        return first
    if not len(first):
        return second
    boxes = Boxes(
        np.concatenate([first.boxes.corners, second.boxes.corners]),
        np.concatenate([first.boxes.scores, second.boxes.scores]),
        np.concatenate([first.boxes.followed, second.boxes.followed]),
    )
    return People(
        boxes,
        np.concatenate([first.keypoints, second.keypoints]),
        np.concatenate([first.confidence, second.confidence]),
    )


def extents(keypoints: Float32s) -> Float32s:
    """Corners `(N, 4)` of poses `(N, V, 2)`."""
    return np.concatenate([keypoints.min(axis=1), keypoints.max(axis=1)], axis=1)


def centres(corners: Float32s) -> Float32s:
    """Middles `(N, 2)` of boxes."""
    return np.asarray((corners[:, :2] + corners[:, 2:]) / 2, np.float32)


def heights(corners: Float32s) -> Float32s:
    """Body heights `(N,)`: the longer sides of boxes, at least 1 pixel."""
    sides = np.maximum(corners[:, 2:] - corners[:, :2], 1)
    return np.asarray(sides.max(axis=1, initial=1), np.float32)


def iou(a: Float32s, b: Float32s) -> Float32s:
    """Overlap of boxes `(A, 4)` and `(B, 4)`: shared area over joint area, `(A, B)`."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    joint = _area(a)[:, None] + _area(b)[None] - shared
    return np.asarray(shared / np.maximum(joint, np.finfo(np.float32).tiny), np.float32)


def pose_overlap(
    a: tuple[Float32s, Float32s], b: tuple[Float32s, Float32s], heights: Float32s
) -> Float32s:
    """Object keypoint similarity of two sets of joints and confidences, `(A, B)`.

    Distances count in the body heights `(A,)` of the first set, joints by the lower confidence.
    """
    weight = np.clip(np.minimum(a[1][:, None], b[1][None]), 0.01, 1)
    apart = np.square(a[0][:, None] - b[0][None]).sum(axis=3)
    near = np.exp(-apart / (2 * np.square(JOINT_SPREAD * heights))[:, None, None])
    return np.asarray((weight * near).sum(axis=2) / weight.sum(axis=2), np.float32)


def best_pairs(worth: NDArray[np.floating]) -> list[tuple[int, int]]:
    """Pair the rows of `(N, M)` with its columns to the largest sum; min(N, M) pairs, by row.

    The Hungarian method: each row takes the shortest way to a free column, over columns whose
    rows move on. Minus infinity forbids a pair.
    """
    if len(worth) > worth.shape[1]:
        return sorted((row, column) for column, row in best_pairs(worth.T))
    cost: list[list[float]] = np.negative(worth).tolist()
    columns = range(worth.shape[1])
    price_of_row, price = [0.0] * len(cost), [0.0] * len(columns)
    owner, taken = [-1] * len(columns), [-1] * len(cost)
    for start in range(len(cost)):
        # the cheapest way from the new row to a free column, the nearest column first
        way, before = [math.inf] * len(columns), [start] * len(columns)
        left, passed, row, length = [*columns], [], start, 0.0
        while row >= 0:
            spent = length - price_of_row[row]
            for at in left:
                over = spent + cost[row][at] - price[at]
                if over < way[at]:
                    way[at], before[at] = over, row
            column = min(left, key=way.__getitem__)
            length = way[column]
            if not math.isfinite(length):
                raise ValueError("expected a pair for every row, got too many infinities or NaN")
            left.remove(column)
            passed.append(column)
            row = owner[column]
        # by these prices every pair made so far remains the best of its row
        price_of_row[start] += length
        for at in passed[:-1]:
            price_of_row[owner[at]] += length - way[at]
            price[at] -= length - way[at]
        # along the way back every row takes the column that it reached
        while column >= 0:
            row = before[column]
            owner[column], taken[row], column = row, column, taken[row]
    return [*enumerate(taken)]


def _area(boxes: Float32s) -> Float32s:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 0)
    return np.asarray(sides[:, 0] * sides[:, 1], np.float32)


def _set(value: Boxes | People, name: str, shape: tuple[int, ...]) -> None:
    array = np.ascontiguousarray(getattr(value, name), np.float32)
    if array.shape != shape:
        raise DataError(
            f"{name} must have shape {shape}, got {array.shape}", hint="give one row per person"
        )
    if not np.isfinite(array).all():
        raise DataError(
            f"{name}: expected finite numbers, got NaN or infinity", hint="leave such people out"
        )
    object.__setattr__(value, name, array)
