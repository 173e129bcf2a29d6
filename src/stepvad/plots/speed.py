"""Time to score against the number of people, one line for every way (Supp. C, runtime)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepvad.errors import MissingExtraError

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#56B4E9", "#000000", "#999933", "#882255"),
)
"""Colours that colour-blind readers tell apart."""
PAPER_COLOUR = "#777777"


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One way to score: people to median, lower and upper quartile of the seconds they take."""

    label: str
    kind: str
    points: dict[int, tuple[float, float, float]]


def draw_speed(
    panels: Mapping[str, Sequence[Curve]], paper: Mapping[int, float], path: Path
) -> None:
    """Write a PNG: a panel for each number of threads; bare products dotted, the paper grey."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("plot", "plots") from error
    figure = Figure(figsize=(5.5 * len(panels) + 2.5, 5.5), layout="constrained")
    every = FigureCanvasAgg(figure).figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(every, panels.items(), strict=True):
        names = [curve.label.removeprefix("bare ") for curve in curves]
        colour = dict(zip(dict.fromkeys(names), COLOURS * 2, strict=False))
        for curve, name in zip(curves, names, strict=True):
            style = ":" if curve.kind == "bare" else "-"
            people = list(curve.points)
            each = [[1000 * s / n for s in times] for n, times in curve.points.items()]
            median, low, high = zip(*each, strict=True)
            axes.plot(people, median, style, color=colour[name], label=curve.label, marker=".")
            axes.fill_between(people, low, high, color=colour[name], alpha=0.15, linewidth=0)
        ms = [1000 * s / n for n, s in paper.items()]
        axes.plot(list(paper), ms, "--", color=PAPER_COLOUR, label="the paper, GTX 1080")
        axes.set(xscale="log", yscale="log", xlabel="people scored at once")
        axes.set_title(title, loc="left", parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
    every[0].set_ylabel("ms per window")
    every[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    figure.savefig(path, dpi=110, metadata={"Software": None})
