"""Dot plots: the values of many cases with their intervals, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepvad.report import plots
from studies.plots.looks import look as look_of

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
    """Write a PNG: a panel per data set, by title, with a row per label in all of them.

    The dashed line marks the first case of a panel, the baseline of the others.
    """
    labels = [*dict.fromkeys(dot.label for dots in panels.values() for dot in dots)]
    widest = max(map(len, labels))
    height = ROW_INCHES * len(labels) + 1.0
    figure = plots.new_figure(PANEL_INCHES * len(panels) + 0.075 * widest, height)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, dots) in zip(every, panels.items(), strict=True):
        axes.axvline(dots[0].value, color="#999999", linewidth=1, linestyle="--")
        for dot in dots:
            row, look = labels.index(dot.label), look_of(dot.method)
            axes.plot([dot.low, dot.high], [row, row], color=look.colour, linewidth=1.5)
            axes.plot([dot.value], [row], look.marker, color=look.colour, markersize=6)
        axes.set_yticks(range(len(labels)), labels, parse_math=False)
        axes.set_xlabel(xlabel, parse_math=False)
        axes.set_title(title, loc="left", parse_math=False)
        axes.grid(axis="x", color="#DDDDDD", linewidth=0.6)
        plots.open_axes(axes)
    every[0].invert_yaxis()
    plots.save(figure, path, dpi=130)
