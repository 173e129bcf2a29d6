"""Motion before a still camera: whether a frame is worth looking for people in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepvad.people import Float32s
from stepvad.video.source import opencv

Luma = NDArray[np.uint8]
Mask = NDArray[np.bool_]

WIDTH = 128
"""Cells in a row of the small picture that is compared."""
LEAST_CHANGE = 7.0
"""Change of a cell that counts, in grey levels, however quiet the camera is."""
NOISES = 4.0
"""Change of a cell that counts, in multiples of its own noise."""
LEAST_CELLS = 6
"""Connected cells that count as motion."""
EVERYWHERE = 0.6
"""Share of changed cells from which the picture is another one: lights went on, or off."""
QUIET_S, MOVING_S = 1.6, 33.0
"""Time in which the background follows cells at rest, and cells that move unexplained."""
DARK = 8.0
"""Grey levels below which the brightness of a cell is mostly noise."""
NOISE_S, MOST_NOISE = 2.5, 25.0
"""Time over which noise is averaged, and the largest step of a cell that is noise."""
IGNORED_S, LEARNED = 1.0, 0.25
"""Time for which explained motion is nobody's, and how much of it the background takes over."""
KEPT_TICKS = 32
"""Frames that are kept until a look has explained them: more than a second of any camera."""
STILL_CHANGE, STILL_NOISES = 4.0, 3.0
"""Change of a person's cell that counts, in grey levels and in multiples of its noise."""
STILL_CELLS, STILL_SHARE = 6, 0.02
"""Number and share of changed cells in a box below which a person has not moved."""
MARGIN, STILL_MARGIN = 0.2, 0.05
"""Margins of a box, in its longer sides, in which what moves is theirs, and must not move."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.15, 1.0
"""Time between looks at motion that is nobody's: it doubles with each look."""
CALM_S = 2.0
"""Time without motion after which a look is due as soon as something moves."""
WHOLE_S = 5.0
"""Time after which a look is due although nothing moved."""


class Looks:
    """Decides when a camera is looked at: at motion, ever less often while it is nobody's."""

    def __init__(self) -> None:
        self._looked_s = self._moved_s = -np.inf
        self._wait_s, self._people = 0.0, 0

    def due(self, moved: bool, time_s: float) -> bool:
        """Tell if a frame is worth a look, given whether something unexplained moved in it."""
        since_s = time_s - self._looked_s
        if moved:
            self._moved_s = time_s
        elif time_s - self._moved_s > CALM_S:
            self._wait_s = 0.0
        # a clock that was set back tells nothing
        return not 0 <= since_s < (self._wait_s if moved else WHOLE_S)

    def looked(self, time_s: float, people: int) -> None:
        """Note a look at the frame of a time, and how many people it found."""
        if people > self._people:
            self._wait_s = 0.0
        elif self._moved_s >= time_s:
            self._wait_s = min(max(2 * self._wait_s, FIRST_WAIT_S), LONGEST_WAIT_S)
        self._looked_s, self._people = time_s, people


@dataclass(frozen=True, slots=True)
class _Tick:
    """What a frame left behind: its small picture and the mask of changed cells, `(H, W)`."""

    time_s: float
    small: Luma
    changed: Luma
    is_other: bool
    """The whole picture changed."""


class Gate:
    """Tells motion from noise, weather and light, in small pictures of one camera.

    Corners `(N, 4)` are left, top, right, bottom in pixels of the luma picture. Every method takes
    the time of the frame that it speaks of, in seconds of one clock, since a look may end when
    later frames have come. A frame of another size, or from before the last one, begins anew.
    """

    def __init__(self) -> None:
        self._ticks: deque[_Tick] = deque(maxlen=KEPT_TICKS)
        self._shape: tuple[int, ...] = (0, 0)
        self._background = self._last = self._noise = np.empty(self._shape, np.float32)
        self._ignored_until = np.empty(self._shape)

    def moved(self, luma: Luma, known: Float32s, time_s: float) -> bool:
        """Take in a frame; tell if anything moved in it that no look has explained.

        What moves in the boxes of `known` people is theirs.
        """
        small = shrink(luma)
        picture = small.astype(np.float32)
        if not self._ticks or luma.shape != self._shape or time_s < self._ticks[-1].time_s:
            self._begin(luma, picture)
            everything = np.full(small.shape, 255, np.uint8)
            self._ticks.append(_Tick(time_s, small, everything, True))
            return True
        elapsed_s = min(time_s - self._ticks[-1].time_s, 1.0)
        # cells that differ from the background, and by how much they differ from the last frame
        limit = np.maximum(NOISES * self._noise, LEAST_CHANGE)
        self._background *= brightness(picture, self._background)
        changed = _closed(np.abs(picture - self._background) > limit)
        step = difference(picture, self._last)
        is_other = bool(np.count_nonzero(changed) > EVERYWHERE * changed.size)
        self._ticks.append(_Tick(time_s, small, changed, is_other))
        # what is known is neither noise nor background; what moves becomes background slowly
        people = covered(known, self._shape, small.shape)
        blend(self._noise, np.minimum(step, MOST_NOISE), rate(elapsed_s, NOISE_S), ~people)
        near = _near(changed)
        blend(self._background, picture, rate(elapsed_s, QUIET_S), ~(near | people))
        blend(self._background, picture, rate(elapsed_s, MOVING_S), near & ~people)
        self._last = picture
        # what is nobody's yet
        free = (changed > 0) & ~people & (time_s >= self._ignored_until)
        return largest(free) >= LEAST_CELLS

    def explain(self, people: Float32s, time_s: float) -> None:
        """Note that a look at the frame of a time found these people, and nobody else.

        What else moved in it is nobody's for a second, and becomes background.
        """
        tick = self._at(time_s)
        if tick is None:
            return
        rest = _near(tick.changed) & ~covered(people, self._shape, tick.small.shape)
        self._ignored_until[rest] = time_s + IGNORED_S
        picture = tick.small.astype(np.float32)
        blend(self._background, picture, 1.0 if tick.is_other else LEARNED, rest)

    def still(self, corners: Float32s, since_s: Sequence[float], time_s: float) -> Mask:
        """Tell in which boxes `(N,)` nothing changed since a frame, one for each box.

        `since_s` are the times of those frames, and `time_s` is that of the present one. Where a
        frame is no longer kept, nobody is still.
        """
        found = np.zeros(len(corners), np.bool_)
        now = self._at(time_s)
        if now is None:
            return found
        limit = np.maximum(STILL_NOISES * self._noise, STILL_CHANGE)
        for at, box in enumerate(cells(corners, self._shape, limit.shape, STILL_MARGIN)):
            if past := self._at(since_s[at]):
                # cells of the box that changed meanwhile
                apart = difference(now.small.astype(np.float32), past.small.astype(np.float32))
                changed = (apart > limit)[box[1] : box[3], box[0] : box[2]]
                most = min(STILL_CELLS, max(STILL_SHARE * changed.size, 1))
                found[at] = np.count_nonzero(changed) < most
        return found

    def _begin(self, luma: Luma, picture: Float32s) -> None:
        self._ticks.clear()
        self._shape = luma.shape
        self._background, self._last = picture.copy(), picture
        self._noise = np.ones_like(picture)
        self._ignored_until = np.full(picture.shape, -np.inf)

    def _at(self, time_s: float) -> _Tick | None:
        return next((tick for tick in self._ticks if tick.time_s == time_s), None)


def shrink(luma: Luma) -> Luma:
    """A picture of `WIDTH` cells in a row, blurred."""
    cv2 = opencv("the motion gate")
    size = WIDTH, max(1, round(WIDTH * luma.shape[0] / luma.shape[1]))
    # four pixels a cell, and the blur takes in its neighbours': all would take longer
    some = cv2.resize(luma, (2 * size[0], 2 * size[1]), interpolation=cv2.INTER_NEAREST)
    return cv2.blur(cv2.resize(some, size, interpolation=cv2.INTER_AREA), (3, 3))


def brightness(picture: Float32s, other: Float32s) -> float:
    """Brightness of a picture relative to another: exposure, clouds, lamps."""
    # some of the cells do; a constant keeps the noise of dark ones out
    ratios = ((picture[::3, ::3] + DARK) / (other[::3, ::3] + DARK)).ravel()
    return float(np.partition(ratios, ratios.size // 2)[ratios.size // 2])


def difference(picture: Float32s, other: Float32s) -> Float32s:
    """How much cells differ, brightness of the whole picture apart."""
    return np.abs(picture - brightness(picture, other) * other)


def blend(into: Float32s, picture: Float32s, share: float, where: Mask) -> None:
    """Replace a share of some cells by those of a picture."""
    opencv("the motion gate").accumulateWeighted(picture, into, share, where.view(np.uint8))


def rate(elapsed_s: float, lasting_s: float) -> float:
    """Share that a running average over a time takes of its next value."""
    return 1 - float(np.exp(-elapsed_s / lasting_s))


def covered(corners: Float32s, shape: tuple[int, ...], small: tuple[int, ...]) -> Mask:
    """Mask `(H, W)` of the cells that belong to any of the people in boxes."""
    mask = np.zeros(small, np.bool_)
    for left, top, right, bottom in cells(corners, shape, small, MARGIN):
        mask[top:bottom, left:right] = True
    return mask


def cells(
    corners: Float32s, shape: tuple[int, ...], small: tuple[int, ...], margin: float
) -> list[list[int]]:
    """Left, top, right and bottom cell of boxes in pixels, with a margin around them."""
    if not len(corners):
        return []
    margins = margin * (corners[:, 2:] - corners[:, :2]).max(axis=1, keepdims=True)
    scale = np.array([small[1] / shape[1], small[0] / shape[0]], np.float32)
    low = np.floor((corners[:, :2] - margins) * scale)
    high = np.ceil((corners[:, 2:] + margins) * scale)
    ends = np.array([small[1], small[0]])
    return np.concatenate([low.clip(0, ends), high.clip(0, ends)], axis=1).astype(int).tolist()


def largest(mask: Mask) -> int:
    """Cells of the largest connected piece of a mask."""
    if np.count_nonzero(mask) < LEAST_CELLS:
        return 0
    cv2 = opencv("the motion gate")
    _, _, sizes, _ = cv2.connectedComponentsWithStats(mask.view(np.uint8))
    return int(sizes[1:, cv2.CC_STAT_AREA].max())


def _closed(mask: Mask) -> Luma:
    """A mask without holes of a cell, 255 where it is true."""
    cv2 = opencv("the motion gate")
    whole = mask.view(np.uint8) * np.uint8(255)
    return cv2.morphologyEx(whole, cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))


def _near(mask: Luma) -> Mask:
    """The cells of a mask and those next to them."""
    return np.asarray(opencv("the motion gate").dilate(mask, np.ones((5, 5), np.uint8)) > 0)
