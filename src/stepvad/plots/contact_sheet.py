"""Contact sheets: rows of skeletons, one person per row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.plots import style
from stepvad.poses import Track
from stepvad.skeletons import COCO17, Skeleton

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEFT_COLOUR = style.BLUE
RIGHT_COLOUR = style.VERMILION
MIDDLE_COLOUR = "#555555"
"""Colours of the body's sides, distinguishable for colour-blind readers."""
PANEL_INCHES = 1.05
PANEL_HEIGHT = 1.25
"""In widths of a panel, as are the two below."""
FEET = 0.95
"""Distance of the feet from the top of the panel."""
BODY = 0.73
"""Height of the tallest pose of a strip."""


@dataclass(frozen=True, slots=True, eq=False)
class PersonStrip:
    """One row: a title, a track, and the indices of the poses to show."""

    title: str
    track: Track
    poses: NDArray[np.int64]


def spread(chosen: NDArray[np.bool_], n: int) -> NDArray[np.int64]:
    """Indices of up to n chosen poses, evenly spaced from the first to the last."""
    numbers = np.flatnonzero(chosen)
    return numbers[np.unique(np.linspace(0, len(numbers) - 1, n).round().astype(np.int64))]


def draw_contact_sheet(
    strips: Sequence[PersonStrip], path: Path, *, skeleton: Skeleton = COCO17
) -> None:
    """Write a PNG with a row per strip; faint bones have low confidence, arrows show direction."""
    columns = max((len(strip.poses) for strip in strips), default=1)
    tall = PANEL_HEIGHT * max(len(strips), 1)
    figure = style.figure(PANEL_INCHES * (columns + 1), PANEL_INCHES * tall)
    # One coordinate system for all panels: one for each takes many times as long.
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-1, columns), ylim=(tall, 0))
    axes.set_axis_off()
    for row, strip in enumerate(strips):
        middle = (row + 0.5) * PANEL_HEIGHT
        axes.text(-0.05, middle, strip.title, ha="right", va="center", parse_math=False)
        for column in range(len(strip.poses)):
            _draw_pose(axes, strip, row, column, skeleton)
    style.save(figure, path, dpi=100)


def _draw_pose(axes: Axes, strip: PersonStrip, row: int, column: int, skeleton: Skeleton) -> None:
    """Draw one pose in its panel, the feet of everybody at the same height."""
    from matplotlib.collections import LineCollection

    pose, feet = strip.poses[column], row * PANEL_HEIGHT + FEET
    tall = max(float(np.ptp(strip.track.keypoints[strip.poses, :, 1], axis=1).max()), 1.0)
    seen, confidence = strip.track.keypoints[pose], strip.track.confidence[pose]
    origin = np.array([seen[:, 0].mean(), seen[:, 1].max()])
    points = (seen - origin) * (BODY / tall) + (column + 0.5, feet)
    bones = [[*bone] for bone in skeleton.bones]
    sure = [float(np.clip(np.nan_to_num(confidence[ends].min()), 0.15, 1)) for ends in bones]
    colours = [(_colour(skeleton, bone), a) for bone, a in zip(skeleton.bones, sure, strict=True)]
    lines = [points[ends] for ends in bones]
    axes.add_collection(
        LineCollection(lines, colors=colours, linewidths=1.6, capstyle="projecting"),
        autolim=False,
    )
    _draw_arrow(axes, _way(strip, column) / tall, (column + 0.5, feet + 0.14 * BODY))
    number = f"{strip.track.frames[pose]}"
    axes.text(column + 0.5, feet - 1.12 * BODY, number, ha="center", size=6, color=MIDDLE_COLOUR)


def _way(strip: PersonStrip, column: int) -> NDArray[np.float64]:
    """Where the person goes between the poses before and after this one, in pixels."""
    before, after = strip.poses[max(column - 1, 0)], strip.poses[column : column + 2][-1]
    before_xy, after_xy = strip.track.keypoints[[before, after]].mean(axis=1, dtype=np.float64)
    return after_xy - before_xy


def _draw_arrow(axes: Axes, way: NDArray[np.float64], start: tuple[float, float]) -> None:
    """Draw the direction of somebody who moves, `way` in heights of the person."""
    if np.abs(way).max() <= 0.1:
        return
    x, y = 0.35 * BODY * way / np.linalg.norm(way)
    axes.annotate(
        "",
        xy=(start[0] + x, start[1] + y / 3),
        xytext=start,
        arrowprops={"arrowstyle": "->", "color": MIDDLE_COLOUR},
    )


def _colour(skeleton: Skeleton, bone: tuple[int, int]) -> str:
    sides = {skeleton.joints[end].partition("_")[0] for end in bone}
    if "left" in sides and "right" not in sides:
        return LEFT_COLOUR
    return RIGHT_COLOUR if "right" in sides and "left" not in sides else MIDDLE_COLOUR
