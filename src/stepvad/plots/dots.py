"""Dot plots: the values of many cases with their intervals, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepvad.plots import style

ROW_INCHES = 0.3
PANEL_INCHES = 3.4


@dataclass(frozen=True, slots=True)
class Dot:
    """One case: its value, its interval, and the method that selects its look."""

    label: str
    method: str
    value: float
    low: float
    high: float


def draw_dots(panels: Mapping[str, Sequence[Dot]], path: Path, xlabel: str) -> None:
    """Write a PNG: a panel per data set, by title, with a row per case.

    The dashed line marks the first case, the baseline of the others.
    """
    rows = max(len(dots) for dots in panels.values())
    widest = max(len(dot.label) for dots in panels.values() for dot in dots)
    figure = style.figure(PANEL_INCHES * len(panels) + 0.075 * widest, ROW_INCHES * rows + 1.0)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, dots) in zip(every, panels.items(), strict=True):
        axes.axvline(dots[0].value, color="#999999", linewidth=1, linestyle="--")
        for row, dot in enumerate(dots):
            look = style.look(dot.method)
            axes.plot([dot.low, dot.high], [row, row], color=look.colour, linewidth=1.5)
            axes.plot([dot.value], [row], look.marker, color=look.colour, markersize=6)
        axes.set_yticks(range(len(dots)), [dot.label for dot in dots], parse_math=False)
        axes.set_xlabel(xlabel, parse_math=False)
        axes.set_title(title, loc="left", parse_math=False)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
        style.open_axes(axes)
    every[0].invert_yaxis()
    style.save(figure, path, dpi=130)
