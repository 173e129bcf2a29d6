"""Heat maps of a metric over T and K, one panel per method (Supp. C)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

COLOUR_MAP = "viridis"
"""Dark blue to yellow with increasing lightness: legible without colour."""
CELL_INCHES = (0.66, 0.46)
MISSING = "#F2F2F2"


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Values `(len(K), len(T))` for windows of T frames and K components; NaN if missing."""

    T: tuple[int, ...]
    K: tuple[int, ...]
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Check that there is a cell for every T and K."""
        if self.values.shape != (len(self.K), len(self.T)) or not self.values.size:
            raise DataError(
                f"grid: expected at least one cell and values of shape "
                f"({len(self.K)}, {len(self.T)}), got {self.values.shape}",
                hint="give a row for each K and a column for each T",
            )

    @classmethod
    def of(cls, cells: Mapping[tuple[int, int], float]) -> Grid:
        """Build the grid of all T and K that occur in cells `(T, K)`; the others are NaN."""
        T = tuple(sorted({t for t, _ in cells}))
        K = tuple(sorted({k for _, k in cells}))
        return cls(T, K, np.array([[cells.get((t, k), np.nan) for t in T] for k in K], np.float64))

    def best(self) -> tuple[int, int] | None:
        """Row and column of the highest value, the first of several; None if all are missing."""
        if np.isnan(self.values).all():
            return None
        row, column = np.unravel_index(np.nanargmax(self.values), self.values.shape)
        return int(row), int(column)


def draw_heatmaps(
    panels: Mapping[str, Grid],
    path: Path,
    *,
    label: str = "AUROC (%)",
    xlabel: str = "frames in a window, T",
    ylabel: str = "components, K",
    digits: int = 1,
) -> None:
    """Write a PNG: a panel per method, by title, one colour scale, the best cell framed.

    K increases upwards; a cell without a value, such as K above the rank, stays blank.
    """
    if not panels:
        raise DataError("heat maps: expected at least one panel, got none", hint="give one grid")
    width = sum(max(len(grid.T) * CELL_INCHES[0], 2.0) + 0.3 for grid in panels.values())
    height = max(len(grid.K) for grid in panels.values()) * CELL_INCHES[1]
    figure = plots.new_figure(width + 1.6, height + 1.1)
    shares = [max(len(grid.T), 3) for grid in panels.values()]
    every = figure.subplots(1, len(panels), squeeze=False, width_ratios=shares)[0]
    colours = _colours([grid.values for grid in panels.values()])
    for axes, (title, grid) in zip(every, panels.items(), strict=True):
        _draw_grid(axes, grid, colours, digits)
        axes.set_title(title, loc="left", parse_math=False)
        axes.set_xlabel(xlabel, parse_math=False)
    every[0].set_ylabel(ylabel, parse_math=False)
    figure.colorbar(colours, ax=[*every], label=label, pad=0.02, fraction=0.04)
    plots.save(figure, path, dpi=130)


def _colours(values: list[NDArray[np.float64]]) -> ScalarMappable:
    """One colour scale from the lowest to the highest value of all panels."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    present = np.concatenate([part[~np.isnan(part)] for part in values])
    low, high = (present.min(), present.max()) if len(present) else (0.0, 1.0)
    margin = 0.5 if low == high else 0.0
    return ScalarMappable(Normalize(float(low - margin), float(high + margin)), COLOUR_MAP)


def _draw_grid(axes: Axes, grid: Grid, colours: ScalarMappable, digits: int) -> None:
    from matplotlib.patches import Rectangle

    axes.set_facecolor(MISSING)
    painted = colours.to_rgba(np.ma.masked_invalid(grid.values))
    painted[np.isnan(grid.values)] = 0
    axes.imshow(painted, origin="lower", aspect="auto", interpolation="nearest")
    for (row, column), value in np.ndenumerate(grid.values):
        if not np.isnan(value):
            bold = "bold" if (row, column) == grid.best() else "normal"
            ink = _ink(painted[row, column])
            axes.text(
                column, row, f"{value:.{digits}f}", ha="center", va="center", color=ink, weight=bold
            )
    if (best := grid.best()) is not None:
        row, column = best
        corner = (column - 0.46, row - 0.46)
        axes.add_patch(
            Rectangle(corner, 0.92, 0.92, fill=False, edgecolor=plots.VERMILION, linewidth=2.5)
        )
    axes.set_xticks(range(len(grid.T)), [str(t) for t in grid.T])
    axes.set_yticks(range(len(grid.K)), [str(k) for k in grid.K])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _ink(colour: NDArray[np.float64]) -> str:
    """Black or white, whichever has more contrast with a cell (WCAG relative luminance)."""
    luminance = float(colour[:3] ** 2.2 @ (0.2126, 0.7152, 0.0722))
    return "black" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "white"
