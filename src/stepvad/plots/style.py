"""Shared style of all plots: a colour-blind safe palette, and helpers for figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stepvad.errors import MissingExtraError
from stepvad.files.atomic import replacing

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
OTHERS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
"""Colours for methods without a look, in turn."""
STROKES = ("-", "--", ":", "-.")
"""Line styles for lines of one colour, in turn."""
TRUTH = VERMILION
"""Frames labelled abnormal."""


@dataclass(frozen=True, slots=True)
class LineStyle:
    """Style of a line: colour, stroke and marker, distinguishable without colour."""

    colour: str
    line: str = "-"
    marker: str = "o"


LOOKS: Mapping[str, LineStyle] = {
    "step": LineStyle(BLUE, "-", "D"),
    "step-unweighted": LineStyle(BLUE, ":", "d"),
    "step-unwhitened": LineStyle(BLUE, "-.", "d"),
    "pca-anomalies": LineStyle(BLUE, "--", "d"),
    "views": LineStyle(BLUE, "-", "*"),
    "vanilla": LineStyle(SKY, "-", "p"),
    "raw-modulated": LineStyle(VERMILION, "--", "D"),
    "raw-modulated-unweighted": LineStyle(VERMILION, "-.", "D"),
    "raw": LineStyle(VERMILION, "-", "s"),
    "raw-unweighted": LineStyle(VERMILION, ":", "s"),
    "knn": LineStyle(GREEN, "-", "o"),
    "knn-5": LineStyle(GREEN, "--", "o"),
    "knn-unweighted": LineStyle(GREEN, ":", "o"),
    "knn-unwhitened": LineStyle(GREEN, "-.", "o"),
    "mahalanobis": LineStyle(BLACK, "-", "x"),
    "persons": LineStyle("#555555", "--", "."),
    "confidence": LineStyle("#888888", "-.", "."),
    "random": LineStyle("#AAAAAA", ":", "."),
    "speed": LineStyle("#666666", "-", ">"),
    "place": LineStyle("#999999", "-", "h"),
}
"""Looks by method: a family shares a colour and differs in stroke; trivial methods are grey."""


def look(method: str, number: int = 0) -> LineStyle:
    """The look of a method in every figure; unknown methods get a colour by number."""
    if method in LOOKS:
        return LOOKS[method]
    family = method.replace("-", " ").split(" ")[0]
    if family in LOOKS:
        return LOOKS[family]
    return LineStyle(OTHERS[number % len(OTHERS)])


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
