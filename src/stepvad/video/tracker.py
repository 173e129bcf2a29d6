"""Track people from frame to frame, after ByteTrack (arXiv 2110.06864, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from stepvad.poses import Pose
from stepvad.video.motion import BoxMotion
from stepvad.video.people import Float32s, People, iou

RowIndices = NDArray[np.int64]


@dataclass(slots=True)
class _Person:
    """State of one tracked person: motion, track id, and frames since they were last seen."""

    motion: BoxMotion
    track_id: int | None = None
    """None until seen in two consecutive frames."""
    unseen: int = 0


class Tracker:
    """Assigns track ids to the people of one source; use one tracker per source.

    Boxes that score at least `high_score` are matched first, against all tracks. Lower boxes are
    then matched against the tracks seen in the previous frame: a partly hidden person scores low
    but is still there. Unmatched boxes from `new_score` start a track, which the next frame must
    confirm. Tracks not seen for `patience` frames are dropped.
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
        """Match the people of the next frame; return the tracked poses in the given order."""
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
        """Drop all tracks, for example after a lost connection; ids are never reused."""
        self._people = []
        self._first = True

    def _match(
        self,
        persons: list[_Person],
        people: People,
        rows: RowIndices,
        least_overlap: float,
        owner: dict[int, _Person],
    ) -> RowIndices:
        """Match rows to persons by overlap with their predicted boxes; return unmatched rows."""
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

    def _begin(self, people: People, rows: RowIndices, owner: dict[int, _Person]) -> None:
        """Start tracks for new people; those in the very first frame need no confirmation."""
        for row in rows.tolist():
            if people.boxes.scores[row] >= self._new_score:
                person = _Person(BoxMotion(people.boxes.corners[row]))
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


def best_pairs(a: Float32s, b: Float32s, least_overlap: float) -> list[tuple[int, int]]:
    """Pair the rows of boxes `(A, 4)` and `(B, 4)` to maximise the sum of overlaps.

    Boxes that overlap by less than `least_overlap` are never paired.
    """
    overlap = iou(a, b)
    worth = np.where(overlap >= least_overlap, overlap, 0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in pairs if worth[row, column] > 0]
