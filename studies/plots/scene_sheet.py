"""Sheets of frames from several clips with all people as skeletons, for visual inspection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.poses import Clip, Track
from stepvad.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (plots.BLUE, plots.GREEN, plots.PURPLE, plots.ORANGE, plots.SKY, "#999999")
"""Colours of people, in turn; without the colour of the ground truth."""
MARGIN = 1.1
"""Size of the view relative to the people's extent."""
FAINT = 0.3
"""Confidence below which bones are drawn thin."""


@dataclass(frozen=True, slots=True, eq=False)
class ClipStrip:
    """One row of a sheet: a clip, a caption, the frames to draw and the abnormal frames."""

    clip: Clip
    caption: str
    frames: Sequence[int]
    abnormal: NDArray[np.bool_]


def draw_scenes(
    strips: Sequence[ClipStrip], path: Path, *, size: tuple[int, int], title: str, dpi: int = 75
) -> None:
    """Write a PNG: a row per strip, a panel per frame, outlined in orange where abnormal.

    `size` is the width and height of the video; each row is cropped to the people in it.
    """
    columns = max((len(strip.frames) for strip in strips), default=1)
    width = 3.2 * columns
    height = (3.2 * size[1] / size[0] + 0.15) * max(len(strips), 1) + 0.4
    figure = plots.new_figure(width, height)
    grid = figure.subplots(max(len(strips), 1), columns, squeeze=False)
    figure.suptitle(title, parse_math=False, fontsize="medium")
    for row, strip in zip(grid, strips, strict=False):
        part = _part_with_people(strip, size)
        for axes, frame in zip(row, strip.frames, strict=False):
            _draw_frame(axes, strip, frame, part)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    plots.save(figure, path, dpi=dpi)


def _part_with_people(strip: ClipStrip, size: tuple[int, int]) -> NDArray[np.float64]:
    """The crop of a row as left, top, right and bottom, with the video's aspect ratio."""
    points = [
        track.keypoints[np.isin(track.frames, strip.frames)].reshape(-1, 2)
        for track in strip.clip.tracks
    ]
    people = np.concatenate([np.empty((0, 2)), *points])
    if not len(people):
        return np.array([0.0, 0.0, *size])
    low, high = people.min(axis=0), people.max(axis=0)
    zoom = max(float(((high - low) / size).max()) * MARGIN, 0.1)
    middle, half = (low + high) / 2, zoom * np.array(size) / 2
    return np.concatenate([middle - half, middle + half])


def _draw_frame(axes: Axes, strip: ClipStrip, frame: int, part: NDArray[np.float64]) -> None:
    """Draw one frame, y downwards as in the video."""
    for number, track in enumerate(strip.clip.tracks):
        at = np.searchsorted(track.frames, frame)
        if at < len(track) and track.frames[at] == frame:
            _draw_person(axes, strip.clip, track, int(at), COLOURS[number % len(COLOURS)])
    left, top, right, bottom = part
    axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    axes.set_title(f"{strip.caption}, {frame}", fontsize=7, pad=2, loc="left", parse_math=False)
    if strip.abnormal[frame]:
        for spine in axes.spines.values():
            spine.set(color=plots.TRUTH, linewidth=2.5)


def _draw_person(axes: Axes, clip: Clip, track: Track, at: int, colour: str) -> None:
    points, confidence = track.keypoints[at], track.confidence[at]
    for a, b in clip.skeleton.bones:
        sure = min(confidence[a], confidence[b]) >= FAINT
        axes.plot(
            points[[a, b], 0],
            points[[a, b], 1],
            color=colour,
            linewidth=1.3 if sure else 0.4,
            solid_capstyle="round",
        )
