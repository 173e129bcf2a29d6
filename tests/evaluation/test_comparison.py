"""Lines of a comparison, from scores made by hand: no fit is needed to see who leads whom."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from stepvad.evaluation import comparison, reproduction
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.protocol import FrameView, ScoredClip
from stepvad.evaluation.runs import ExperimentRun
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import Scores, WindowScores
from stepvad.windows import Repairs

TRUTH = FrameLabels.all_counted([0, 0, 1, 1])
STREET = Dataset("street", list, list, {"one": TRUTH, "two": TRUTH}, {}, 0.0, 0.0, "filled")
RIGHT, HALF, WRONG = [1, 2, 3, 4], [1, 3, 2, 4], [4, 3, 2, 1]
"""Scores of four frames whose AUROC is 1, 3/4 and 0."""


def scored(A: Sequence[float]) -> list[ScoredClip]:
    """Two clips with a person of these scores in all four frames, online with T = 1."""
    values = np.array(A, np.float32)
    frames, ones = np.arange(4), np.ones(4, np.float32)
    windows = WindowScores(np.zeros(4, np.int64), frames, ones, values[:, None], values)
    return [
        ScoredClip(Scores(name, 4, 1, windows, Repairs(), 0), TRUTH, np.ones(4, np.int64))
        for name in ("one", "two")
    ]


def test_a_lead_is_that_of_the_first_method_over_each_other() -> None:
    methods = {"ours": [scored(HALF)], "better": [scored(RIGHT)], "worse": [scored(WRONG)]}
    lines = comparison.table(methods, scored(HALF), STREET, FrameView(smoothed=False))
    assert [line.name for line in lines[:3]] == ["ours", "better", "worse"]
    assert [line.auroc.mean for line in lines[:3]] == [0.75, 1.0, 0.0]
    ours, better, worse = (line.lead for line in lines[:3])
    assert ours is None
    assert better is not None
    assert worse is not None
    assert (better.value, worse.value) == (-0.25, 0.75)
    assert better.high < 0 < worse.low


def test_a_figure_of_the_paper_is_compared_with_the_runs_of_its_aggregation() -> None:
    """Two runs of four aggregations, in the order of the experiments: seed by seed."""
    of = {"max": RIGHT, "sum": HALF, "top2": WRONG, "top3": HALF}
    runs = [ExperimentRun({}, scored(of[name])) for _ in range(2) for name in of]
    lines = reproduction.lines("shanghaitech", runs, {"full": STREET})
    found = {
        line.cell.aggregation: line.ours
        for line in lines
        if line.cell.metric == "auroc" and line.cell.placement == "latest"
    }
    assert {name: ours.mean for name, ours in found.items()} == pytest.approx(
        {"max": 100, "sum": 75, "top2": 0, "top3": 75}
    )
    assert {ours.n for ours in found.values()} == {2}
