"""One camera of a site: people or poses in, tracks and windows of them, its events beside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepvad.incidents.camera import MOST_PEOPLE, CameraEvents, Subject
from stepvad.poses import Pose
from stepvad.skeletons import COCO17, Skeleton
from stepvad.stream import Stream
from stepvad.video.people import People
from stepvad.video.tracker import Tracker


class Watcher:
    """What follows people of one camera, makes their windows and keeps its events.

    Every connection has a tracker and a `Stream` of its own, so that nothing spans two of them.
    """

    def __init__(
        self, subject: Subject, next_epoch: Callable[[], int], skeleton: Skeleton = COCO17
    ) -> None:
        self.subject, self.skeleton = subject, skeleton
        self.events = CameraEvents(subject, next_epoch, skeleton)
        self.stream = Stream(subject.detector, skeleton=skeleton)
        self._tracker = Tracker()

    def begin(self, wall0: float) -> None:
        """A connection begins; its slot 0 is at this time of the wall clock."""
        self.events.begin(wall0)
        self._tracker.reset()
        self.stream = Stream(self.subject.detector, skeleton=self.skeleton)

    def follow(self, people: People) -> list[Pose]:
        """The poses of a picture's people who are sure enough, with their tracks."""
        return self._tracker.update(people.take(people.certain(self.subject.min_confidence)))

    def sound(self, poses: Sequence[Pose]) -> list[Pose]:
        """Poses with as many joints as they should have; of a crowd that cannot be none."""
        if len(poses) > MOST_PEOPLE:
            return []
        return [pose for pose in poses if len(pose.keypoints) == self.skeleton.V]
