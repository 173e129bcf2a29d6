"""Draw what walkers do: a row for each activity, seen from the side.

python -m studies walkers-sheet contact-sheet.png --seed 0
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.evaluation.walker_motion import FPS
from stepvad.evaluation.walkers import EVENTS, make_clips
from stepvad.poses import Track
from stepvad.report import plots
from stepvad.skeletons import COCO17, LEFT_SHOULDER, RIGHT_SHOULDER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDES = {"left": plots.BLUE, "right": plots.VERMILION}
MIDDLE_COLOUR = "#555555"
"""Colours of the body's sides, distinguishable for colour-blind readers."""
PANEL_INCHES = 1.05
PANEL_HEIGHT = 1.25
"""In widths of a panel, as is the next."""
BODY = 0.73
"""Height of the tallest pose of a strip."""
SHOULDERS = [LEFT_SHOULDER, RIGHT_SHOULDER]
HIPS = [COCO17.joints.index("left_hip"), COCO17.joints.index("right_hip")]
SHOWN = round(2.4 * FPS)
"""Frames in a strip."""
TITLES = ("walk", "stand", *(event for event in EVENTS if event))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, help="a .png file")
    parser.add_argument("--seed", type=int, default=0, help="of the walkers")
    given = parser.parse_args(arguments)
    draw_contact_sheet(strips(seed=given.seed), given.output)
    print(given.output)


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


def draw_contact_sheet(strips: Sequence[PersonStrip], path: Path) -> None:
    """Write a PNG with a row per strip; faint bones have low confidence, arrows show direction."""
    columns = max((len(strip.poses) for strip in strips), default=1)
    tall = PANEL_HEIGHT * max(len(strips), 1)
    figure = plots.new_figure(PANEL_INCHES * (columns + 1), PANEL_INCHES * tall)
    # One coordinate system for all panels: one for each takes many times as long.
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-1, columns), ylim=(tall, 0))
    axes.set_axis_off()
    for row, strip in enumerate(strips):
        middle = (row + 0.5) * PANEL_HEIGHT
        axes.text(-0.05, middle, strip.title, ha="right", va="center", parse_math=False)
        for column in range(len(strip.poses)):
            _draw_pose(axes, strip, row, column)
    plots.save(figure, path, dpi=100)


def _draw_pose(axes: Axes, strip: PersonStrip, row: int, column: int) -> None:
    """Draw one pose in its panel, the feet of everybody at the same height."""
    from matplotlib.collections import LineCollection

    pose, middle, feet = strip.poses[column], column + 0.5, row * PANEL_HEIGHT + 0.95
    seen, confidence = strip.track.keypoints[pose], strip.track.confidence[pose]
    # from pixels to the sheet: one scale for the strip, the feet of each pose on one line, (V, 2)
    tall = max(float(np.ptp(strip.track.keypoints[strip.poses, :, 1], axis=1).max()), 1.0)
    origin = np.array([seen[:, 0].mean(), seen[:, 1].max()])
    points = (seen - origin) * (BODY / tall) + (middle, feet)
    # bones in the colour of their side, faint where a joint is uncertain
    lines, colours = [], []
    for bone in map(list, COCO17.bones):
        own = {COCO17.joints[end].partition("_")[0] for end in bone} & SIDES.keys()
        colour = SIDES[own.pop()] if len(own) == 1 else MIDDLE_COLOUR
        lines.append(points[bone])
        colours.append((colour, float(np.clip(np.nan_to_num(confidence[bone].min()), 0.15, 1))))
    axes.add_collection(
        LineCollection(lines, colors=colours, linewidths=1.6, capstyle="projecting"),
        autolim=False,
    )
    # an arrow for somebody who moves from the pose before to the one after, in body heights
    ends = [strip.poses[max(column - 1, 0)], strip.poses[column : column + 2][-1]]
    before, after = strip.track.keypoints[ends].mean(axis=1, dtype=np.float64)
    way = (after - before) / tall
    if np.abs(way).max() > 0.1:
        x, y = 0.35 * BODY * way / np.linalg.norm(way)
        axes.annotate(
            "",
            xy=(middle + x, feet + 0.14 * BODY + y / 3),
            xytext=(middle, feet + 0.14 * BODY),
            arrowprops={"arrowstyle": "->", "color": MIDDLE_COLOUR},
        )
    number = f"{strip.track.frames[pose]}"
    axes.text(middle, feet - 1.12 * BODY, number, ha="center", size=6, color=MIDDLE_COLOUR)


def strips(*, seed: int, columns: int = 10, rounds: int = 4) -> list[PersonStrip]:
    """One strip per activity, chosen from the first clips of a seed.

    Among the candidates of `rounds` rounds of events, the strip seen most from the side is chosen.
    """
    n_clips = rounds * len(EVENTS)
    found = [*_normal(n_clips, seed, columns)]
    # the first frames of the event of each clip's first person
    for clip, truth in make_clips(n_clips, seed=seed, anomalies=True):
        for track in clip.tracks:
            acts = np.flatnonzero(truth.abnormal[track.frames])
            if track.id == 1 and len(acts) > SHOWN // 2:
                (event,) = truth.classes
                found.append(_strip(event, track, acts[:SHOWN], columns))
    # the shoulders of people seen from the side appear narrow
    best = {strip.title: strip for strip in sorted(found, key=_breadth, reverse=True)}
    return [best[title] for title in TITLES if title in best]


def _normal(n_clips: int, seed: int, columns: int) -> Iterator[PersonStrip]:
    """Yield the fastest and slowest moments of people in training clips."""
    for clip, _ in make_clips(n_clips, seed=seed):
        for track in clip.tracks:
            # the way of the hips over one strip from each pose, in heights of the person
            hips = track.keypoints[:, HIPS].mean(axis=1, dtype=np.float64)
            tall = np.ptp(track.keypoints[..., 1], axis=1)[:-SHOWN]
            way = np.linalg.norm(hips[SHOWN:] - hips[:-SHOWN], axis=1) / tall
            for title, fits, start in (
                ("walk", way > 1, np.argmax(np.append(way, 0))),
                ("stand", way < 0.05, np.argmin(np.append(way, 1))),
            ):
                if fits.any():
                    yield _strip(title, track, np.arange(start, start + SHOWN), columns)


def _strip(title: str, track: Track, poses: NDArray[np.int64], columns: int) -> PersonStrip:
    chosen = np.zeros(len(track), dtype=np.bool_)
    chosen[poses] = True
    return PersonStrip(title, track, spread(chosen, columns))


def _breadth(strip: PersonStrip) -> float:
    """Apparent shoulder width; small for people seen from the side."""
    points = strip.track.keypoints[strip.poses]
    apart = np.abs(np.diff(points[:, SHOULDERS, 0], axis=1)).mean()
    return float(apart / np.ptp(points[..., 1], axis=1).max())
