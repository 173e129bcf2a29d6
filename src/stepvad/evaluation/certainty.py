"""Confidence intervals of an evaluation's rows, and results by anomaly class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from stepvad.evaluation import intervals, protocol
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.intervals import Interval
from stepvad.evaluation.protocol import FrameView, ScoredClip, ScorerName, Selection
from stepvad.model.scoring import Placement

SELECTIONS: tuple[Selection, ...] = ("all", "covered", "one-person")


@dataclass(frozen=True, slots=True)
class SureRow:
    """One row with its confidence interval, and its AUROC by anomaly class."""

    placement: Placement
    smoothed: bool
    frames: Selection
    auroc: Interval
    by_class: dict[str, float]


def sure_rows(
    clips: Sequence[ScoredClip],
    dataset: Dataset,
    placements: Sequence[Placement],
    method: ScorerName = "detector",
) -> list[SureRow]:
    """Rows with AUROC intervals over clips; the floor is that of the whole data set."""
    rows = []
    for placement, smoothed, frames in product(placements, (False, True), SELECTIONS):
        view = FrameView(placement, smoothed, frames)
        scores = protocol.frame_scores(clips, dataset, view, method=method)
        sure = intervals.over_clips(scores)
        rows.append(SureRow(placement, smoothed, frames, sure, scores.by_class()))
    return rows
