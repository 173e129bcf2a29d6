"""Kalman filter of one box: centre and sides, each with its own velocity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.video.people import Float32s

PLACE_NOISE = 1 / 20
"""Standard deviation of a position, in box heights (DeepSORT, arXiv 1703.07402)."""
SPEED_NOISE = 1 / 160
"""Standard deviation of a velocity, in box heights per frame."""


class BoxMotion:
    """Constant-velocity model of a box: centre x and y, width and height.

    The four quantities are filtered independently: each has a position, a velocity and their
    `(2, 2)` covariance, with noise proportional to the height of the box.
    """

    def __init__(self, corners: Float32s) -> None:
        self._place = _centre_and_sides(corners)
        self._speed = np.zeros(4)
        height = max(self._place[3], 1.0)
        self._var_place = np.full(4, (2 * PLACE_NOISE * height) ** 2)
        self._var_speed = np.full(4, (10 * SPEED_NOISE * height) ** 2)
        self._cov = np.zeros(4)

    def predict(self) -> None:
        """Advance by one frame: add velocity to position and increase the uncertainty of both."""
        height = max(self._place[3], 1.0)
        self._place = self._place + self._speed
        self._var_place = (
            self._var_place + 2 * self._cov + self._var_speed + (PLACE_NOISE * height) ** 2
        )
        self._cov = self._cov + self._var_speed
        self._var_speed = self._var_speed + (SPEED_NOISE * height) ** 2

    def correct(self, corners: Float32s) -> None:
        """Update with an observed box."""
        height = max(self._place[3], 1.0)
        missed = _centre_and_sides(corners) - self._place
        certainty = self._var_place + (PLACE_NOISE * height) ** 2
        place_gain, speed_gain = self._var_place / certainty, self._cov / certainty
        self._place = self._place + place_gain * missed
        self._speed = self._speed + speed_gain * missed
        self._var_speed = self._var_speed - speed_gain * self._cov
        self._cov = (1 - place_gain) * self._cov
        self._var_place = (1 - place_gain) * self._var_place

    def corners(self) -> Float32s:
        """The estimated box: left, top, right, bottom."""
        half = np.maximum(self._place[2:], 1.0) / 2
        return np.concatenate([self._place[:2] - half, self._place[:2] + half]).astype(np.float32)


def _centre_and_sides(corners: Float32s) -> NDArray[np.float64]:
    low, high = corners[:2].astype(np.float64), corners[2:].astype(np.float64)
    return np.concatenate([(low + high) / 2, high - low])
