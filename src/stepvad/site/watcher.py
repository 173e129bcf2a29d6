"""One camera of a site: its people and, with a model, their windows and events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepvad.incidents.camera_events import MOST_PEOPLE, CameraEvents, CameraProfile
from stepvad.poses import Pose
from stepvad.skeletons import COCO17, Skeleton
from stepvad.stream import Stream
from stepvad.video.people import People
from stepvad.video.tracker import Tracker


class CameraPeople:
    """Tracks the people of one camera; the tracker starts fresh with every connection."""

    def __init__(
        self, camera: str, rate: float, min_confidence: float, skeleton: Skeleton = COCO17
    ) -> None:
        self.camera, self.skeleton = camera, skeleton
        self._rate, self._min_confidence = rate, min_confidence
        self._wall0 = 0.0
        self._tracker = Tracker()

    def begin(self, wall0: float) -> None:
        """Start a connection; its slot 0 is at wall-clock time `wall0`."""
        self._wall0 = wall0
        self._tracker.reset()

    def wall(self, slot: int) -> float:
        """Wall-clock time of a slot."""
        return self._wall0 + slot / self._rate

    def follow(self, people: People, slot: int) -> list[Pose]:
        """Track the people of the image of a time slot with sufficient confidence."""
        certain = people.certain(self._min_confidence)
        return self._tracker.update(people.take(certain), time_s=slot / self._rate)

    def sound(self, poses: Sequence[Pose]) -> list[Pose]:
        """Poses with the expected number of joints; none if there are implausibly many people."""
        if len(poses) > MOST_PEOPLE:
            return []
        return [pose for pose in poses if len(pose.keypoints) == self.skeleton.V]


class Watcher(CameraPeople):
    """Tracks the people of one camera, builds their windows and holds its events.

    The `Stream` starts fresh with every connection too, so nothing spans two of them.
    """

    def __init__(
        self, profile: CameraProfile, next_epoch: Callable[[], int], skeleton: Skeleton = COCO17
    ) -> None:
        super().__init__(profile.camera, profile.rate, profile.min_confidence, skeleton)
        self.events = CameraEvents(profile, next_epoch, skeleton)
        self.stream = self._new_stream()

    @property
    def profile(self) -> CameraProfile:
        """How the camera is watched at present."""
        return self.events.profile

    def begin(self, wall0: float) -> None:
        """Start a connection; its slot 0 is at wall-clock time `wall0`."""
        self.events.begin(wall0)
        super().begin(wall0)
        self.stream = self._new_stream()

    def _new_stream(self) -> Stream:
        profile = self.profile
        return Stream(profile.detector, skeleton=self.skeleton, fps=profile.rate)
