"""Methods side by side: who leads whom, and a detector with several views among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import executors
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import ConfigError
from stepvad.evaluation import comparison, protocol, walkers
from stepvad.evaluation.datasets import Dataset, FrameSmoothing, of_clips, open_dataset
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.protocol import FrameView, ScoredClip
from stepvad.evaluation.reproduce import reproduced_figures
from stepvad.evaluation.runs import ExperimentRun
from stepvad.formats.labels import FrameLabels
from stepvad.model.scoring import Placement, Scores, WindowScores, person_scores
from stepvad.poses import Clip
from stepvad.windows.body import Repairs
from tests.conftest import Command

TRUTH = FrameLabels.all_counted([0, 0, 1, 1])
STREET = Dataset("street", list, list, {"one": TRUTH, "two": TRUTH}, {}, FrameSmoothing())
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
    lines = reproduced_figures("shanghaitech", runs, {"full": STREET})
    found = {
        line.cell.aggregation: line.ours
        for line in lines
        if line.cell.metric == "auroc" and line.cell.placement == "latest"
    }
    assert {name: ours.mean for name, ours in found.items()} == pytest.approx(
        {"max": 100, "sum": 75, "top2": 0, "top3": 75}
    )
    assert {ours.n for ours in found.values()} == {2}


TINY = Config(K=12, width=16, max_steps=4, ema_warmup=True)
SEVERAL = Experiment(method="usual", config=TINY, views=("pose", "motion", "place"))


@pytest.fixture(scope="module")
def street() -> Dataset:
    return walkers.make(seed=2, train_clips=12, test_clips=7, seconds=6.0)


@pytest.fixture(scope="module")
def fitted(street: Dataset) -> Detector:
    detector = SEVERAL.fit(street)
    assert isinstance(detector, Detector)
    return detector


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("views") / "people"
    walkers.write_dataset(root, seed=2, train_clips=12, test_clips=3, seconds=6.0)
    return root


def test_usual_motion_is_a_method_beside_the_paper_s(street: Dataset, fitted: Detector) -> None:
    methods = ["step", "usual-place", "usual"]
    step, views, without, *trivial = comparison.compare(methods, street, config=TINY)
    assert (step.name, views.name) == ("STEP", "nearest usual motion, with the place")
    assert without.name == "nearest usual motion"
    clips = protocol.score_clips(fitted, street)
    own = protocol.frame_scores(clips, street, protocol.FrameView(smoothed=False))
    assert views.auroc.mean == pytest.approx(own.measure("auroc"))
    assert len({step.auroc.mean, views.auroc.mean, without.auroc.mean}) == 3
    assert views.lead is not None
    assert {"speed alone", "place alone"} <= {line.name for line in trivial}
    alone = comparison.compare(["usual"], street, config=TINY)
    assert [line.name for line in alone[1:]] == [line.name for line in trivial]
    assert [line.auroc for line in alone[1:]] == [line.auroc for line in trivial]


def test_the_table_of_a_detector_with_views_has_all_trivial_scores(
    street: Dataset, fitted: Detector
) -> None:
    rows = protocol.evaluate(fitted, street).rows
    assert {row.method for row in rows} >= {"detector", "speed", "place", "random"}
    speed = next(row for row in rows if row.method == "speed" and row.frames == "covered")
    assert 0.5 < speed.auroc < 1  # walkers who run are faster


@pytest.mark.parametrize("placement", ["center", "backtrack"])
@pytest.mark.parametrize("fps", [25.0, 50.0])
def test_people_have_scores_only_where_they_are(
    street: Dataset, fitted: Detector, placement: Placement, fps: float
) -> None:
    by_clock = (replace(one, config=replace(one.config, clock=True)) for one in fitted.views)
    detector = replace(fitted, views=tuple(by_clock))
    at_once = 0
    for clip, _ in street.test_clips():
        scores = detector.score(replace(clip, fps=fps))
        there: dict[int, set[int]] = {
            track.id: set(range(int(track.frames[0]), int(track.frames[-1]) + 1))
            for track in clip.tracks
        }
        for track, frames in there.items():
            at_once += 0 in frames
            own = scores.windows.part(np.flatnonzero(scores.windows.track_id == track))
            placed = person_scores(own, scores.T, placement=placement)
            found = [frame for some, _ in placed for frame in some.tolist()]
            assert set(found) <= frames
            assert placement == "center" or min(found, default=0) <= min(frames)
    assert at_once


def test_clips_shorter_than_the_longest_view_are_evaluated(
    street: Dataset, fitted: Detector
) -> None:
    cut = [
        (
            Clip(
                clip.name,
                clip.fps,
                12,
                tuple(part for track in clip.tracks if len(part := track.between(0, 12))),
                clip.skeleton,
            ),
            labels.abnormal[:12],
        )
        for clip, labels in street.test_clips()
    ]
    short = of_clips("short", train=lambda: [*street.train_clips()], test=cut)
    found = protocol.evaluate(fitted, short)
    assert found.n_windows
    covered = found.row(placement="backtrack", smoothed=False, frames="covered")
    assert covered.n_frames <= 12 * len(cut)


def test_noise_scales_and_noisy_windows_are_of_one_view(street: Dataset, fitted: Detector) -> None:
    with pytest.raises(ConfigError, match="aggregation: expected a detector of one view"):
        protocol.score_clips(fitted, street, aggregation="sum")
    with pytest.raises(ConfigError, match=r"usual: expected no jitter, got 0\.1"):
        replace(SEVERAL, jitter=0.1)


def test_results_of_other_views_have_other_keys() -> None:
    one, other = Experiment(config=TINY), replace(SEVERAL, views=("pose",))
    assert len({one.key("data"), SEVERAL.key("data"), other.key("data")}) == 3


def test_the_rate_of_clips_that_state_none_is_given(people: Path) -> None:
    dataset = open_dataset(people)
    assert all(clip.fps is None for clip in dataset.train_clips())
    (given,) = comparison.experiments(["usual"], TINY, comparison.Trials(fps=50.0))["usual"]
    detector = given.fit(dataset)
    assert [view.config.T for view in detector.view_settings][:2] == [50, 17]
    scores = detector.score(next(iter(dataset.test_clips()))[0])
    assert np.isfinite(scores.A).all()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "run", lambda work, tasks, **_: [work(task) for task in tasks])


@pytest.mark.usefixtures("in_this_process")
def test_the_commands_compare_and_evaluate_views(
    stepvad: Command, people: Path, fitted: Detector, tmp_path: Path
) -> None:
    quick = ("--width", "16", "--max-steps", "4", "--seeds", "1")
    words = ("compare", people, tmp_path / "r", "--methods", "knn,usual", *quick)
    (tmp_path / "k.toml").write_text("K = 12\n")
    refused = stepvad(*words, "--settings", tmp_path / "k.toml")
    assert (refused.code, "--fps 25 on the command line" in refused.err) == (1, True)
    run = stepvad(*words, "--settings", tmp_path / "k.toml", "--fps", "25")
    assert run.code == 0, run.err
    assert "nearest usual motion" in run.out
    assert len([*(tmp_path / "r").glob("*.parquet")]) == 2
    fitted.save(tmp_path / "model.safetensors")
    run = stepvad("evaluate", tmp_path / "model.safetensors", people)
    assert "usual on people" in run.out
