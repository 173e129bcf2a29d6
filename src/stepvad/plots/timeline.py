"""Plot of a clip's scores over time, as in the paper's supplement (Supp. A)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.model.scoring import Scores, person_scores, true_runs
from stepvad.plots import style

PERSON_COLOUR = "#999999"
WORST_COLOUR = style.BLUE


def draw_timeline(
    scores: Scores, path: Path, *, abnormal: NDArray[np.bool_] | None = None, title: str = ""
) -> None:
    """Write a PNG: a thin line per person, a thick one for the highest score, anomalies shaded."""
    figure = style.figure(9, 3)
    axes = figure.add_subplot()
    for number, (frame, score) in enumerate(person_scores(scores.windows, scores.T)):
        label = "one person" if number == 0 else None
        axes.plot(frame, score, color=PERSON_COLOUR, linewidth=0.8, label=label)
    axes.plot(scores.frames, color=WORST_COLOUR, linewidth=1.6, label="worst person")
    if abnormal is not None:
        for number, (first, end) in enumerate(true_runs(abnormal)):
            label = "true anomaly" if number == 0 else None
            axes.axvspan(first, end - 1, color=style.TRUTH, alpha=0.2, linewidth=0, label=label)
    axes.set(
        xlabel="frame",
        ylabel="anomaly score A(x)",
        xlim=(0, max(scores.n_frames - 1, 1)),
    )
    axes.set_title(title or scores.clip, loc="left", parse_math=False)
    style.open_axes(axes)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, fontsize="small")
    style.save(figure, path, dpi=120)
