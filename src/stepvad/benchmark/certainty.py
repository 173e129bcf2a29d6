"""How sure each row of an evaluation is, and which anomalies it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from stepvad.benchmark import intervals, protocol
from stepvad.benchmark.datasets import Dataset
from stepvad.benchmark.intervals import Interval
from stepvad.benchmark.protocol import FrameView, Method, ScoredClip, Selection
from stepvad.model.scoring import Placement

SELECTIONS: tuple[Selection, ...] = ("all", "covered", "one-person")


@dataclass(frozen=True, slots=True)
class SureRow:
    """How sure one row is, and what it makes of each anomaly."""

    placement: Placement
    smoothed: bool
    frames: Selection
    auroc: Interval
    by_class: dict[str, float]


def sure_rows(
    clips: Sequence[ScoredClip],
    dataset: Dataset,
    placements: Sequence[Placement],
    method: Method = "detector",
) -> list[SureRow]:
    """Intervals of the AUROC over clips, with the floor of the data set as a whole."""
    rows = []
    for placement, smoothed, frames in product(placements, (False, True), SELECTIONS):
        view = FrameView(placement, smoothed, frames)
        scores = protocol.frame_scores(clips, dataset, view, method=method)
        sure = intervals.over_clips(scores)
        rows.append(SureRow(placement, smoothed, frames, sure, scores.by_class()))
    return rows
