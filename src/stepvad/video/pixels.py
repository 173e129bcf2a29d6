"""Resize images for a network, and map its output back to image pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import MissingExtraError

Image = NDArray[np.uint8]
"""An RGB image `(H, W, 3)`."""
FILL = 114
"""Grey padding of a letterboxed image, as in the detectors' training."""
MARGIN = 1.25
"""Sides of a crop relative to those of the box."""


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle in whole pixels that may extend beyond the image."""

    left: int
    top: int
    width: int
    height: int

    def to_picture(self, points: NDArray[np.float32]) -> NDArray[np.float32]:
        """Convert points `(..., 2)` from 0..1 of the rectangle to pixels of the image."""
        scale = np.array([self.width, self.height], np.float32)
        return np.asarray(points * scale + np.array([self.left, self.top], np.float32), np.float32)


def letterbox_size(image: Image, most: tuple[int, int], step: int) -> tuple[int, int]:
    """The smallest size in steps that holds an image as large as it is in a letterbox of `most`."""
    width, height = _fitted(image, most)
    return -(-width // step) * step, -(-height // step) * step


def letterbox(image: Image, size: tuple[int, int]) -> tuple[Image, NDArray[np.float32]]:
    """Fit an image into the top left of `size`; return it with its scale in x and y.

    Divide a point of the result by the scale to get the point of the original image.
    """
    height, width = image.shape[:2]
    fitted = _fitted(image, size)
    box = np.full((size[1], size[0], 3), FILL, np.uint8)
    box[: fitted[1], : fitted[0]] = _resize(image, fitted)
    return box, np.array([fitted[0] / width, fitted[1] / height], np.float32)


def region_around(box: NDArray[np.float32], image: Image, size: tuple[int, int]) -> Region:
    """The rectangle of the shape of `size` around a box, 1.25 times as large.

    For a square `size` its side is 1.25 times the longer side of the box.
    """
    height, width = image.shape[:2]
    left, top, right, bottom = np.clip(box, 0, [width, height, width, height]).astype(float)
    aspect = size[0] / size[1]
    tall = MARGIN * max(bottom - top, (right - left) / aspect, 1.0)
    wide = tall * aspect
    return Region(
        round((left + right - wide) / 2),
        round((top + bottom - tall) / 2),
        max(1, round(wide)),
        max(1, round(tall)),
    )


def crop(image: Image, region: Region, size: tuple[int, int]) -> Image:
    """Crop a region and resize it to `size`; black beyond the image's border."""
    height, width = image.shape[:2]
    left, top = max(region.left, 0), max(region.top, 0)
    right = max(left, min(region.left + region.width, width))
    bottom = max(top, min(region.top + region.height, height))
    inside = image[top:bottom, left:right]
    if inside.shape[:2] != (region.height, region.width):
        whole = np.zeros((region.height, region.width, 3), np.uint8)
        y, x = top - region.top, left - region.left
        whole[y : y + bottom - top, x : x + right - left] = inside
        inside = whole
    return _resize(inside, size)


def _fitted(image: Image, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of an image scaled to fit into `size`."""
    height, width = image.shape[:2]
    ratio = min(size[0] / width, size[1] / height)
    return max(1, round(width * ratio)), max(1, round(height * ratio))


def _resize(image: Image, size: tuple[int, int]) -> Image:
    """Resize bilinearly; large images with even sides are first halved by averaging 2x2 pixels.

    Averaging over other block sizes would be smoother still, but takes ten times as long.
    """
    cv2 = _cv2()
    height, width = image.shape[:2]
    while width >= 2 * size[0] and height >= 2 * size[1] and not (width % 2 or height % 2):
        width, height = width // 2, height // 2
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)


def _cv2() -> Any:
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingExtraError("poses from video", "video") from error
    return cv2
