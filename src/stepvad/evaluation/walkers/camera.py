"""A surveillance camera that projects world points to pixels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIZE = (1280, 720)
"""Width and height of the image in pixels."""


@dataclass(frozen=True, slots=True)
class GroundCamera:
    """A pinhole camera above the ground, looking along +y and down by `tilt` radians."""

    height_m: float
    tilt: float
    focal_px: float

    @classmethod
    def of_scene(cls, rng: np.random.Generator) -> GroundCamera:
        """A random surveillance camera: 3 to 5 m up, tilted by 11 to 17 degrees."""
        return cls(rng.uniform(3.0, 5.0), np.radians(rng.uniform(11, 17)), rng.uniform(850, 1100))

    def project(self, points: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Pixels `(…, 2)` of points `(…, 3)` in metres, z up, and pixels per metre there `(…)`."""
        x, y, below = points[..., 0], points[..., 1], self.height_m - points[..., 2]
        depth = np.maximum(y * np.cos(self.tilt) + below * np.sin(self.tilt), 0.1)
        down = below * np.cos(self.tilt) - y * np.sin(self.tilt)
        scale = self.focal_px / depth
        pixels = np.stack([SIZE[0] / 2 + scale * x, SIZE[1] / 2 + scale * down], axis=-1)
        return pixels, scale

    def ground_in_view(self, rng: np.random.Generator) -> tuple[float, float]:
        """A random ground point well inside the image, 8 to 15 m away: x and y in metres."""
        y = rng.uniform(8, 15)
        return rng.uniform(-0.3, 0.3) * SIZE[0] * y / self.focal_px, y
