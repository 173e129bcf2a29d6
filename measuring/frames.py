"""Children of a site whose frames cost nothing to make and nothing to look at: the way remains."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from stepvad.intake import capture, pose_workers
from stepvad.settings.sections import CameraSettings, PoseSettings
from stepvad.supervision.process import ChildPipe
from stepvad.video.people import LastPoses, People, no_boxes
from stepvad.video.pixels import Image
from stepvad.video.source import Frame

SIZE = (1920, 1080)
MARKS = 251


class SyntheticVideo:
    """Noise without end; the first and the last pixel of a frame tell its number."""

    fps = 10.0

    def __init__(self, path: object) -> None:
        width, height = SIZE
        self._image = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)

    def __iter__(self) -> Iterator[Frame]:
        for number in count():
            self._image[0, 0] = self._image[-1, -1] = number % MARKS
            yield Frame("", number, number / self.fps, time.time(), self._image, 0)


def capture_noise(site: ChildPipe, camera: CameraSettings) -> None:
    """A capture process that plays noise."""
    vars(capture)["VideoFile"] = SyntheticVideo
    capture.capture(site, camera)


def look_at_nothing(site: ChildPipe, settings: PoseSettings) -> None:
    """A pose worker without networks: it reads two pixels, and finds nobody in a whole image."""
    nobody = People(no_boxes(), np.empty((0, 17, 2), np.float32), np.empty((0, 17), np.float32))

    def look(
        estimator: object, images: Sequence[Image], last: Sequence[LastPoses]
    ) -> Iterator[People]:
        for image in images:
            if (image[0, 0] != image[-1, -1]).any():
                raise ValueError("parts of two frames")
            yield nobody

    def open_nothing(*_: object, **__: object) -> None:
        return None

    vars(pose_workers).update(look=look, open_estimator=open_nothing, choose_engine=open_nothing)
    pose_workers.find_people(site, settings)
