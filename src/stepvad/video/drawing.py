"""Draw on images: skeletons coloured by score, boxes, and text legible on any background."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import MissingExtraError
from stepvad.poses import Track
from stepvad.video.pixels import Image

Colour = tuple[int, int, int]

RAMP: tuple[Colour, ...] = ((96, 242, 200), (232, 205, 96), (255, 142, 48), (228, 26, 38))
"""Green to red, safe for colour-blind viewers: the green is bluish, and colours get darker."""
UNSCORED: Colour = (150, 150, 150)
"""Skeletons without a score yet."""
TRACKS: tuple[Colour, ...] = (
    (86, 180, 233),
    (240, 228, 66),
    (240, 96, 220),
    (245, 245, 245),
    (132, 124, 255),
    (205, 160, 115),
    (255, 190, 205),
    (72, 112, 240),
)
"""Colours of tracks, in turn; neither green nor red, which stand for scores."""
DARK: Colour = (16, 16, 18)
LIGHT: Colour = (245, 245, 245)
SUB = 4
"""Fractional bits of OpenCV's fixed-point coordinates."""


@dataclass(frozen=True, slots=True)
class ColourScale:
    """Maps scores to colours: green up to 0, the training mean, and red from `red` on."""

    red: float
    meaning: str
    """Description of `red`."""

    def level(self, score: float) -> float:
        """Position between green (0) and red (1); NaN without a score."""
        return score if math.isnan(score) else min(max(score / self.red, 0.0), 1.0)

    def colour(self, score: float) -> Colour:
        """The colour of a score; grey without one."""
        level = self.level(score)
        return UNSCORED if math.isnan(level) else ramp(level)


def ramp(level: float) -> Colour:
    """The colour at a position between green (0) and red (1)."""
    place = level * (len(RAMP) - 1)
    before = min(int(place), len(RAMP) - 2)
    return mixed(RAMP[before], RAMP[before + 1], place - before)


def mixed(a: Colour, b: Colour, share: float) -> Colour:
    """Blend two colours; `share` is the weight of the second."""
    red, green, blue = (round(x + share * (y - x)) for x, y in zip(a, b, strict=True))
    return red, green, blue


def track_colours(tracks: Sequence[Track]) -> dict[int, Colour]:
    """Assign each track one colour for all frames, by id unless that colour is in use.

    Tracks visible at the same time get different colours as long as there are enough.
    """
    free_from = [-1] * len(TRACKS)
    chosen: dict[int, Colour] = {}
    for track in sorted((track for track in tracks if len(track)), key=_begin):
        own = track.id % len(TRACKS)
        if free_from[own] > _begin(track):
            own = free_from.index(min(free_from))
        free_from[own] = int(track.frames[-1]) + 1
        chosen[track.id] = TRACKS[own]
    return chosen


def _begin(track: Track) -> int:
    return int(track.frames[0])


def ink_on(paper: Colour) -> Colour:
    """Dark or light text colour, whichever is more legible (luminance by ITU-R BT.709)."""
    red, green, blue = paper
    return DARK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 125 else LIGHT


def opencv() -> Any:
    """Import OpenCV, or raise an error that names the missing extra."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError("overlay", "video") from error
    return cv2


def draw_skeleton(
    image: Image,
    joints: NDArray[np.float32],
    bones: Sequence[tuple[int, int]],
    seen: NDArray[np.bool_],
    colour: Colour,
    width: float,
) -> None:
    """Draw the bones and joints `(V, 2)` that are `seen`, `(V,)`, with a dark outline."""
    cv2 = opencv()
    points = fixed(joints)
    lines = [points[[a, b]] for a, b in bones if seen[a] and seen[b]]
    dots = points[seen].tolist()
    for ink, thick in ((DARK, width + 2), (colour, width)):
        cv2.polylines(image, lines, False, ink, max(round(thick), 1), cv2.LINE_AA, SUB)
        radius = round(0.75 * thick * (1 << SUB))
        for dot in dots:
            cv2.circle(image, dot, radius, ink, -1, cv2.LINE_AA, SUB)


def draw_box(
    image: Image, corners: tuple[int, int, int, int], colour: Colour, width: float
) -> None:
    """Draw the rectangle (left, top, right, bottom) with a dark outline."""
    cv2 = opencv()
    left, top, right, bottom = corners
    for ink, thick in ((DARK, width + 2), (colour, width)):
        cv2.rectangle(image, (left, top), (right, bottom), ink, max(round(thick), 1))


@lru_cache(maxsize=1024)
def chip(
    text: str, height: int, paper: Colour, ink: Colour, edge: int = 0, owner: Colour = DARK
) -> Image:
    """Cached, read-only version of `plate`."""
    kept = plate(text, height, paper, ink, edge, owner)
    kept.flags.writeable = False
    return kept


def plate(
    text: str, height: int, paper: Colour, ink: Colour, edge: int = 0, owner: Colour = DARK
) -> Image:
    """Render text on a solid background, `(height, w, 3)`.

    The leftmost `edge` pixels have the colour `owner`.
    """
    cv2 = opencv()
    face, scale, thick = cv2.FONT_HERSHEY_SIMPLEX, height / 33, max(round(height / 18), 1)
    (wide, _), _ = cv2.getTextSize(text, face, scale, thick)
    (_, tall), _ = cv2.getTextSize("0", face, scale, thick)
    ground = np.full((height, edge + wide + height // 2, 3), paper, np.uint8)
    ground[:, :edge] = owner
    base = (height + tall) // 2 - height // 16
    cv2.putText(ground, text, (edge + height // 4, base), face, scale, ink, thick, cv2.LINE_AA)
    return ground


def paste(image: Image, patch: Image, left: int, top: int) -> None:
    """Paste a patch onto an image, clipped to its borders."""
    high, wide = image.shape[:2]
    first_x, first_y = max(-left, 0), max(-top, 0)
    part = patch[first_y : max(high - top, 0), first_x : max(wide - left, 0)]
    x, y = left + first_x, top + first_y
    image[y : y + part.shape[0], x : x + part.shape[1]] = part


def fixed(points: NDArray[np.floating[Any]]) -> NDArray[np.int32]:
    """Points in OpenCV's fixed-point format; coordinates are clipped to ±20000 pixels."""
    near = np.clip(points, -20_000, 20_000)
    return np.asarray(np.round(near * (1 << SUB)), np.int32)
