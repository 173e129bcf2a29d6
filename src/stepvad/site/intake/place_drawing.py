"""A drawing of the place that a camera sees: the edges in one picture, a bit per pixel."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stepvad.people import People
from stepvad.video.source import Image, opencv

LONGEST_SIDE = 480
"""Longer side of a drawing in pixels: walls and doors are seen, a face is a few dots."""
BLUR = 1.4
"""Deviation of the blur before edges are looked for, in pixels of the drawing."""
WEAK, STRONG = 40, 110
"""Contrast from which an edge goes on, and from which it starts."""
MARGIN = 0.15
"""What is left out around a box, relative to its longer side."""
FEWEST_EDGES = 0.002
"""Share of pixels on edges below which there is nothing to draw: night, or a covered camera."""


def drawing_size(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of the drawing of a picture of this width and height."""
    ratio = min(LONGEST_SIDE / max(size), 1.0)
    return max(1, round(size[0] * ratio)), max(1, round(size[1] * ratio))


def drawing_bytes(size: tuple[int, int]) -> int:
    """Bytes of the drawing of a picture of this width and height: rows of whole bytes."""
    width, height = drawing_size(size)
    return -(-width // 8) * height


def draw_place(image: Image, people: People, least_confidence: float) -> bytes | None:
    """The edges in a picture without people as rows of bits.

    None with people whose joints are at least so sure, or if there are hardly any edges. Where the
    detector saw what may be a person, nothing is drawn.
    """
    if people.certain(least_confidence).any():
        return None
    cv2 = opencv("drawings of a place")
    # grey and blurred, so that edges (h, w) are of the place and not of its texture
    height, width = image.shape[:2]
    small = cv2.resize(image, drawing_size((width, height)), interpolation=cv2.INTER_AREA)
    grey = cv2.GaussianBlur(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), (0, 0), BLUR)
    edges = cv2.Canny(grey, WEAK, STRONG) > 0
    _blank(edges, people.boxes.corners * (edges.shape[1] / width))
    return np.packbits(edges, axis=1).tobytes() if edges.mean() >= FEWEST_EDGES else None


def _blank(edges: NDArray[np.bool_], corners: NDArray[np.float32]) -> None:
    """Remove the edges within boxes and a margin around them."""
    for left, top, right, bottom in corners:
        margin = MARGIN * max(right - left, bottom - top)
        rows = slice(max(int(top - margin), 0), max(math.ceil(bottom + margin), 0))
        columns = slice(max(int(left - margin), 0), max(math.ceil(right + margin), 0))
        edges[rows, columns] = False
