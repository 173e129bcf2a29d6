"""Kalman filter of one person's box in seconds: where it moves, and how large it is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepvad.video.people import Float32s

PLACE_NOISE = 0.05
"""Standard deviation of an observed centre, in body heights."""
FIRST_SPEED = 1.5
"""Standard deviation of the speed of a person seen once, in body heights per second."""
SPEED_CHANGE = 0.5
"""Standard deviation of the change of speed within a second, in body heights per second."""
PACE_CHANGE = 0.6
"""The same for each body height per second that the person moves already."""
SIZE_GAIN = 0.5
"""Share of an observed size that the estimate takes over."""


class BoxMotion:
    """Constant-velocity model of a box's centre; its sides are smoothed, and held while unseen.

    Both coordinates of the centre share their variances, which are in squared body heights.
    """

    def __init__(self, corners: Float32s) -> None:
        self._centre, self._sides = _centre_and_sides(corners)
        self._speed = np.zeros(2)
        self._var_place, self._cov, self._var_speed = PLACE_NOISE**2, 0.0, FIRST_SPEED**2

    def predict(self, dt: float) -> None:
        """Advance by `dt` seconds: the centre moves, and its uncertainty grows."""
        self._centre = self._centre + dt * self._speed
        pace = float(np.hypot(*self._speed)) / self._sides.max()
        q = (SPEED_CHANGE + PACE_CHANGE * pace) ** 2 * dt
        self._var_place += 2 * dt * self._cov + dt**2 * self._var_speed + q * dt**2 / 3
        self._cov += dt * self._var_speed + q * dt / 2
        self._var_speed += q

    def correct(self, corners: Float32s) -> None:
        """Update with an observed box."""
        centre, sides = _centre_and_sides(corners)
        certainty = self._var_place + PLACE_NOISE**2
        place_gain, speed_gain = self._var_place / certainty, self._cov / certainty
        self._speed = self._speed + speed_gain * (centre - self._centre)
        self._centre = self._centre + place_gain * (centre - self._centre)
        self._sides = self._sides + SIZE_GAIN * (sides - self._sides)
        self._var_speed -= speed_gain * self._cov
        self._cov *= 1 - place_gain
        self._var_place *= 1 - place_gain

    @property
    def spread(self) -> float:
        """Standard deviation of where the box will be seen, in body heights."""
        return float(np.sqrt(self._var_place + PLACE_NOISE**2))

    def corners(self) -> Float32s:
        """The estimated box: left, top, right, bottom."""
        half = self._sides / 2
        return np.concatenate([self._centre - half, self._centre + half]).astype(np.float32)


def _centre_and_sides(corners: Float32s) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = corners[:2].astype(np.float64), corners[2:].astype(np.float64)
    return (low + high) / 2, np.maximum(high - low, 1.0)
