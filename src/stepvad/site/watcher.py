"""Tracking, windows and events of one camera of a site."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepvad.incidents.camera_events import MOST_PEOPLE, CameraEvents, CameraProfile
from stepvad.poses import Pose
from stepvad.skeletons import COCO17, Skeleton
from stepvad.stream import Stream
from stepvad.video.people import People
from stepvad.video.tracker import Tracker


class Watcher:
    """Tracks the people of one camera, builds their windows and holds its events.

    The tracker and the `Stream` start fresh with every connection, so nothing spans two of them.
    """

    def __init__(
        self, profile: CameraProfile, next_epoch: Callable[[], int], skeleton: Skeleton = COCO17
    ) -> None:
        self.profile, self.skeleton = profile, skeleton
        self.events = CameraEvents(profile, next_epoch, skeleton)
        self.stream = self._new_stream()
        self._tracker = Tracker()

    def begin(self, wall0: float) -> None:
        """Start a connection; its slot 0 is at wall-clock time `wall0`."""
        self.events.begin(wall0)
        self._tracker.reset()
        self.stream = self._new_stream()

    def _new_stream(self) -> Stream:
        profile = self.profile
        return Stream(profile.detector, skeleton=self.skeleton, fps=profile.rate)

    def follow(self, people: People, slot: int) -> list[Pose]:
        """Track the people of the image of a time slot with sufficient confidence."""
        certain = people.certain(self.profile.min_confidence)
        return self._tracker.update(people.take(certain), time_s=slot / self.profile.rate)

    def sound(self, poses: Sequence[Pose]) -> list[Pose]:
        """Poses with the expected number of joints; none if there are implausibly many people."""
        if len(poses) > MOST_PEOPLE:
            return []
        return [pose for pose in poses if len(pose.keypoints) == self.skeleton.V]
