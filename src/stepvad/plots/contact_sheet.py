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
    size = (PANEL_INCHES * (columns + 1), 1.25 * PANEL_INCHES * max(len(strips), 1))
    figure = style.figure(*size)
    for row, strip in enumerate(strips):
        tall = float(np.ptp(strip.track.keypoints[strip.poses, :, 1], axis=1).max())
        for column in range(columns + 1):
            axes = figure.add_subplot(len(strips), columns + 1, row * (columns + 1) + column + 1)
            axes.set_axis_off()
            if column == 0:
                axes.text(1, 0.5, strip.title, ha="right", va="center", parse_math=False)
            elif column <= len(strip.poses):
                _draw_pose(axes, strip, column - 1, max(tall, 1.0), skeleton)
    style.save(figure, path, dpi=100)


def _draw_pose(
    axes: Axes, strip: PersonStrip, number: int, tall: float, skeleton: Skeleton
) -> None:
    """Draw one pose, feet at the bottom of the panel."""
    pose = strip.poses[number]
    points, confidence = strip.track.keypoints[pose], strip.track.confidence[pose]
    middle, feet = points[:, 0].mean(), points[:, 1].max()
    for bone in skeleton.bones:
        ends = list(bone)
        sure = float(np.clip(np.nan_to_num(confidence[ends].min()), 0.15, 1))
        colour = _colour(skeleton, bone)
        axes.plot(*points[ends].T, color=colour, alpha=sure, linewidth=1.6)
    after = strip.poses[min(number + 1, len(strip.poses) - 1)]
    before = strip.poses[max(number - 1, 0)]
    way = strip.track.keypoints[after].mean(axis=0) - strip.track.keypoints[before].mean(axis=0)
    if np.abs(way).max() > 0.1 * tall:
        way *= 0.35 * tall / np.linalg.norm(way)
        axes.annotate(
            "",
            xy=(middle + way[0], feet + (0.14 * tall) + way[1] / 3),
            xytext=(middle, feet + 0.14 * tall),
            arrowprops={"arrowstyle": "->", "color": MIDDLE_COLOUR},
        )
    axes.set(
        xlim=(middle - 0.65 * tall, middle + 0.65 * tall),
        ylim=(feet + 0.3 * tall, feet - 1.1 * tall),
        aspect="equal",
    )
    axes.set_title(f"{strip.track.frames[pose]}", fontsize=6, color=MIDDLE_COLOUR, pad=1)


def _colour(skeleton: Skeleton, bone: tuple[int, int]) -> str:
    sides = {skeleton.joints[end].partition("_")[0] for end in bone}
    if "left" in sides and "right" not in sides:
        return LEFT_COLOUR
    return RIGHT_COLOUR if "right" in sides and "left" not in sides else MIDDLE_COLOUR
