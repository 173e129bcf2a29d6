"""The people before one camera, frame by frame: when to look, and where."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.people import People
from stepvad.video.estimators import PoseEstimator
from stepvad.video.following import Follower, Moment, detect_and_recover
from stepvad.video.source import Image


class Watch:
    """Looks at the frames of one camera; `asks` and `look` may run in two threads."""

    def __init__(self, estimator: PoseEstimator, rate: float) -> None:
        """`rate`: frames a second, at most."""
        self._estimator, self._rate = estimator, rate
        self._follower = Follower()

    def asks(self, luma: NDArray[np.uint8], time_s: float) -> bool:
        """Tell if a frame is worth a look; if not, nobody is there."""
        return True

    def look(self, image: Image, time_s: float, view: tuple[int, ...]) -> People:
        """The people in a frame; `view` changes with a new connection or another size."""
        moment = Moment(time_s, view)
        (people,) = detect_and_recover(
            self._estimator, [image], [self._follower.last_poses(moment)]
        )
        self._follower.update(moment, people)
        return people
