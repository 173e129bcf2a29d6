"""A metric against a setting, one line per method (Supp. B: AUROC over T and K)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.report import plots
from studies.plots import looks
from studies.plots.looks import LineStyle

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scale = Literal["linear", "log2", "log"]

FEW = 12
"""Up to this many points, each gets a marker and a tick."""
LEGEND_COLUMNS = 4
PANEL_INCHES = (4.6, 3.8)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One line: positions `x (n,)`, the `mean (n,)` and the `spread (n,)` over seeds.

    NaN in the mean breaks the line; NaN or 0 in the spread omits the band. `method` selects the
    look and defaults to the line's label; `look` overrides both. `quoted` lines show the paper's
    figures, dashed and without markers. `mark` is an x position to highlight.
    """

    x: NDArray[np.float64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    method: str = ""
    look: LineStyle | None = None
    quoted: bool = False
    mark: float | None = None

    def __post_init__(self) -> None:
        """Check that all arrays have the same shape `(n,)`."""
        shapes = {self.x.shape, self.mean.shape, self.spread.shape}
        if len(shapes) > 1 or self.x.ndim != 1:
            raise DataError(
                f"series: expected x, mean and spread of one shape (n,), got {sorted(shapes)}",
                hint="give one mean and one spread for each place",
            )

    @classmethod
    def of(
        cls,
        values: Mapping[float, Sequence[float]],
        *,
        method: str = "",
        look: LineStyle | None = None,
        quoted: bool = False,
    ) -> Series:
        """Build a series from the values of all seeds at each x; a single seed has no spread."""
        x = sorted(values)
        means = [float(np.mean(values[place])) for place in x]
        spreads = [
            float(np.std(values[place], ddof=1)) if len(values[place]) > 1 else np.nan
            for place in x
        ]
        return cls(
            np.array(x, np.float64), np.array(means), np.array(spreads), method, look, quoted
        )


@dataclass(frozen=True, slots=True)
class AxisLabels:
    """What the axes of a figure show, on which scale."""

    x: str
    y: str
    xscale: Scale = "linear"
    yscale: Scale = "linear"
    ylim: tuple[float, float] | None = None


def draw_curves(
    series: Mapping[str, Series], path: Path, labels: AxisLabels, *, title: str = ""
) -> None:
    """Write a PNG with one panel: a line per series, by label, and a band for its spread."""
    draw_panels({title: series}, path, labels)


def draw_panels(
    panels: Mapping[str, Mapping[str, Series]],
    path: Path,
    labels: AxisLabels,
    *,
    share_y: bool = True,
) -> None:
    """Write a PNG with a panel per data set or split, by title, and one legend below."""
    width, height = PANEL_INCHES
    numbers = {label: n for n, label in enumerate(dict.fromkeys(chain(*panels.values())))}
    room = (width * len(panels)) / (0.6 + 0.085 * max(map(len, numbers), default=1))
    columns = max(1, min(LEGEND_COLUMNS, int(room)))
    legend_height = 0.25 * -(-len(numbers) // columns)
    figure = plots.new_figure(width * len(panels) + 0.6, height + legend_height)
    every = figure.subplots(1, len(panels), sharey=share_y, squeeze=False)[0]
    for axes, (title, lines) in zip(every, panels.items(), strict=True):
        for label, line in lines.items():
            look = line.look or looks.look(line.method or label, numbers[label])
            _draw_line(axes, label, line, look)
        _set_scale(axes, lines, labels.xscale, labels.yscale)
        axes.set_xlabel(labels.x, parse_math=False)
        axes.set_title(title, loc="left", parse_math=False)
        axes.grid(color="#DDDDDD", linewidth=0.6)
        plots.open_axes(axes)
    if labels.ylim is not None:
        every[0].set_ylim(*labels.ylim)
    every[0].set_ylabel(labels.y, parse_math=False)
    _add_legend(figure, every, columns)
    plots.save(figure, path, dpi=130)


def _draw_line(axes: Axes, label: str, line: Series, look: LineStyle) -> None:
    few = len(line.x) <= FEW and not line.quoted
    axes.plot(
        line.x,
        line.mean,
        linestyle="--" if line.quoted else look.line,
        marker=look.marker if few else "",
        color=look.colour,
        linewidth=1.2 if line.quoted else 2.0,
        markersize=6,
        label=label,
    )
    if line.mark is not None:
        at = line.x == line.mark
        axes.plot(line.x[at], line.mean[at], "o", color=look.colour, markersize=8)
    if np.nan_to_num(line.spread).any():
        low, high = line.mean - line.spread, line.mean + line.spread
        axes.fill_between(line.x, low, high, color=look.colour, alpha=0.18, linewidth=0)


def _set_scale(axes: Axes, lines: Mapping[str, Series], xscale: Scale, yscale: Scale) -> None:
    """Set the scales, with plain numbers on the x axis and a tick per x value if there are few."""
    from matplotlib.ticker import NullLocator, ScalarFormatter

    for name, scale in (("x", xscale), ("y", yscale)):
        if scale != "linear":
            base = 2 if scale == "log2" else 10
            (axes.set_xscale if name == "x" else axes.set_yscale)("log", base=base)
    if xscale != "linear":
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    places = sorted({float(x) for line in lines.values() for x in line.x})
    if 0 < len(places) <= FEW:
        axes.set_xticks(places, [f"{place:g}" for place in places])


def _add_legend(figure: Figure, every: Sequence[Axes], columns: int) -> None:
    """Add one legend below all panels, where it hides no line."""
    entries: dict[str, Artist] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    if entries:
        place: Literal["outside lower center"] = "outside lower center"
        handles, labels = [*entries.values()], [*entries]
        figure.legend(handles, labels, loc=place, ncols=columns, frameon=False, borderaxespad=0)
