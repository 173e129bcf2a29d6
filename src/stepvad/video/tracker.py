"""Track people from frame to frame; where it is not clear who is who, tracks end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from stepvad.poses import Pose
from stepvad.video.association import Likeness, Person, likeness, twins
from stepvad.video.glitches import LastGood
from stepvad.video.motion import BoxMotion
from stepvad.video.people import People

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


class Tracker:
    """Assigns track ids to the people of one source; use one tracker per source.

    Each frame, persons and detections are paired to the largest sum of likenesses. One box that
    may be of two people gets no id, and both are predicted, for up to `SHARED_S`; if it is then
    still not clear, both tracks end. So do tracks that could as well be swapped, and a track whose
    box splits in two. Detections from `new_score` start a track, which a second sighting must
    confirm; those below `high_score` only continue one. Who was not seen for `patience_s` is
    forgotten.
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

    def update(self, people: People, *, time_s: float | None = None) -> list[Pose]:
        """Match the people of the next frame; return the tracked poses in the given order.

        Poses out of line with those before them are left out; their people stay known.
        `time_s` is the time of the frame by any clock; without it, frames are `FRAME_S` apart.
        """
        first = self._now is None
        now, dt = self._advance(time_s)
        likely = likeness(self._persons, people, people.boxes.scores >= self._high_score, now, dt)
        pairs = _pairs(likely)
        taken = list(pairs.values())
        free = people.boxes.scores >= self._new_score
        free[taken] = False
        apart = ~twins(people) if free.any() else np.ones((len(people), len(people)), np.bool_)
        shared = _shared(likely, pairs)
        doubted = _swapped(likely, pairs) | _split(likely, pairs, free, apart)
        owner = {row: self._persons[at] for at, row in pairs.items() if row not in shared}
        for row, rivals in shared.items():
            if likely.unseen_s[rivals[0]] >= SHARED_S:
                owner[row] = self._persons[rivals[0]]
                doubted |= set(rivals)
        self._see_all(people, owner, doubted)
        for row in np.flatnonzero(free).tolist():
            if apart[row, taken].all():
                owner[row] = self._begin(people, row, confirmed=first)
        return [
            Pose(person.track_id, people.keypoints[row], people.confidence[row])
            for row, person in sorted(owner.items(), key=lambda item: item[0])
            if person.track_id is not None and self._is_good(person)
        ]

    def _advance(self, time_s: float | None) -> tuple[float, float]:
        """Predict everybody for the next frame; return its time, and that since the last one."""
        before = self._now or 0.0
        now = before + FRAME_S if time_s is None else time_s
        dt = 0.0 if self._now is None else max(now - before, 0.0)
        self._now = now
        self._forget(now, dt)
        for person in self._persons:
            person.motion.predict(dt)
        return now, dt

    def _see_all(self, people: People, owner: dict[int, Person], doubted: set[int]) -> None:
        """Update those seen; doubted people get a new id if they were, and are dropped if not."""
        for at in doubted:
            self._persons[at].track_id = self._persons[at].good = None
        for row, person in owner.items():
            self._see(person, people, row)
        gone = [self._persons[at] for at in doubted if self._persons[at].track_id is None]
        self._persons = [person for person in self._persons if person not in gone]

    def reset(self) -> None:
        """Drop all tracks, for example after a lost connection; ids are never reused."""
        self._persons = []
        self._now = None

    def _see(self, person: Person, people: People, row: int) -> None:
        person.corners = people.boxes.corners[row]
        person.motion.correct(person.corners)
        person.keypoints, person.confidence = people.keypoints[row], people.confidence[row]
        person.time_s = self._now or 0.0
        if person.track_id is None:
            person.track_id = self._new_id()

    def _is_good(self, person: Person) -> bool:
        """Whether the pose of a person just seen is in line with those before."""
        now = self._now or 0.0
        if person.good is None:
            person.good = LastGood(person.keypoints, now)
            return True
        return person.good.accepts(person.keypoints, now)

    def _begin(self, people: People, row: int, *, confirmed: bool) -> Person:
        """Start a track; people in the very first frame need no confirmation."""
        corners = people.boxes.corners[row]
        joints = people.keypoints[row], people.confidence[row]
        person = Person(BoxMotion(corners), corners, *joints, self._now or 0.0)
        person.track_id = self._new_id() if confirmed else None
        self._persons.append(person)
        return person

    def _forget(self, now: float, dt: float) -> None:
        newcomer_s = min(max(CONFIRM_S, 1.5 * dt), self._patience_s)
        self._persons = [
            person
            for person in self._persons
            if now - person.time_s <= (newcomer_s if person.track_id is None else self._patience_s)
        ]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


def _pairs(likely: Likeness) -> Pairs:
    """Pair persons and detections to the largest sum of likenesses."""
    worth = np.where(likely.allowed, likely.values + 2, 0)  # more pairs come before better ones
    persons, rows = linear_sum_assignment(worth, maximize=True)
    pairs = zip(persons.tolist(), rows.tolist(), strict=True)
    return {at: row for at, row in pairs if likely.allowed[at, row]}


def _shared(likely: Likeness, pairs: Pairs) -> dict[int, list[int]]:
    """Detections that may be of another, missing person: its person, then the others."""
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
    at, rows = np.array(list(pairs), np.int64), np.array(list(pairs.values()), np.int64)
    values, allowed = likely.values[np.ix_(at, rows)], likely.allowed[np.ix_(at, rows)]
    own = np.diag(values)
    close = own[:, None] + own[None] - values - values.T < CLEAR_SWAP
    both = likely.known[at][:, None] & likely.known[at][None]
    close &= allowed & allowed.T & both & ~np.eye(len(at), dtype=np.bool_)
    return set(at[close.any(axis=1)].tolist())


def _rivals(values: NDArray[np.float64], own: float) -> NDArray[np.bool_]:
    return np.asarray((values > RIVAL) & (own - values < CLEAR))
