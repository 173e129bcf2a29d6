"""Film strips of explained windows, as one picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.explain import Explanation
from stepvad.report import plots
from stepvad.skeletons import COCO17, LEFT_SHOULDER, RIGHT_SHOULDER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_MOMENTS = 5
"""Frames of a film strip, from the first to the last of the window."""
GHOST = "#8CC4EC"
HEAT = plots.VERMILION
"""Joints that raise the score; dot size shows by how much, without relying on colour."""
LARGEST_DOT = 170.0
"""Dot area of the joint that contributes most, in square points."""
NOSE = COCO17.joints.index("nose")


def draw_explanations(explanations: Sequence[Explanation], path: Path) -> None:
    """Write a PNG with a film strip per window, its title above and its body parts beside it."""
    figure = plots.new_figure(1.62 * SHOWN_MOMENTS + 2.6, 3.25 * len(explanations) + 0.3)
    rows = np.atleast_1d(np.array(figure.subfigures(len(explanations), 1), dtype=object))
    for row, explanation in zip(rows, explanations, strict=True):
        grid = row.subplots(1, SHOWN_MOMENTS + 1, width_ratios=[1.0] * SHOWN_MOMENTS + [1.25])
        row.suptitle(title(explanation), fontsize="large", x=0.01, ha="left", parse_math=False)
        _draw_strip(grid[:-1], explanation)
        _draw_parts(grid[-1], explanation)
    rows[-1].supxlabel(
        "black: observed   blue: nearest normal motion   "
        "orange dots: joints that raise the score, larger is more",
        fontsize="large",
    )
    plots.save(figure, path, dpi=100)


def title(explanation: Explanation) -> str:
    """Title of a film strip: clip, track, score, shares of several views, what is unusual."""
    said = "; ".join(explanation.words) or "nothing unusual"
    where = f"{explanation.clip}, track {explanation.track}: score {explanation.score:.1f}"
    if explanation.views:
        where = f"{where} ({explanation.share_words})"
    return textwrap.fill(f"{where}. {said[0].upper()}{said[1:]}", 108)


def shown_frames(n: int) -> NDArray[np.int64]:
    """The frames to draw from a window of n, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, SHOWN_MOMENTS).round().astype(np.int64))


def _draw_strip(panels: Sequence[Axes], explanation: Explanation) -> None:
    """Draw frames centred on the person, all on one scale."""
    # every pose about its own centre, (T, V, 2), all of them in one square
    shown = shown_frames(len(explanation.frames))
    centres = explanation.observed.mean(axis=1, keepdims=True)  # (T, 1, 2)
    observed, ghost = explanation.observed - centres, explanation.ghost - centres
    both = np.concatenate([observed[shown], ghost[shown]]).reshape(-1, 2)
    low, high = both.min(axis=0), both.max(axis=0)
    half = 0.55 * float(max(*(high - low), 1.0))
    middle = (low + high) / 2
    largest = max(float(explanation.contributions.max()), 1e-9)
    for axes in panels:
        axes.set_axis_off()
    for axes, t in zip(panels, shown, strict=False):
        _draw_bones(axes, ghost[t], explanation, colour=GHOST, wide=5.0)
        _draw_bones(axes, observed[t], explanation, colour="#333333", wide=1.6)
        # a dot on each joint that raises the score, its area in proportion
        across, down = observed[t].T
        dots = LARGEST_DOT * np.clip(explanation.contributions[t] / largest, 0, 1)
        axes.scatter(across, down, dots, color=HEAT, zorder=3, linewidths=0, clip_on=False)
        axes.set(
            xlim=(middle[0] - half, middle[0] + half),
            ylim=(middle[1] + half, middle[1] - half),
            aspect="equal",
        )
        axes.set_title(f"frame {explanation.frames[t]}", fontsize="medium", y=-0.08)


def _draw_bones(
    axes: Axes, points: NDArray[np.float32], explanation: Explanation, *, colour: str, wide: float
) -> None:
    """Draw one pose: bones, or joints if the skeleton has no bones."""
    from matplotlib.collections import LineCollection

    if not explanation.skeleton.bones:
        axes.plot(*points.T, ".", color=colour, markersize=2 * wide)
        return
    bones = [points[[*bone]] for bone in explanation.skeleton.bones]
    if explanation.skeleton == COCO17:  # COCO has no bone between head and shoulders
        bones.append(np.stack([points[NOSE], points[[LEFT_SHOULDER, RIGHT_SHOULDER]].mean(axis=0)]))
    axes.add_collection(LineCollection(bones, colors=colour, linewidths=wide, capstyle="round"))


def _draw_parts(axes: Axes, explanation: Explanation) -> None:
    """Draw the share of the score by body part, and by meaning of the other views."""
    least = 0.005 if explanation.views else 0.0
    parts = [part for part in explanation.parts if part.share > least][:6]
    places = range(len(parts))
    axes.barh(places, [100 * part.share for part in parts], color=HEAT, height=0.6)
    axes.set_yticks(places, [part.name for part in parts])
    for place, part in zip(places, parts, strict=True):
        axes.text(100 * part.share + 2, place, f"{100 * part.share:.0f} %", va="center")
    axes.set(xlim=(0, 135), ylim=(5.6, -0.6), xticks=[])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_title("share of the score", fontsize="medium")
