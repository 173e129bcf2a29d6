"""Plots of a calibration and of a clip's scores, and the style of all plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import MissingExtraError
from stepvad.events.calibration import Calibration
from stepvad.events.threshold import often
from stepvad.files import replacing
from stepvad.model.scoring import Scores, person_scores, true_runs

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


def new_figure(width: float, height: float) -> Figure:
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


def draw_calibration(calibration: Calibration, path: Path) -> None:
    """Write a PNG: events an hour over thresholds, and the threshold of the budget."""
    drawn = new_figure(7.2, 4.2)
    axes = drawn.add_subplot()
    # the n-th highest peak is a threshold with n events, (n,)
    entries = [one for ledger in calibration.ledgers.values() for one in ledger]
    peaks = np.sort([peak for one in entries for peak in one.quiet + one.alerts])[::-1]
    threshold = calibration.threshold
    rates = np.arange(1, len(peaks) + 1) / threshold.hours
    label = f"counted in {threshold.hours:.3g} hours"
    axes.step(peaks, rates, where="pre", color=BLACK, label=label)
    # the rate asked for, with lines to both axes
    x, y = threshold.value, threshold.alerts_per_hour
    axes.set_yscale("log")
    bottom, left = min(y, rates[0]) / 2, axes.get_xlim()[0]
    axes.plot([left, x, x], [y, y, bottom], color=VERMILION, linestyle=":")
    axes.set(xlim=(left, None), ylim=(bottom, None))
    label = f"threshold {x:.2f}: {'at most' if threshold.how == 'counted' else 'about'} {often(y)}"
    axes.plot(x, y, marker="o", color=VERMILION, linestyle="none", label=label)
    axes.set_xlabel("threshold")
    axes.set_ylabel("events per hour of a camera")
    axes.legend(frameon=False, loc="upper right")
    open_axes(axes)
    save(drawn, path, dpi=140)


def draw_timeline(
    scores: Scores, path: Path, *, abnormal: NDArray[np.bool_] | None = None, title: str = ""
) -> None:
    """Write a PNG: a thin line per person, a thick one for the highest score, anomalies shaded."""
    figure = new_figure(9, 3)
    axes = figure.add_subplot()
    for number, (frame, score) in enumerate(person_scores(scores.windows, scores.T)):
        label = "one person" if number == 0 else None
        axes.plot(frame, score, color="#999999", linewidth=0.8, label=label)
    axes.plot(scores.frames, color=BLUE, linewidth=1.6, label="worst person")
    if abnormal is not None:
        for number, (first, end) in enumerate(true_runs(abnormal)):
            label = "true anomaly" if number == 0 else None
            axes.axvspan(first, end - 1, color=TRUTH, alpha=0.2, linewidth=0, label=label)
    last = max(scores.n_frames - 1, 1)
    axes.set(xlabel="frame", ylabel="anomaly score A(x)", xlim=(0, last))
    axes.set_title(title or scores.clip, loc="left", parse_math=False)
    open_axes(axes)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize="small")
    save(figure, path, dpi=120)
