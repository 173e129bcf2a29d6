"""Plots of windows as skeletons, early frames light and late frames dark (Supp. D)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.report import plots
from stepvad.skeletons import Skeleton

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADES = ("#8EC1E8", plots.BLUE, "#062B49")
"""Light to dark, one per frame drawn: the first, the middle and the last of the window."""
GHOST = "#CCCCCC"
PANEL_INCHES = 1.75
"""Height of a panel."""


@dataclass(frozen=True, slots=True, eq=False)
class SequenceRow:
    """A labelled row of windows `(n, 2, V, T)`, each over an optional ghost in grey."""

    label: str
    windows: NDArray[np.float32]
    ghosts: NDArray[np.float32] | None = None


def draw_sequences(
    rows: Sequence[SequenceRow],
    columns: Sequence[str],
    path: Path,
    *,
    skeleton: Skeleton,
    caption: str = "",
    apart: float = 0.0,
) -> None:
    """Write a PNG: a panel per window, all on one scale, and a caption below.

    Frames are drawn in place, or spaced `apart` horizontally, in units of the window.
    """
    apart *= _direction(rows[0].windows[0])
    (left, right), (top, bottom) = _limits(rows, apart)
    wide = PANEL_INCHES * (right - left) / (bottom - top)
    figure = plots.new_figure(wide * len(columns) + 1.1, PANEL_INCHES * len(rows) + 0.6)
    grid = figure.subplots(len(rows), len(columns), squeeze=False)
    for axes_row, row in zip(grid, rows, strict=True):
        for number, axes in enumerate(axes_row):
            if row.ghosts is not None:
                _draw_window(axes, row.ghosts[number], skeleton, apart, [GHOST] * len(SHADES))
            _draw_window(axes, row.windows[number], skeleton, apart, SHADES)
            axes.set(xlim=(left, right), ylim=(bottom, top), aspect="equal", xticks=[], yticks=[])
            axes.spines[:].set(color="#DDDDDD")
        axes_row[0].set_ylabel(
            row.label, rotation=0, ha="right", va="center", fontsize="large", parse_math=False
        )
    for axes, words in zip(grid[0], columns, strict=True):
        axes.set_title(words, parse_math=False)
    figure.supxlabel(caption, parse_math=False, fontsize="large")
    plots.save(figure, path, dpi=100)


def shown_frames(n: int) -> NDArray[np.int64]:
    """The frames to draw from a window of n, from the first to the last."""
    return np.linspace(0, n - 1, min(n, len(SHADES))).round().astype(np.int64)


def _direction(window: NDArray[np.float32]) -> float:
    """1 if the person moves right or stays, -1 if left; frames are spaced in that direction."""
    return -1.0 if window[0, :, -1].mean() < window[0, :, 0].mean() else 1.0


def _limits(rows: Sequence[SequenceRow], apart: float) -> NDArray[np.float64]:
    """Axis limits in x and y: nearly all joints of all windows, plus a margin."""
    places = np.concatenate([_places(row.windows, apart) for row in rows], axis=1)  # (2, n)
    low, high = np.quantile(places, [0.001, 0.999], axis=1)
    margin = 0.05 * (high - low)
    return np.stack([low - margin, high + margin], axis=1)


def _places(windows: NDArray[np.float32], apart: float) -> NDArray[np.float64]:
    """Coordinates of the joints in all frames drawn, `(2, n)`."""
    shown = windows[..., shown_frames(windows.shape[3])].astype(np.float64)  # (n, 2, V, frames)
    n = shown.shape[3]
    shown[:, 0] += apart * (np.arange(n) - (n - 1) / 2)
    return shown.transpose(1, 0, 2, 3).reshape(2, -1)


def _draw_window(
    axes: Axes,
    window: NDArray[np.float32],
    skeleton: Skeleton,
    apart: float,
    colours: Sequence[str],
) -> None:
    """Draw one window frame by frame: bones, or joints if the skeleton has no bones."""
    from matplotlib.collections import LineCollection

    places = _places(window[None], apart).reshape(2, skeleton.V, -1)
    for number in range(places.shape[2]):
        points = places[..., number].T  # (V, 2)
        colour = colours[number]
        if skeleton.bones:
            bones = [points[[*bone]] for bone in skeleton.bones]
            axes.add_collection(
                LineCollection(bones, colors=colour, linewidths=1.8, capstyle="round")
            )
        else:
            axes.plot(*points.T, ".", color=colour)
