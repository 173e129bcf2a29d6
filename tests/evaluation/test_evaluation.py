"""Whole data sets measured with a score that needs no fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad import skeletons, windows
from stepvad.config import Config
from stepvad.evaluation.datasets import Dataset, open_dataset
from stepvad.evaluation.protocol import (
    FrameView,
    ScoredClip,
    ScorerName,
    Selection,
    evaluate,
    frame_scores,
    score_clips,
    tabulate,
    tabulate_dataset,
    with_motion,
)
from stepvad.evaluation.trivial import TITLES
from stepvad.model.scoring import Scores, WindowScores
from stepvad.poses import Clip
from stepvad.progress import Progress


class AnkleSpeed:
    """A detector that needs no fit: how much the joints of a window move, at two scales."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def score(self, clip: Clip) -> Scores:
        index, counts = windows.cut(clip, self.config, skeletons.STEP18)
        batch = index.windows(slice(None))
        motion = np.abs(np.diff(batch.x, axis=3)).mean(axis=(1, 2, 3))
        E = np.stack([motion, -motion], axis=1).astype(np.float32)
        scored = WindowScores(batch.track_id, batch.frame, batch.c, E, E[:, 0] * batch.c)
        return Scores(clip.name, clip.n_frames, self.config.T, scored, counts, 0)


@pytest.fixture(scope="module")
def street(walker_dataset: Path) -> Dataset:
    return open_dataset(walker_dataset)


def test_running_people_are_found_in_a_data_set(street: Dataset) -> None:
    evaluation = evaluate(AnkleSpeed(Config()), street)
    assert evaluation.n_clips == 5
    assert evaluation.n_frames == 5 * 200
    assert evaluation.row(frames="covered").auroc > 0.55
    flipped = evaluate(AnkleSpeed(Config()), street, aggregation=1)
    assert flipped.row(frames="covered").auroc < evaluation.row(frames="covered").auroc


def test_the_models_own_use_of_confidence_is_kept_by_another_aggregation(street: Dataset) -> None:
    with_confidence = evaluate(AnkleSpeed(Config()), street, aggregation=0)
    assert repr(with_confidence) == repr(evaluate(AnkleSpeed(Config()), street))
    without = evaluate(AnkleSpeed(Config(confidence=False)), street, aggregation=0)
    assert without.row() != with_confidence.row()


def test_options_of_an_evaluation_reach_the_table(street: Dataset) -> None:
    scorer = AnkleSpeed(Config())
    usual = evaluate(scorer, street)
    assert set(usual.n_covered) == {"latest", "backtrack"}
    center = evaluate(scorer, street, placements=["center"], floor="per_clip")
    assert set(center.n_covered) == {"center"}
    clips = [
        ScoredClip(scorer.score(clip), truth, clip.persons_per_frame())
        for clip, truth in street.test_clips()
    ]
    same = tabulate(
        with_motion(clips, street),
        person_sigma=0,
        frame_sigma=13,
        placements=["center"],
        floor="per_clip",
        smoothing="filled",
    )
    assert repr(same) == repr(center)  # NaN equals itself in words


@pytest.mark.parametrize("method", ["detector", *TITLES])
@pytest.mark.parametrize("smoothed", [False, True])
@pytest.mark.parametrize("frames", ["all", "covered", "one-person"])
def test_the_frames_behind_a_row_give_its_figures(
    street: Dataset, method: ScorerName, smoothed: bool, frames: Selection
) -> None:
    clips = with_motion(score_clips(AnkleSpeed(Config()), street), street)
    table = tabulate_dataset(clips, street, floor="per_clip")
    row = table.row(method=method, placement="backtrack", smoothed=smoothed, frames=frames)
    view = FrameView("backtrack", smoothed, frames, "per_clip")
    behind = frame_scores(clips, street, view, method=method)
    figures = [behind.measure(metric) for metric in ("auroc", "ap", "eer")]
    assert figures == [row.auroc, row.ap, row.eer]
    assert (len(behind.abnormal), behind.abnormal.sum()) == (row.n_frames, row.n_abnormal)
    assert len(behind.score) == (10 if method == "random" else 1)


def test_an_evaluation_reports_every_clip(street: Dataset) -> None:
    reports: list[Progress] = []
    evaluate(AnkleSpeed(Config()), street, report=reports.append)
    assert [(report.done, report.total) for report in reports] == [(n, 5) for n in range(1, 6)]
    assert reports[0].note == "01_0001"


@pytest.mark.data
def test_trivial_scores_reach_the_known_figures_on_poselift(data_dir: Path) -> None:
    dataset = open_dataset(data_dir / "PoseLift")
    evaluation = evaluate(AnkleSpeed(Config()), dataset, floor="per_clip")
    assert evaluation.n_covered == {"latest": 3135, "backtrack": 3707}
    usual = evaluate(AnkleSpeed(Config()), dataset)
    every = usual.row(method="persons", smoothed=False)
    covered = usual.row(method="persons", smoothed=False, frames="covered")
    assert every.auroc == pytest.approx(0.700, abs=0.002)
    assert covered.auroc == pytest.approx(0.639, abs=0.002)
    assert (every.n_frames, every.n_abnormal) == (4846, 1534)
    assert evaluation.row(method="random").auroc == pytest.approx(0.72, abs=0.01)
    assert evaluation.row(method="random", frames="covered").auroc == pytest.approx(0.64, abs=0.01)
    alone = evaluation.row(method="random", frames="one-person")
    assert alone.auroc == pytest.approx(0.5, abs=0.02)
