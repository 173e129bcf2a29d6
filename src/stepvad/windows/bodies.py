"""Where a body is and how large, and where a track goes over to another one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1e-3
"""Smallest size of a body, in pixels."""
STEP, SPEED = 1.0, 3.0
"""Sizes of the body that nobody moves at once, and more of them per second."""
GROWTH, GROWTH_SPEED = 0.35, 0.3
"""The same for the logarithm of the size."""


class Bodies(NamedTuple):
    """Centre and spread of the joints along x and y in every frame of windows, `(N, T, 2)` each."""

    centre: NDArray[np.float64]
    spread: NDArray[np.float64]

    @classmethod
    def of(cls, keypoints: NDArray[np.float32]) -> Bodies:
        """Those of windows `(N, T, V, 2)`."""
        N, T, V, _ = keypoints.shape
        joints = np.array(keypoints.transpose(0, 1, 3, 2), np.float64, order="C").reshape(-1, V)
        centre = joints.mean(axis=1)  # sums run along the last, dense axis: any batching, same bits
        spread = np.sqrt(np.square(joints - centre[:, None]).mean(axis=1))
        return cls(centre.reshape(N, T, 2), spread.reshape(N, T, 2))

    def latest(self, rows: NDArray[np.int64], T: int) -> Bodies:
        """Those of the last T frames of some windows."""
        return Bodies(self.centre[rows, -T:], self.spread[rows, -T:])

    @property
    def size(self) -> NDArray[np.float64]:
        """The size of the body in every frame, `(N, T)`: the spread of all its joints."""
        across, along = self.spread[..., 0], self.spread[..., 1]
        return np.maximum(np.sqrt(np.square(across) + np.square(along)), SMALLEST)


def jumped(
    before: NDArray[np.float32], after: NDArray[np.float32], seconds: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether poses `(n, V, 2)` that many `seconds` apart belong to different people, `(n,)`.

    A body that jumps or changes its size at once is another one that took over the track.
    """
    old, new = Bodies.of(before[:, None]), Bodies.of(after[:, None])
    old_size, new_size = old.size[:, 0], new.size[:, 0]
    moved = np.sqrt(np.square(new.centre - old.centre).sum(axis=2))[:, 0]
    far = moved > (STEP + SPEED * seconds) * np.minimum(old_size, new_size)
    grown = np.abs(np.log(new_size / old_size)) > GROWTH + GROWTH_SPEED * seconds
    return np.asarray(far | grown)
