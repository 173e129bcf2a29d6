"""What all pictures share: colours that colour-blind readers tell apart, and bare figures."""

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
"""The colours of Okabe and Ito, without their yellow, which is too pale for lines on white."""
OTHERS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
"""For what has no colour of its own, in turn."""
STROKES = ("-", "--", ":", "-.")
"""For lines of one colour, in turn."""
TRUTH = VERMILION
"""Frames that are truly abnormal."""


@dataclass(frozen=True, slots=True)
class Look:
    """How a line is drawn: colour, stroke and marker, so that it is known without colour too."""

    colour: str
    line: str = "-"
    marker: str = "o"


LOOKS: Mapping[str, Look] = {
    "step": Look(BLUE, "-", "D"),
    "step-unweighted": Look(BLUE, ":", "d"),
    "step-unwhitened": Look(BLUE, "-.", "d"),
    "pca-anomalies": Look(BLUE, "--", "d"),
    "vanilla": Look(SKY, "-", "p"),
    "raw": Look(VERMILION, "-", "s"),
    "raw-unweighted": Look(VERMILION, ":", "s"),
    "knn": Look(GREEN, "-", "o"),
    "knn-5": Look(GREEN, "--", "o"),
    "knn-unweighted": Look(GREEN, ":", "o"),
    "knn-unwhitened": Look(GREEN, "-.", "o"),
    "mahalanobis": Look(BLACK, "-", "x"),
    "autoencoder": Look(PURPLE, "-", "^"),
    "autoencoder-anomalies": Look(PURPLE, "--", "^"),
    "vae": Look(ORANGE, "-", "v"),
    "vae-anomalies": Look(ORANGE, "--", "v"),
    "persons": Look("#555555", "--", "."),
    "confidence": Look("#888888", "-.", "."),
    "random": Look("#AAAAAA", ":", "."),
}
"""Methods by name: a family shares its colour, its members differ in stroke; trivial ones grey."""


def look(method: str, number: int = 0) -> Look:
    """How a method is drawn in every figure; what nobody knows takes a colour by its number."""
    if method in LOOKS:
        return LOOKS[method]
    family = method.replace("-", " ").split(" ")[0]
    if family in LOOKS:
        return LOOKS[family]
    return Look(OTHERS[number % len(OTHERS)])


def figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches that can be saved as PNG, without a display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot", "plots") from error
    return FigureCanvasAgg(Figure(figsize=(width, height), layout="constrained")).figure


def save(drawn: Figure, path: Path, *, dpi: int) -> None:
    """Write a PNG; the same figure gives the same bytes."""
    with replacing(path) as temporary:
        drawn.savefig(temporary, dpi=dpi, format="png", metadata={"Software": None})


def open_axes(axes: Axes) -> None:
    """Leave the frame of a plot open above and to the right."""
    axes.spines[["top", "right"]].set_visible(False)
