"""Track people: those of successive frames become persons with ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad import skeletons
from stepvad.errors import DataError
from stepvad.people import Boxes, Float32s, People, best_pairs, centres, heights, iou, pose_overlap
from stepvad.poses import Clip, Pose, tracks_of
from stepvad.skeletons import Skeleton
from stepvad.windows.body import Bodies, jumped

FRAME_S = 0.1
"""Time between frames if the caller does not give it."""
CONFIRM_S = 0.25
"""A newcomer must be seen again within this time, or in the next frame."""
SHARED_S = 0.8
"""Longest time for which two people are kept while one box may be of either."""
HIDDEN_S = 1.6
"""Time for which a missing person may be the one in another's box."""
CLEAR, CLEAR_SWAP = 0.3, 0.15
"""Least lead in likeness: over another person or box, and over a swap."""
RIVAL = 0.1
"""Likeness from which an unmatched person or box comes into question."""
Pairs = dict[int, int]
"""Rows of detections by position of the person."""

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

PLACE_NOISE = 0.05
"""Standard deviation of an observed centre, in body heights."""
FIRST_SPEED = 1.5
"""Standard deviation of the speed of a person seen once, in body heights per second."""
SPEED_CHANGE = 0.5
"""Standard deviation of the change of speed within a second, in body heights per second."""
PACE_CHANGE = 0.6
"""The same for each body height per second that the person moves already."""
SIZE_GAIN = 0.5
"""Share of an observed size that the estimate takes over."""

LONGEST_GLITCH_S = 0.4
"""Longest time that poses may be out of line; what lasts longer is the person's new shape."""
SMALLEST_BODY = 1.0
"""Size of a body, in pixels, below which its change says nothing."""


class Tracker:
    """Assigns track ids to the people of one source; use one tracker per source.

    Each frame, persons and detections are paired to the largest sum of likenesses. One box that
    may be of two people gets no id, and both are predicted, for up to `SHARED_S`; if it is then
    still not clear, both tracks end. So do tracks that could as well be swapped, and a track whose
    box splits in two. Detections from `new_score` start a track, which a second sighting must
    confirm; those below `high_score` only continue one. Who was not seen for `patience_s` is
    forgotten.

    Examples:
        >>> Tracker(patience_s=1.0)
        Tracker(persons=0, ids=0)
    """

    def __init__(
        self, *, high_score: float = 0.5, new_score: float = 0.55, patience_s: float = 3.0
    ) -> None:
        self._high_score = high_score
        self._new_score = new_score
        self._patience_s = patience_s
        self._persons: list[Person] = []
        self._next_id = 0
        self._now: float | None = None

    def __repr__(self) -> str:
        """The tracker in one line."""
        return f"Tracker(persons={len(self._persons)}, ids={self._next_id})"

    def update(self, people: People, *, time_s: float | None = None) -> list[Pose]:
        """Match the people of the next frame; return the tracked poses in the given order.

        Poses out of line with those before them are left out; their people stay known.
        `time_s` is the time of the frame by any clock; without it, frames are `FRAME_S` apart.
        """
        first = self._now is None
        now, dt = self._advance(time_s)
        # persons and detections, paired to the largest sum of likenesses
        likely = likeness(self._persons, people, people.boxes.scores >= self._high_score, now, dt)
        pairs = _pairs(likely)
        taken = list(pairs.values())
        # detections that may be of somebody new, (M,), apart from those that are of one body
        free = people.boxes.scores >= self._new_score
        free[taken] = False
        apart = ~twins(people) if free.any() else np.ones((len(people), len(people)), np.bool_)
        # boxes that may be of two people belong to nobody, or end both tracks if that lasts
        shared = _shared(likely, pairs)
        doubted = _swapped(likely, pairs) | _split(likely, pairs, free, apart)
        owner = {row: self._persons[at] for at, row in pairs.items() if row not in shared}
        for row, rivals in shared.items():
            if likely.unseen_s[rivals[0]] >= SHARED_S:
                owner[row] = self._persons[rivals[0]]
                doubted |= set(rivals)
        # those seen are updated, and new tracks begin
        self._update_persons(people, owner, doubted)
        for row in np.flatnonzero(free).tolist():
            if apart[row, taken].all():
                owner[row] = self._begin(people, row, confirmed=first)
        # people with an id whose poses are in line with those before
        return [
            Pose(person.track_id, people.keypoints[row], people.confidence[row])
            for row, person in sorted(owner.items(), key=lambda item: item[0])
            if person.track_id is not None and person.is_in_line(now)
        ]

    def reset(self) -> None:
        """Drop all tracks, for example after a lost connection; ids are never reused."""
        self._persons = []
        self._now = None

    def _advance(self, time_s: float | None) -> tuple[float, float]:
        """Predict everybody for the next frame; return its time, and that since the last one."""
        before = self._now or 0.0
        now = before + FRAME_S if time_s is None else time_s
        dt = 0.0 if self._now is None else max(now - before, 0.0)
        self._now = now
        # people unseen for too long are forgotten, newcomers sooner
        newcomer_s = min(max(CONFIRM_S, 1.5 * dt), self._patience_s)
        self._persons = [
            person
            for person in self._persons
            if now - person.time_s <= (newcomer_s if person.track_id is None else self._patience_s)
        ]
        for person in self._persons:
            person.motion.predict(dt)
        return now, dt

    def _update_persons(self, people: People, owner: dict[int, Person], doubted: set[int]) -> None:
        """Update those seen; doubted people get a new id if they were, and are dropped if not."""
        for at in doubted:
            self._persons[at].track_id = self._persons[at].good = None
        for row, person in owner.items():
            person.corners = people.boxes.corners[row]
            person.motion.correct(person.corners)
            person.keypoints, person.confidence = people.keypoints[row], people.confidence[row]
            person.time_s = self._now or 0.0
            if person.track_id is None:
                person.track_id = self._new_id()
        gone = [self._persons[at] for at in doubted if self._persons[at].track_id is None]
        self._persons = [person for person in self._persons if person not in gone]

    def _begin(self, people: People, row: int, *, confirmed: bool) -> Person:
        """Start a track; people in the very first frame need no confirmation."""
        corners = people.boxes.corners[row]
        joints = people.keypoints[row], people.confidence[row]
        person = Person(BoxMotion(corners), corners, *joints, self._now or 0.0)
        person.track_id = self._new_id() if confirmed else None
        self._persons.append(person)
        return person

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


@dataclass(frozen=True, slots=True, eq=False)
class FramePoses:
    """The people of one frame, with ids or without.

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
    def from_arrays(
        cls,
        keypoints: ArrayLike,
        confidence: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        boxes: ArrayLike | None = None,
        scores: ArrayLike | None = None,
    ) -> FramePoses:
        """Arrays, lists or tensors of one frame; joints at (0, 0) or NaN were not found.

        Without confidence all other joints count as seen, without boxes the extent of the joints
        is taken. The skeleton is the known one with as many joints.
        """
        # joints (N, V, 2), those that were not found at (0, 0) with confidence 0
        xy = _keypoints(keypoints)
        n, joints = xy.shape[:2]
        lost = ~np.isfinite(xy).all(axis=2) | (xy == 0).all(axis=2)
        xy = np.where(lost[..., None], np.float32(0), xy)
        sure = np.ones((n, joints), np.float32)
        if confidence is not None:
            given = _rows("confidence", confidence, (n, joints)).astype(np.float32)
            sure = np.clip(np.nan_to_num(given, nan=0.0), 0, 1)
        sure[lost] = 0
        # boxes (N, 4) and scores (N,), without which every joint and person counts alike
        if boxes is None:
            found = (sure > 0)[..., None]
            low = np.where(found, xy, np.inf).min(axis=1, initial=np.inf)
            high = np.where(found, xy, -np.inf).max(axis=1, initial=-np.inf)
            corners = np.concatenate([low, high + 1], axis=1)
        else:
            corners = _rows("boxes", boxes, (n, 4))
        rated = np.ones(n) if scores is None else _rows("scores", scores, (n,))
        return cls(
            xy,
            sure,
            None if ids is None else _rows("ids", ids, (n,)),
            corners.astype(np.float32),
            rated.astype(np.float32),
            skeletons.of_size(joints),
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
    # a row for each pose: track, frame, joints, confidence
    rows = []
    for number, frame in enumerate(frames):
        if tracker is not None:
            poses = frame.poses(tracker, time_s=number / fps if fps else None)
        else:
            poses = [] if frame.ids is None else frame.poses()
        rows += [(pose.track_id, number, pose.keypoints, pose.confidence) for pose in poses]
    tracks = tracks_of(*(np.array(column) for column in zip(*rows, strict=True))) if rows else ()
    return Clip(name, fps, len(frames), tracks, skeleton)


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

    def is_in_line(self, now: float) -> bool:
        """Tell if the pose of a person just seen is in line with those before."""
        if self.good is None:
            self.good = LastGood(self.keypoints, now)
            return True
        return self.good.accepts(self.keypoints, now)


@dataclass(frozen=True, slots=True, eq=False)
class Likeness:
    """Likeness `(N, M)` of N persons and M detections, and the pairs that may be the same."""

    values: NDArray[np.float64]
    allowed: NDArray[np.bool_]
    known: NDArray[np.bool_]
    """Persons with a track id, `(N,)`."""
    unseen_s: NDArray[np.float64]


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
        return Likeness(np.zeros(shape), np.zeros(shape, np.bool_), known, unseen_s)
    # predicted boxes, (N, 4), beside the detected ones, (M, 4)
    boxes = np.array([person.motion.corners() for person in persons])
    spread = np.array([person.motion.spread for person in persons])[:, None]
    centre, height = centres(boxes), heights(boxes)
    seen = people.boxes.corners
    # distance in body heights, growth as a logarithm, and the likeness of each pair, (N, M)
    distance = np.linalg.norm(centre[:, None] - centres(seen)[None], axis=2) / height[:, None]
    growth = np.abs(np.log(_sizes(seen)[None] / _sizes(boxes)[:, None]))
    values = (
        iou(boxes, seen)
        + POSE * pose_overlap(_moved(persons, centre), _joints(people), height)
        - MOTION * (distance / spread) ** 2
        - SIZE * growth**2
        - UNSEEN * unseen_s[:, None]
    )
    # pairs that may be the same at all: the longer unseen, the farther
    allowed = (
        (distance < spread * np.where(lost, MOST_DEVIATION_LOST, MOST_DEVIATION)[:, None])
        & (distance < MOST_DISTANCE)
        & (growth < np.where(lost, MOST_GROWTH_LOST, MOST_GROWTH)[:, None])
        & (values > _least(values, spread, known, high) + np.where(high, 0, LOW_PENALTY))
        & (high[None] | (known & ~lost)[:, None])
    )
    return Likeness(values, allowed, known, unseen_s)


def twins(people: People) -> NDArray[np.bool_]:
    """Pairs of detections that may be of one body, `(M, M)`: by their poses or their boxes."""
    boxes = people.boxes.corners
    # the area that two boxes share, from their overlap and areas, (M, M)
    overlap, area = iou(boxes, boxes), np.square(_sizes(boxes))
    shared = overlap / (1 + overlap) * (area[:, None] + area[None])
    same = shared > ONE_BODY * np.minimum(area[:, None], area[None])
    same |= pose_overlap(_joints(people), _joints(people), heights(boxes)) > ONE_POSE
    np.fill_diagonal(same, val=False)
    return np.asarray(same)


class BoxMotion:
    """Constant-velocity model of a box's centre; its sides are smoothed, and held while unseen.

    Both coordinates of the centre share their variances, which are in squared body heights.
    """

    def __init__(self, corners: Float32s) -> None:
        self._centre, self._sides = _centre_and_sides(corners)
        self._speed = np.zeros(2)
        self._var_place, self._cov, self._var_speed = PLACE_NOISE**2, 0.0, FIRST_SPEED**2

    def predict(self, dt: float) -> None:
        """Advance by `dt` seconds: the centre moves, and its uncertainty grows."""
        # a Kalman filter whose acceleration is noise, stronger for those who move already
        self._centre = self._centre + dt * self._speed
        pace = float(np.hypot(*self._speed)) / self._sides.max()
        q = (SPEED_CHANGE + PACE_CHANGE * pace) ** 2 * dt
        self._var_place += 2 * dt * self._cov + dt**2 * self._var_speed + q * dt**2 / 3
        self._cov += dt * self._var_speed + q * dt / 2
        self._var_speed += q

    def correct(self, corners: Float32s) -> None:
        """Update with an observed box."""
        # gains: how much of the deviation from the prediction place and speed take over
        centre, sides = _centre_and_sides(corners)
        certainty = self._var_place + PLACE_NOISE**2
        place_gain, speed_gain = self._var_place / certainty, self._cov / certainty
        self._speed = self._speed + speed_gain * (centre - self._centre)
        self._centre = self._centre + place_gain * (centre - self._centre)
        self._sides = self._sides + SIZE_GAIN * (sides - self._sides)
        self._var_speed -= speed_gain * self._cov
        self._cov *= 1 - place_gain
        self._var_place *= 1 - place_gain

    @property
    def spread(self) -> float:
        """Standard deviation of where the box will be seen, in body heights."""
        return float(np.sqrt(self._var_place + PLACE_NOISE**2))

    def corners(self) -> Float32s:
        """The estimated box: left, top, right, bottom."""
        half = self._sides / 2
        return np.concatenate([self._centre - half, self._centre + half]).astype(np.float32)


@dataclass(slots=True)
class LastGood:
    """The last pose of a track that was in line, and when it was."""

    keypoints: Float32s
    time_s: float

    def accepts(self, keypoints: Float32s, time_s: float) -> bool:
        """Tell if a later pose `(V, 2)` is in line; if so, it is the last good one from now on.

        A body that jumps or changes its size at once is not, for up to `LONGEST_GLITCH_S`.
        """
        apart_s = time_s - self.time_s
        if 0 <= apart_s <= LONGEST_GLITCH_S:
            size = Bodies.of_windows(self.keypoints[None, None]).size[0, 0]
            poses = self.keypoints[None], keypoints[None]
            if size >= SMALLEST_BODY and jumped(*poses, np.array([apart_s]))[0]:
                return False
        self.keypoints, self.time_s = keypoints, time_s
        return True


def _pairs(likely: Likeness) -> Pairs:
    """Pair persons and detections to the largest sum of likenesses."""
    worth = np.where(likely.allowed, likely.values + 2, 0)  # more pairs come before better ones
    return {at: row for at, row in best_pairs(worth) if likely.allowed[at, row]}


def _shared(likely: Likeness, pairs: Pairs) -> dict[int, list[int]]:
    """Detections that may be of another, missing person: its person, then the others."""
    # people with an id who are missing now, (N,)
    waiting = likely.known & (likely.unseen_s < HIDDEN_S)
    waiting[list(pairs)] = False
    shared = {}
    for at, row in pairs.items() if waiting.any() else ():
        others = _rivals(likely.values[:, row], likely.values[at, row]) & waiting
        if likely.known[at] and others.any():
            shared[row] = [at, *np.flatnonzero(others).tolist()]
    return shared


def _split(
    likely: Likeness, pairs: Pairs, free: NDArray[np.bool_], apart: NDArray[np.bool_]
) -> set[int]:
    """Persons to whom a free box, apart from their own, is nearly as like."""
    return {
        at
        for at, row in pairs.items()
        if free.any()
        and likely.known[at]
        and (_rivals(likely.values[at], likely.values[at, row]) & free & apart[row]).any()
    }


def _swapped(likely: Likeness, pairs: Pairs) -> set[int]:
    """Persons who could be swapped with another at little loss of likeness."""
    if likely.allowed.sum() == len(pairs):
        return set()
    # likeness of every person to every detection of the pairs, (pairs, pairs)
    at, rows = np.array(list(pairs), np.int64), np.array(list(pairs.values()), np.int64)
    values, allowed = likely.values[np.ix_(at, rows)], likely.allowed[np.ix_(at, rows)]
    # what two persons would lose by swapping their detections
    own = np.diag(values)
    close = own[:, None] + own[None] - values - values.T < CLEAR_SWAP
    both = likely.known[at][:, None] & likely.known[at][None]
    close &= allowed & allowed.T & both & ~np.eye(len(at), dtype=np.bool_)
    return set(at[close.any(axis=1)].tolist())


def _rivals(values: NDArray[np.float64], own: float) -> NDArray[np.bool_]:
    return np.asarray((values > RIVAL) & (own - values < CLEAR))


def _least(
    values: NDArray[np.float64],
    spread: NDArray[np.float64],
    known: NDArray[np.bool_],
    high: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """The likeness required: more where others come into question."""
    # how many others are near each pair, (N, M): persons to its detection, detections to its person
    near = values > LEAST_ALONE
    persons, detections = near & known[:, None], near & high[None]
    others = persons.sum(axis=0) - persons + detections.sum(axis=1)[:, None] - detections
    least = LEAST - LEAST_SPREAD * spread
    return np.maximum(np.where(others > 0, least, np.minimum(least, LEAST_ALONE)), LEAST_LOST)


def _moved(persons: Sequence[Person], centre: Float32s) -> tuple[Float32s, Float32s]:
    """Joints of the last sighting, moved to the predicted place."""
    moved = centre - centres(np.array([person.corners for person in persons]))
    keypoints = np.array([person.keypoints for person in persons]) + moved[:, None]
    return keypoints, np.array([person.confidence for person in persons])


def _joints(people: People) -> tuple[Float32s, Float32s]:
    return people.keypoints, people.confidence


def _sizes(boxes: Float32s) -> Float32s:
    sides = np.maximum(boxes[:, 2:] - boxes[:, :2], 1)
    return np.asarray(np.sqrt(sides[:, 0] * sides[:, 1]), np.float32)


def _centre_and_sides(corners: Float32s) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = corners[:2].astype(np.float64), corners[2:].astype(np.float64)
    return (low + high) / 2, np.maximum(high - low, 1.0)


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


def _array(values: Any) -> NDArray[Any]:
    """An array from an array, a list, or a tensor on any device."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values)


def _keypoints(keypoints: ArrayLike) -> NDArray[Any]:
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
