"""Looks of lines by method, distinguishable without colour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepvad.report.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION

OTHERS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
"""Colours for methods without a look, in turn."""
STROKES = ("-", "--", ":", "-.")
"""Line styles for lines of one colour, in turn."""


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
