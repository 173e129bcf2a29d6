"""The motion around a peak, as integers for drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from stepvad import skeletons
from stepvad.explain.eventexplanation import MotionFrames
from stepvad.explain.explanation import Explanation
from stepvad.skeletons import Skeleton

PER_PIXEL = 10
"""Coordinates are integers, in tenths of a pixel."""
HEAT = 100
"""Heat of the joint that contributes most; others are in proportion, rounded."""
ROOM = 1.12
"""Width of the view relative to its contents."""


@dataclass(frozen=True, slots=True, eq=False)
class Motion:
    """One person around a peak, n frames in tenths of pixels: `observed` and `ghost (n, V, 2)`.

    `heat (n, V)` is in 0..HEAT; `camera (n, 2)` is the centre of a view `size` wide and high that
    follows the person.
    """

    first_frame: int
    peak: int
    """Index of the last frame of the peak window, to which the score belongs."""
    observed: NDArray[np.int64]
    ghost: NDArray[np.int64]
    heat: NDArray[np.int64]
    camera: NDArray[np.int64]
    size: int
    skeleton: Skeleton

    @classmethod
    def of(cls, windows: Sequence[Explanation], peak: Explanation) -> Motion:
        """The motion of adjacent windows, one of which is the peak's."""
        observed, ghost = (
            np.concatenate([PER_PIXEL * motion.astype(np.float64) for motion in motions])
            for motions in ([w.observed for w in windows], [w.ghost for w in windows])
        )
        camera = gaussian_filter1d(
            (observed.min(axis=1) + observed.max(axis=1)) / 2, len(observed) / 9, axis=0,
            mode="nearest",
        )  # fmt: skip
        reach = max(float(np.abs(m - camera[:, None]).max()) for m in (observed, ghost))
        first = int(windows[0].frames[0])
        return cls(
            first_frame=first,
            peak=int(peak.frames[-1]) - first,
            observed=_whole(observed),
            ghost=_whole(ghost),
            heat=_heat(windows),
            camera=_whole(camera),
            size=max(int(np.ceil(2 * ROOM * reach)), 1),
            skeleton=windows[0].skeleton,
        )

    @property
    def bones(self) -> list[list[int]]:
        """Lines between joints."""
        return skeletons.strokes(self.skeleton)

    def frames(self, fps: float) -> MotionFrames:
        """Plain numbers by frame, except `fps` and `size`, for playback and JSON."""
        n = len(self.observed)
        return MotionFrames(
            first=self.first_frame,
            fps=fps,
            peak=self.peak,
            size=self.size,
            bones=tuple(map(tuple, self.bones)),
            camera=_rows(self.camera),
            observed=_rows(self.observed.reshape(n, -1)),
            ghost=_rows(self.ghost.reshape(n, -1)),
            heat=_rows(self.heat),
        )


def _rows(values: NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, values.tolist()))


def _whole(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return values.round().astype(np.int64)


def _heat(windows: Sequence[Explanation]) -> NDArray[np.int64]:
    """Contributions of joints, relative to the largest one in all these windows."""
    added = np.concatenate([window.contributions for window in windows])
    return _whole(HEAT * np.clip(added / max(float(added.max()), 1e-9), 0, 1))
