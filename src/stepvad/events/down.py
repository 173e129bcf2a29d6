"""People who go down fast and are not seen again: those whom a pose network loses on the floor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.poses import Pose

ABSENT_S = 2.0
"""How long a person must stay unseen."""
DOWN_S, LEAST_DROP = 1.0, 0.5
"""The middle of the body falls by this many body heights within this time before the end."""
HISTORY_S, LEAST_S = 3.0, 0.5
"""How far back the body height is measured, and how long a person must have been seen."""
EDGE = 0.05
"""Who ends nearer to a side or the bottom, as a share of the picture, may have left it."""
NEARBY = 1.0
"""Body heights within which somebody new may be the same person."""
LAPSE_S = 0.3
"""How long before the end a new track may begin that is the same person."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotPeople:
    """The people in one time slot."""

    slot: int
    poses: tuple[Pose, ...]


@dataclass(frozen=True, slots=True)
class Descent:
    """Somebody who went down: the slot in which the descent began, and the last with a pose."""

    track: int
    began: int
    last: int


def went_down(kept: Sequence[SlotPeople], rate: float, size: tuple[int, int]) -> list[Descent]:
    """The people who went down `ABSENT_S` before the latest slot and were not seen since.

    `kept` has the people of the last seconds, oldest first. Every descent is found in one slot
    only, that in which the wait is over.
    """
    gone, later = _gone(kept, rate)
    found = []
    for track in gone:
        path = _path(kept, track, rate)
        if path is not None and path.falls(rate) and path.ends_inside(size):
            # a track that begins where the person was last seen may be the same person
            since = path.slots[-1] - LAPSE_S * rate
            first = {one.track_id: (s.slot, one) for s in reversed(kept) for one in s.poses}
            newcomers = [one for at, (slot, one) in first.items() if at in later and slot >= since]
            if not any(path.is_near(pose) for pose in newcomers):
                # the middle of the body was highest when the descent began
                began = path.slots[-1 - int(path.middle(rate)[::-1].argmin())]
                found.append(Descent(track, int(began), int(path.slots[-1])))
    return found


def _gone(kept: Sequence[SlotPeople], rate: float) -> tuple[list[int], set[int]]:
    """Tracks whose last pose has just become old enough, and all tracks seen since."""
    wait = round(ABSENT_S * rate)
    now = kept[-1].slot if kept else 0
    before = kept[-2].slot if len(kept) > 1 else now - 1
    later: set[int] = set()
    gone: list[int] = []
    # backwards: first the people of the wait, then the slots that became old enough only now
    for seen in reversed(kept):
        if seen.slot <= before - wait:
            break
        own = {pose.track_id for pose in seen.poses}
        if seen.slot <= now - wait:
            gone += sorted(own - later - {*gone})
        else:
            later |= own
    return gone, later


def _path(kept: Sequence[SlotPeople], track: int, rate: float) -> _Path | None:
    """The last seconds of a track; None if it is too short."""
    rows = [(s.slot, _found(p)) for s in kept for p in s.poses if p.track_id == track]
    rows = [row for row in rows if row[0] > rows[-1][0] - HISTORY_S * rate]
    if len(rows) < 3 or rows[-1][0] - rows[0][0] < LEAST_S * rate:
        return None
    return _Path(np.array([row[0] for row in rows]), np.stack([row[1] for row in rows]))


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """Slots `(n,)` and joints `(n, V, 2)` of one track; NaN is a joint that was not found."""

    slots: NDArray[np.int64]
    keypoints: NDArray[np.float32]

    @property
    def height(self) -> float:
        """The height of the body while it was upright, in pixels."""
        down = self.keypoints[..., 1]
        tall = np.nanmax(down, axis=1) - np.nanmin(down, axis=1)  # by slot, (n,)
        return max(float(np.percentile(tall, 90)), 1.0)

    def middle(self, rate: float) -> NDArray[np.float32]:
        """Distance of the middle of the body from the top, in the time before the end."""
        lately = self.slots > self.slots[-1] - DOWN_S * rate
        return np.asarray(np.nanmean(self.keypoints[lately, :, 1], axis=1), np.float32)

    def falls(self, rate: float) -> bool:
        """True if the middle of the body falls fast at the end."""
        middle = self.middle(rate)
        return bool((middle[-1] - middle.min()) / self.height >= LEAST_DROP)

    def ends_inside(self, size: tuple[int, int]) -> bool:
        """True if the last pose is away from the sides and the bottom of the picture."""
        width, height = size
        left = np.nanmin(self.keypoints[-1, :, 0])
        right, bottom = np.nanmax(self.keypoints[-1], axis=0)
        return bool(
            left > EDGE * width and right < (1 - EDGE) * width and bottom < (1 - EDGE) * height
        )

    def is_near(self, pose: Pose) -> bool:
        """True if somebody is where the person was last."""
        apart = np.nanmean(_found(pose), axis=0) - np.nanmean(self.keypoints[-1], axis=0)
        return bool(np.linalg.norm(apart) < NEARBY * self.height)


def _found(pose: Pose) -> NDArray[np.float32]:
    """The joints of a pose, NaN where none was found; all of them if that is everywhere."""
    found = pose.confidence > 0
    if not found.any():
        return pose.keypoints
    return np.where(found[:, None], pose.keypoints, np.float32(np.nan))
