"""Shared style of all plots: a colour-blind safe palette, and helpers for figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepvad.errors import MissingExtraError
from stepvad.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK = "#000000"
BLUE = "#0072B2"
GREEN = "#009E73"
GREY = "#777777"
ORANGE = "#E69F00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
VERMILION = "#D55E00"
"""The palette of Okabe and Ito, without yellow, which is too pale for lines on white."""
TRUTH = VERMILION
"""Frames labelled abnormal."""


def figure(width: float, height: float) -> Figure:
    """Create an empty figure, sized in inches, that can be saved as PNG without a display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot", "plots") from error
    return FigureCanvasAgg(Figure(figsize=(width, height), layout="constrained")).figure


def save(drawn: Figure, path: Path, *, dpi: int) -> None:
    """Write a PNG, atomically; the same figure always gives the same bytes."""
    with replacing(path) as temporary:
        drawn.savefig(temporary, dpi=dpi, format="png", metadata={"Software": None})


def open_axes(axes: Axes) -> None:
    """Hide the top and right spines."""
    axes.spines[["top", "right"]].set_visible(False)
