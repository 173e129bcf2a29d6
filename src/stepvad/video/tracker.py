"""People followed from picture to picture, after ByteTrack (arXiv 2110.06864, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from stepvad.poses import Pose
from stepvad.video.motion import Motion
from stepvad.video.people import Floats, People, iou

Rows = NDArray[np.int64]


@dataclass(slots=True)
class _Person:
    """Somebody who is followed: how they move, how often and how lately they were seen."""

    motion: Motion
    track_id: int | None = None
    """None until seen in a second picture in a row."""
    unseen: int = 0


class Tracker:
    """Ids for the people of one source; every source has a tracker of its own.

    Boxes of a score from `high_score` are matched first, to everybody; the lower ones then, to
    those who were seen in the picture before: a person half hidden scores low but is still there.
    Boxes from `new_score` that match nobody begin a track, which counts once the next picture
    confirms it. Who is not seen for `patience` pictures is forgotten.
    """

    def __init__(
        self,
        *,
        high_score: float = 0.5,
        new_score: float = 0.55,
        least_overlap: float = 0.2,
        least_overlap_low: float = 0.5,
        least_overlap_new: float = 0.3,
        patience: int = 30,
    ) -> None:
        self._high_score = high_score
        self._new_score = new_score
        self._least_overlap = least_overlap
        self._least_overlap_low = least_overlap_low
        self._least_overlap_new = least_overlap_new
        self._patience = patience
        self._people: list[_Person] = []
        self._next_id = 0
        self._first = True

    def update(self, people: People) -> list[Pose]:
        """The poses of the next picture's people that belong to a track, in the order given."""
        for person in self._people:
            person.motion.predict()
            person.unseen += 1
        high = np.flatnonzero(people.boxes.scores >= self._high_score)
        low = np.flatnonzero(people.boxes.scores < self._high_score)
        known = [person for person in self._people if person.track_id is not None]
        fresh = [person for person in self._people if person.track_id is None]
        owner: dict[int, _Person] = {}
        high = self._match(known, people, high, self._least_overlap, owner)
        before = [person for person in known if person.unseen == 1]
        self._match(before, people, low, self._least_overlap_low, owner)
        high = self._match(fresh, people, high, self._least_overlap_new, owner)
        self._begin(people, high, owner)
        self._forget()
        self._first = False
        return [
            Pose(person.track_id, people.keypoints[row], people.confidence[row])
            for row, person in sorted(owner.items(), key=lambda item: item[0])
            if person.track_id is not None
        ]

    def reset(self) -> None:
        """Forget everybody, as after a lost connection; ids go on and are never used again."""
        self._people = []
        self._first = True

    def _match(
        self,
        persons: list[_Person],
        people: People,
        rows: Rows,
        least_overlap: float,
        owner: dict[int, _Person],
    ) -> Rows:
        """Give rows to persons by overlap with where they should be; the rows that are left."""
        places = np.array([person.motion.corners() for person in persons], np.float32)
        pairs = best_pairs(places.reshape(-1, 4), people.boxes.corners[rows], least_overlap)
        for at, column in pairs:
            person, row = persons[at], int(rows[column])
            person.motion.correct(people.boxes.corners[row])
            person.unseen = 0
            if person.track_id is None:
                person.track_id = self._new_id()
            owner[row] = person
        return np.delete(rows, [column for _, column in pairs])

    def _begin(self, people: People, rows: Rows, owner: dict[int, _Person]) -> None:
        """Follow newcomers; those of the very first picture need no second look."""
        for row in rows.tolist():
            if people.boxes.scores[row] >= self._new_score:
                person = _Person(Motion(people.boxes.corners[row]))
                person.track_id = self._new_id() if self._first else None
                self._people.append(person)
                owner[row] = person

    def _forget(self) -> None:
        self._people = [
            person
            for person in self._people
            if person.unseen <= (0 if person.track_id is None else self._patience)
        ]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id


def best_pairs(a: Floats, b: Floats, least_overlap: float) -> list[tuple[int, int]]:
    """Pairs of rows of boxes `(A, 4)` and `(B, 4)` with the largest sum of overlaps.

    Pairs that overlap less than `least_overlap` count nothing and are not made.
    """
    overlap = iou(a, b)
    worth = np.where(overlap >= least_overlap, overlap, 0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in pairs if worth[row, column] > 0]
