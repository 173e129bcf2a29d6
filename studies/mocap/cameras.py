"""Virtual surveillance cameras: position, projection and obstacles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from studies.mocap.motions import Float64s
from studies.mocap.truth import Mask

SIZE = (1920, 1080)
"""Width and height of the image in pixels."""
FRAME_RATES = (15.0, 20.0, 25.0, 30.0)
HEIGHT_M = (2.6, 5.0)
PITCH_DEG = (12.0, 28.0)
FOCAL_PX = (1000.0, 1600.0)
NEAR_M = 0.5
"""Minimum depth; anything closer to the lens is projected as if at this depth."""
PERSON_PX = (90.0, 620.0)
"""People are placed where a person of 1.7 m is between these heights in the image."""
PERSON_M = 1.7
OBSTACLES = (0, 3)
"""Minimum and maximum number of obstacles in a scene."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A pillar or counter on the ground: its corners and height in metres."""

    x: tuple[float, float]
    y: tuple[float, float]
    height_m: float

    def hides(self, camera_height_m: float, points: Float64s) -> Mask:
        """Whether it lies between the camera and each of the points `(…, 3)`."""
        eye = np.array([0.0, 0.0, camera_height_m])
        ray = points - eye
        with np.errstate(divide="ignore", invalid="ignore"):
            low = (np.array([self.x[0], self.y[0], 0.0]) - eye) / ray
            high = (np.array([self.x[1], self.y[1], self.height_m]) - eye) / ray
        enters = np.fmin(low, high).max(axis=-1)
        leaves = np.fmax(low, high).min(axis=-1)
        return (enters < leaves) & (leaves > 0) & (enters < 0.98)  # it ends before the point

    def covers(self, ground: Float64s, *, margin_m: float) -> Mask:
        """Whether points `(…, 2)` on the ground lie inside it, or within the margin."""
        x, y = ground[..., 0], ground[..., 1]
        return (
            (x > self.x[0] - margin_m)
            & (x < self.x[1] + margin_m)
            & (y > self.y[0] - margin_m)
            & (y < self.y[1] + margin_m)
        )


@dataclass(frozen=True, slots=True)
class PinholeCamera:
    """A pinhole camera above the origin, looking along +y and down by `pitch` radians."""

    height_m: float
    pitch: float
    focal_px: float
    fps: float
    boxes: tuple[Obstacle, ...]

    def project(self, points: Float64s) -> tuple[Float64s, Float64s]:
        """Pixels `(…, 2)` and depth `(…)` in metres of points `(…, 3)`, z up."""
        x, y, below = points[..., 0], points[..., 1], self.height_m - points[..., 2]
        depth = np.maximum(y * np.cos(self.pitch) + below * np.sin(self.pitch), NEAR_M)
        down = below * np.cos(self.pitch) - y * np.sin(self.pitch)
        scale = self.focal_px / depth
        pixels = np.stack([SIZE[0] / 2 + scale * x, SIZE[1] / 2 + scale * down], axis=-1)
        return pixels, depth

    def reach(self) -> tuple[float, float]:
        """Nearest and farthest ground distance at which a person is fully visible and large enough.

        The farthest is at least 1.3 times the nearest.
        """
        far_px, near_px = PERSON_PX
        bottom = self.pitch + np.arctan(0.9 * SIZE[1] / 2 / self.focal_px)  # feet in the image
        near = max(self.focal_px * PERSON_M / near_px, self.height_m / np.tan(bottom))
        far = self.focal_px * PERSON_M / far_px
        top = self.pitch - np.arctan(0.9 * SIZE[1] / 2 / self.focal_px)
        if top > 0:  # the upper edge looks down: heads leave the image beyond some distance
            far = min(far, (self.height_m - PERSON_M) / np.tan(top))
        return near, max(far, 1.3 * near)

    def place(self, rng: np.random.Generator) -> Float64s:
        """A random point on the ground, `(2,)`, well inside the image."""
        near, far = self.reach()
        y = np.sqrt(rng.uniform(near**2, min(far, 3 * near) ** 2))  # uniform over the ground area
        half_width = 0.5 * SIZE[0] / self.focal_px * y
        return np.array([rng.uniform(-0.75, 0.75) * half_width, y])


def camera_of_scene(rng: np.random.Generator) -> PinholeCamera:
    """A camera drawn from the ranges above, with the obstacles of its scene."""
    camera = PinholeCamera(
        height_m=rng.uniform(*HEIGHT_M),
        pitch=np.radians(rng.uniform(*PITCH_DEG)),
        focal_px=rng.uniform(*FOCAL_PX),
        fps=float(rng.choice(FRAME_RATES)),
        boxes=(),
    )
    boxes = [_obstacle(rng, camera) for _ in range(rng.integers(*OBSTACLES, endpoint=True))]
    return PinholeCamera(camera.height_m, camera.pitch, camera.focal_px, camera.fps, tuple(boxes))


def inside(pixels: Float64s) -> Mask:
    """Whether pixels `(…, 2)` lie in the image."""
    return np.asarray(((pixels >= 0) & (pixels < SIZE)).all(axis=-1))


def _obstacle(rng: np.random.Generator, camera: PinholeCamera) -> Obstacle:
    """A pillar that hides a whole person, or a counter that hides the legs."""
    x, y = camera.place(rng)
    if rng.random() < 0.5:
        width, depth, height = rng.uniform(0.3, 0.6), rng.uniform(0.3, 0.6), 3.0
    else:
        width, depth, height = rng.uniform(1.0, 2.5), rng.uniform(0.4, 0.8), rng.uniform(0.7, 1.1)
    return Obstacle((x - width / 2, x + width / 2), (y - depth / 2, y + depth / 2), height)
