"""Scoring time against the number of people, one line per implementation (Supp. C, runtime)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepvad.plots import style

COLOURS = (*style.OTHERS[:-1], "#999933", "#882255")
"""Without grey, which is reserved for the paper's figures."""


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One way to score: number of people to median, lower and upper quartile in seconds."""

    label: str
    kind: str
    points: dict[int, tuple[float, float, float]]


def draw_speed(
    panels: Mapping[str, Sequence[Curve]], paper: Mapping[int, float], path: Path
) -> None:
    """Write a PNG: a panel per number of threads; bare products dotted, the paper grey."""
    figure = style.figure(5.5 * len(panels) + 2.5, 5.5)
    every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(every, panels.items(), strict=True):
        names = [curve.label.removeprefix("bare ") for curve in curves]
        colour = dict(zip(dict.fromkeys(names), COLOURS * 2, strict=False))
        for curve, name in zip(curves, names, strict=True):
            stroke = ":" if curve.kind == "bare" else "-"
            people = list(curve.points)
            each = [[1000 * s / n for s in times] for n, times in curve.points.items()]
            median, low, high = zip(*each, strict=True)
            axes.plot(people, median, stroke, color=colour[name], label=curve.label, marker=".")
            axes.fill_between(people, low, high, color=colour[name], alpha=0.15, linewidth=0)
        ms = [1000 * s / n for n, s in paper.items()]
        axes.plot(list(paper), ms, "--", color=style.GREY, label="the paper, GTX 1080")
        axes.set(xscale="log", yscale="log", xlabel="people scored at once")
        axes.set_title(title, loc="left", parse_math=False)
        style.open_axes(axes)
    every[0].set_ylabel("ms per window")
    every[-1].legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize="small")
    style.save(figure, path, dpi=110)
