"""The people of the last minutes, in memory only, to look back at any moment."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepvad.poses import Pose

KEPT_S = 600.0
"""How long frames are kept: as long as the score line shows at first."""
MOST_FRAMES = 20_000
"""Upper bound of frames per camera, whatever its rate and clock."""
UNSEEN = -32768
"""Coordinate of a joint that was not found."""
SEEN = 0.05
"""Minimum confidence of a joint to be drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredFrame:
    """The people in one scored frame of a camera; those without a full window have no score."""

    number: int
    wall: float
    size: tuple[int, int]
    """Width and height of the image in pixels."""
    poses: tuple[Pose, ...]
    scores: Mapping[int, float]
    muted: Mapping[int, float] = field(default_factory=dict)
    """Share of seen poses of people whose score does not count for events, by track."""


@dataclass(frozen=True, slots=True, eq=False)
class RecentFrame:
    """One frame: joints `(P, V, 2)` in whole pixels, and the scores that there are."""

    wall: float
    size: tuple[int, int]
    tracks: tuple[int, ...]
    joints: NDArray[np.int16]
    scores: Mapping[int, float]


class RecentFrames:
    """The frames of all cameras of the last minutes; thread-safe, with bounded memory."""

    def __init__(self, kept_s: float = KEPT_S) -> None:
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._cameras: dict[str, deque[RecentFrame]] = {}

    def add(self, camera: str, frame: ScoredFrame) -> None:
        """Keep a frame, and forget those that are too old."""
        tracks = tuple(pose.track_id for pose in frame.poses)
        kept = RecentFrame(
            frame.wall, frame.size, tracks, whole_pixels(frame.poses), dict(frame.scores)
        )
        with self._lock:
            frames = self._cameras.setdefault(camera, deque(maxlen=MOST_FRAMES))
            while frames and frames[-1].wall > frame.wall:
                frames.pop()  # the clock was set back
            frames.append(kept)
            while frames[0].wall < frame.wall - self._kept_s:
                frames.popleft()

    def between(self, camera: str, first: float, last: float) -> list[RecentFrame]:
        """The frames of a camera in a span of wall-clock time, in order."""
        with self._lock:
            return [one for one in self._cameras.get(camera, ()) if first <= one.wall <= last]


def whole_pixels(poses: Sequence[Pose]) -> NDArray[np.int16]:
    """Joints of people in whole pixels `(P, V, 2)`; `UNSEEN` where none was found."""
    if not poses:
        return np.empty((0, 0, 2), np.int16)
    places = np.stack([pose.keypoints for pose in poses])
    sure = np.stack([pose.confidence for pose in poses]) >= SEEN
    whole = np.clip(np.rint(np.nan_to_num(places)), -32767, 32767).astype(np.int16)
    whole[~sure] = UNSEEN
    return whole
