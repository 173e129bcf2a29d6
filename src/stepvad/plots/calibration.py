"""Plot of events per hour of normal footage against the threshold, with the promised rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepvad.events.calibration import Calibration
from stepvad.events.threshold import rates_beyond
from stepvad.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (7.2, 4.2)
BEYOND = 1.15
"""Upper end of the x axis, as a multiple of the threshold."""


def draw(calibration: Calibration, path: Path) -> None:
    """Write the plot as PNG."""
    drawn = style.figure(*INCHES)
    axes = drawn.add_subplot()
    _draw_counts(axes, calibration)
    _draw_promise(axes, calibration)
    axes.set_yscale("log")
    axes.set_xlabel("threshold")
    axes.set_ylabel("false events per hour of a camera")
    axes.legend(frameon=False, loc="upper right")
    style.open_axes(axes)
    style.save(drawn, path, dpi=140)


def _draw_counts(axes: Axes, calibration: Calibration) -> None:
    first, *others = calibration.counted.values()
    counted = first.joined(others)
    seen = counted.totals > 0
    axes.step(
        counted.levels[seen],
        counted.totals[seen] / counted.total_hours,
        where="post",
        color=style.BLACK,
        label=f"counted in {counted.total_hours:.3g} hours",
    )
    top = BEYOND * max(calibration.threshold.value, counted.levels[-1])
    beyond, low, middle, high = rates_beyond(counted, top)
    axes.plot(beyond, middle, color=style.BLUE, label="its tail, continued (95 %)")
    axes.fill_between(beyond, low, high, color=style.BLUE, alpha=0.2, linewidth=0)
    floor = min(calibration.threshold.alerts_per_hour, 1 / counted.total_hours) / 10
    axes.set_ylim(bottom=floor, top=2 * float(np.max(counted.totals)) / counted.total_hours)


def _draw_promise(axes: Axes, calibration: Calibration) -> None:
    threshold = calibration.threshold
    bottom, left = axes.get_ylim()[0], axes.get_xlim()[0]
    at = (threshold.value, threshold.alerts_per_hour)
    axes.plot([left, at[0], at[0]], [at[1], at[1], bottom], color=style.VERMILION, linestyle=":")
    axes.set_xlim(left=left)
    axes.plot(
        threshold.value,
        threshold.alerts_per_hour,
        marker="o",
        color=style.VERMILION,
        linestyle="none",
        label=f"threshold {threshold.value:.2f}: at most {threshold.alerts_per_hour:g} per hour, "
        f"{100 * threshold.confidence:g} % sure",
    )
