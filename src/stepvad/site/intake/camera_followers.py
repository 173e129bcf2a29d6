"""The last poses of the people of every camera, shared by the pose workers."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable

from stepvad.people import NOBODY, LastPoses, People
from stepvad.site.intake.frame_queues import QueuedFrame
from stepvad.video.following import Follower, Moment


class CameraFollowers:
    """One follower per camera; thread-safe.

    Workers may finish the frames of a camera out of order: what an older frame shows is ignored.
    """

    def __init__(self, cameras: Iterable[str]) -> None:
        self._followers = {camera: Follower() for camera in cameras}
        self._latest = dict.fromkeys(self._followers, -math.inf)
        self._lock = threading.Lock()

    def last_poses(self, frame: QueuedFrame) -> LastPoses:
        """The people to look for in a frame, as far as earlier frames are finished."""
        with self._lock:
            follower = self._followers.get(frame.camera)
            return NOBODY if follower is None else follower.last_poses(_moment(frame))

    def update(self, frame: QueuedFrame, people: People) -> None:
        """Remember the people found in a frame."""
        with self._lock:
            follower = self._followers.get(frame.camera)
            if follower is not None and frame.arrived > self._latest[frame.camera]:
                self._latest[frame.camera] = frame.arrived
                follower.update(_moment(frame), people)


def _moment(frame: QueuedFrame) -> Moment:
    return Moment(frame.arrived, (frame.connection, *frame.size))
