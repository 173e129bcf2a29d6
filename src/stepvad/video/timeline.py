"""Colours, skeletons and words on a picture, and the timeline of scores below it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepvad.model.scoring import WindowScores, true_runs
from stepvad.poses import Track
from stepvad.video.source import Image, opencv

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

ScoreRun = tuple[int, NDArray[np.int64], NDArray[np.float32]]
"""Id, frames and scores of a track over consecutive frames."""
PAPER: Colour = (24, 24, 28)
RULE: Colour = (74, 74, 80)
QUIET: Colour = (168, 168, 172)
TRUTH: Colour = (112, 40, 46)
"""Background of frames labelled abnormal."""
RED_TEXT: Colour = (255, 96, 96)
"""Label of the score from which skeletons are red; lighter, for legibility."""
FADED = 0.35
"""Strength of a line's colour after the cursor."""
HEADROOM = 1.2
"""Upper limit of the strip, as a multiple of the score at which red begins."""
MOST_HEADROOM = 2.0
"""The same if scores are much higher; they are clipped at the upper edge."""


class Timeline:
    """The timeline of one clip; static parts are drawn once.

    `unit` is the width of a fine line in pixels, `colours` the colours of the tracks.
    """

    def __init__(
        self,
        windows: WindowScores,
        shown: ShownFrames,
        scale: ColourScale,
        colours: Mapping[int, Colour],
        *,
        width: int,
        unit: float,
    ) -> None:
        frames = shown.frames
        self._scale, self._frames, self._colours, self._unit = scale, frames, colours, unit
        self._name = shown.name.encode("ascii", "replace").decode()
        self._seconds = 1 / shown.fps
        self.height = 2 * round(78 * unit)
        self._text = round(20 * unit)
        self._left, self._right = round(60 * unit), width - 1 - round(14 * unit)
        self._top, self._bottom = round(32 * unit), self.height - 1 - round(26 * unit)
        self._tall = self._bottom - self._top
        self._low, self._high = _limits(windows.A, scale.red)
        self._behind = np.full((self.height, width, 3), PAPER, np.uint8)
        self._draw_behind(shown.abnormal)
        inside = (windows.frame >= frames.start) & (windows.frame < frames.stop)
        runs = list(_runs(windows, inside))
        self._past = self._with_lines(runs, 1.0)
        self._coming = self._with_lines(runs, FADED)

    def place(self, frame: ArrayLike, score: ArrayLike) -> NDArray[np.float64]:
        """Column and row of scores at frames, `(n, 2)`; scores beyond the limits are clipped."""
        # shares of the width and the height, (n,) each
        frame, score = np.atleast_1d(frame), np.atleast_1d(score)
        along = (frame - self._frames[0]) / max(len(self._frames) - 1, 1)
        up = (np.clip(score, self._low, self._high) - self._low) / (self._high - self._low)
        columns = self._left + along * (self._right - self._left)
        return np.stack(np.broadcast_arrays(columns, self._bottom - up * self._tall), axis=1)

    def column(self, frame: float) -> int:
        """The column of a frame."""
        return round(float(self.place(frame, 0.0)[0, 0]))

    def row(self, score: float) -> int:
        """The row of a score."""
        return round(float(self.place(self._frames[0], score)[0, 1]))

    def draw(self, strip: Image, frame: int, spots: list[Spot]) -> None:
        """Draw the strip at a frame: past scores, future scores faded, cursor, current scores."""
        # the past in full colour and the rest faded, both drawn once
        cv2 = opencv("overlay")
        now = self.column(frame)
        strip[:, :now] = self._past[:, :now]
        strip[:, now:] = self._coming[:, now:]
        # the cursor, and the current scores on it, the highest last
        wide = max(round(self._unit), 1)
        strip[self._top : self._bottom + 1, now : now + wide] = LIGHT
        for spot in sorted(spots, key=lambda spot: spot.score):
            (centre,) = fixed(self.place(frame, spot.score)).tolist()
            for ink, radius in ((DARK, 4.5), (self._colours[spot.track_id], 3.2)):
                size = round(radius * self._unit * (1 << SUB))
                cv2.circle(strip, centre, size, ink, -1, cv2.LINE_AA, SUB)
        # the clock above the plot
        words = f"frame {frame}   {clock(frame * self._seconds, tenths=True)}"
        label = plate(words, self._text, PAPER, LIGHT)
        paste(strip, label, self._left - self._text // 4, round(6 * self._unit))

    def _draw_behind(self, abnormal: NDArray[np.bool_] | None) -> None:
        """Draw the axes, the ground truth and the labels."""
        behind, fine = self._behind, max(round(self._unit), 1)
        behind[:fine] = RULE
        right = self._right
        if abnormal is not None:
            for first, end in true_runs(abnormal):
                if first < self._frames.stop and end > self._frames.start:
                    left = max(self.column(first - 0.5), self._left)
                    cut = min(self.column(end - 0.5), self._right)
                    behind[self._top : self._bottom + 1, left : cut + 1] = TRUTH
            right = self._word("true anomaly", right, TRUTH, LIGHT) - self._text // 2
        self._word(self._name, right, PAPER, QUIET)
        # lines at 0 and where red begins, each with its score beside the ramp
        for score, ink in ((0.0, QUIET), (self._scale.red, RED_TEXT)):
            row = self.row(score)
            behind[row : row + fine, self._left : self._right + 1] = RULE if score == 0 else ink
            label = chip(f"{score:.1f}" if score else "0", self._text, PAPER, ink)
            across = self._left - round(12 * self._unit) - label.shape[1]
            paste(behind, label, across, row - self._text // 2)
        self._draw_ramp()
        self._draw_times()

    def _word(self, text: str, right: int, paper: Colour, ink: Colour) -> int:
        """Draw text above the plot, right-aligned at `right`, cut to leave the left half free.

        Returns the left edge of the text.
        """
        half = self._behind.shape[1] // 2
        label = chip(text, self._text, paper, ink)
        while text and right - label.shape[1] < half:
            text = text[:-1]
            label = chip(f"{text}..", self._text, paper, ink)
        if text:
            right -= label.shape[1]
            paste(self._behind, label, right, round(6 * self._unit))
        return right

    def _draw_ramp(self) -> None:
        """Draw the colour scale as a bar along the axis."""
        left, wide = self._left - round(10 * self._unit), round(6 * self._unit)
        for row in range(self._top, self._bottom + 1):
            share = (self._bottom - row) / self._tall
            score = self._low + share * (self._high - self._low)
            self._behind[row, left : left + wide] = self._scale.colour(score)

    def _draw_times(self) -> None:
        """Draw time labels below the axis."""
        # five moments, left out where a label would cover the one before
        frames, taken = self._frames, 0
        for place in np.linspace(frames[0], frames[-1], 5).round().astype(int).tolist():
            text = clock(place * self._seconds, tenths=len(frames) * self._seconds < 10)
            label = chip(text, self._text, PAPER, QUIET)
            left = min(self.column(place) - label.shape[1] // 2, self._right - label.shape[1])
            if left >= taken:
                paste(self._behind, label, left, self._bottom + round(4 * self._unit))
                taken = left + label.shape[1]

    def _with_lines(self, runs: list[ScoreRun], strength: float) -> Image:
        """The strip with the line of every track, its colour at the given strength."""
        cv2 = opencv("overlay")
        strip = self._behind.copy()
        thick = max(round(1.4 * self._unit), 1)
        for track_id, frame, score in runs:
            points = fixed(self.place(frame, score))
            colour = mixed(PAPER, self._colours[track_id], strength)
            if len(points) == 1:
                cv2.circle(strip, points[0].tolist(), thick << SUB, colour, -1, cv2.LINE_AA, SUB)
            cv2.polylines(strip, [points], False, colour, thick, cv2.LINE_AA, SUB)
        return strip


@dataclass(frozen=True, slots=True, eq=False)
class ShownFrames:
    """The frames of a clip to show, with their rate, ground truth and clip name."""

    frames: range
    fps: float
    abnormal: NDArray[np.bool_] | None = None
    """The truth, `(n_frames,)`."""
    name: str = ""
    """Of the clip."""


@dataclass(frozen=True, slots=True)
class Spot:
    """The current score of a track."""

    track_id: int
    score: float


def clock(seconds: float, *, tenths: bool) -> str:
    """Format a time as minutes and seconds, with hours if there are any."""
    whole = round(seconds, 1) if tenths else round(seconds)
    minutes, rest = divmod(whole, 60)
    ending = f"{rest:04.1f}" if tenths else f"{rest:02.0f}"
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02}:{ending}" if hours else f"{minutes}:{ending}"


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
    # in order of their first frames; each colour with the frame from which it is free
    for track in sorted(filter(len, tracks), key=lambda track: int(track.frames[0])):
        own = track.id % len(TRACKS)
        if free_from[own] > track.frames[0]:
            own = free_from.index(min(free_from))
        free_from[own] = int(track.frames[-1]) + 1
        chosen[track.id] = TRACKS[own]
    return chosen


def ink_on(paper: Colour) -> Colour:
    """Dark or light text colour, whichever is more legible (luminance by ITU-R BT.709)."""
    red, green, blue = paper
    return DARK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 125 else LIGHT


def draw_skeleton(
    image: Image,
    joints: NDArray[np.float32],
    bones: Sequence[tuple[int, int]],
    seen: NDArray[np.bool_],
    colour: Colour,
    width: float,
) -> None:
    """Draw the bones and joints `(V, 2)` that are `seen`, `(V,)`, with a dark outline."""
    cv2 = opencv("overlay")
    # bones and joints twice: wide and dark, then in colour
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
    cv2 = opencv("overlay")
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
    cv2 = opencv("overlay")
    face, scale, thick = cv2.FONT_HERSHEY_SIMPLEX, height / 33, max(round(height / 18), 1)
    # as wide as the text with a margin, its base line from the height of a digit
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
    # the part of the patch that lies on the image
    first_x, first_y = max(-left, 0), max(-top, 0)
    part = patch[first_y : max(high - top, 0), first_x : max(wide - left, 0)]
    x, y = left + first_x, top + first_y
    image[y : y + part.shape[0], x : x + part.shape[1]] = part


def fixed(points: NDArray[np.floating[Any]]) -> NDArray[np.int32]:
    """Points in OpenCV's fixed-point format; coordinates are clipped to ±20000 pixels."""
    near = np.clip(points, -20_000, 20_000)
    return np.asarray(np.round(near * (1 << SUB)), np.int32)


def _runs(windows: WindowScores, inside: NDArray[np.bool_]) -> Iterator[ScoreRun]:
    """Yield the tracks as runs of consecutive frames."""
    # windows of the frames shown by track and frame, (n,), cut where a track or a run ends
    order = np.lexsort((windows.frame, windows.track_id))
    order = order[inside[order]]
    track_id, frame, score = windows.track_id[order], windows.frame[order], windows.A[order]
    broken = (np.diff(track_id) != 0) | (np.diff(frame) != 1)
    for part in np.split(np.arange(len(order)), np.flatnonzero(broken) + 1):
        if len(part):
            yield int(track_id[part[0]]), frame[part], score[part]


def _limits(scores: NDArray[np.float32], red: float) -> tuple[float, float]:
    """The lowest and the highest score shown in the strip."""
    lowest, highest = (float(scores.min()), float(scores.max())) if len(scores) else (0.0, 0.0)
    high = min(max(1.05 * highest, HEADROOM * red), MOST_HEADROOM * red)
    return max(min(lowest, -0.1 * high), -0.5 * high), high
