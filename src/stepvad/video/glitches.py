"""Poses out of line with those before them: half a body behind somebody, or somebody else's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepvad.video.people import Float32s
from stepvad.windows.bodies import Bodies, jumped

LONGEST_S = 0.4
"""How long poses may be out of line; what lasts longer is how the person is now."""
SMALLEST = 1.0
"""Size of a body, in pixels, below which its change says nothing."""


@dataclass(slots=True)
class LastGood:
    """The last pose of a track that was in line, and when it was."""

    keypoints: Float32s
    time_s: float

    def accepts(self, keypoints: Float32s, time_s: float) -> bool:
        """Whether a later pose `(V, 2)` is in line; if so, it is the last good one from now on.

        A body that jumps or changes its size at once is not, for up to `LONGEST_S`.
        """
        apart_s = time_s - self.time_s
        if 0 <= apart_s <= LONGEST_S and _size(self.keypoints) >= SMALLEST:
            poses = self.keypoints[None], keypoints[None]
            if jumped(*poses, np.array([apart_s]))[0]:
                return False
        self.keypoints, self.time_s = keypoints, time_s
        return True


def _size(keypoints: Float32s) -> float:
    return float(Bodies.of(keypoints[None, None]).size[0, 0])
