"""The study of views: its rows, its normal footage, and results that are not made twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import executors
from stepvad.config import Config
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation import protocol, viewruns, walkers
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.protocol import FrameView
from stepvad.evaluation.studies import Fits
from stepvad.evaluation.trivial import TITLES, Places
from stepvad.evaluation.viewruns import Division, ViewFit, ViewPlace, trivial_scores
from stepvad.evaluation.viewstudy import JOINED, PAPER, ViewScope, ViewTable, run
from stepvad.model.footage import hold_out
from tests.cli.conftest import Command
from tests.cli.conftest import stepvad as stepvad

TINY = Config(K=6, width=16, blocks=2, sigma_width=16, max_steps=4, ema_warmup=True)
VIEWS = [
    *("pose over 25 frames", "pose over 8 frames"),
    *("motion over 25 frames", "motion over 8 frames", "place over 8 frames"),
]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch takes longer than such a study."""
    monkeypatch.setattr(executors, "run", lambda work, tasks, **_: [work(task) for task in tasks])


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("study") / "people"
    walkers.write_dataset(root, seed=2, train_clips=11, test_clips=7, seconds=6.0)
    return root


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def scope(people: Path) -> ViewScope:
    return ViewScope(base=TINY, seeds=(0, 1), data=(people,), fps=25.0)


@pytest.fixture
def table(scope: ViewScope, results: Path) -> ViewTable:
    (made,) = run(scope, Fits(results=results))
    return made


def test_every_score_has_a_row_and_the_paper_s_detector_is_first(table: ViewTable) -> None:
    names = [row.name for row in table.rows]
    assert names == [PAPER, JOINED, *VIEWS, "PCA/kNN times confidence", *TITLES.values()]
    first, *others = table.rows
    assert first.raw.difference is first.smoothed.difference is None
    for row in others:
        for figure, paper in ((row.raw, first.raw), (row.smoothed, first.smoothed)):
            assert figure.difference is not None
            lead = figure.auroc.mean - paper.auroc.mean
            assert figure.difference.value == pytest.approx(lead)
    assert {row.name: row.raw.auroc.n for row in table.rows}[JOINED] == 2
    assert {"run", "fall", "fight"} <= {*first.raw.by_class} == {*first.found_by_class}
    for row in table.rows:
        shares = [row.found[rate].mean for rate in (1.0, 6.0, 60.0)]
        assert 0 <= shares[0] <= shares[1] <= shares[2] <= 1


def test_figures_are_those_of_the_detectors_themselves(
    table: ViewTable, people: Path, scope: ViewScope
) -> None:
    place = viewruns.ViewPlace(data=people, results=people, fps=25.0)
    dataset = place.divide().dataset
    own = [Experiment(config=replace(TINY, seed=seed)).fit(dataset) for seed in scope.seeds]
    for smoothed in (False, True):
        view = FrameView(smoothed=smoothed)
        each = [
            protocol.frame_scores(protocol.score_clips(one, dataset), dataset, view).measure()
            for one in own
        ]
        figure = table.rows[0].smoothed if smoothed else table.rows[0].raw
        assert figure.auroc.mean == pytest.approx(np.mean(each))
    speed = next(row for row in table.rows if row.name == TITLES["speed"])
    clips = protocol.with_motion(protocol.score_clips(own[0], dataset), dataset)
    raw = FrameView(smoothed=False)
    expected = protocol.frame_scores(clips, dataset, raw, method="speed").measure()
    assert speed.raw.auroc.mean == pytest.approx(expected, abs=1e-6)


def test_results_are_reused_and_other_densities_need_no_other_fit(
    table: ViewTable, scope: ViewScope, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(Experiment, "fit", refused)
    (again,) = run(scope, Fits(results=results))
    assert again.rows == table.rows
    several = replace(scope, densities=("step", "knn", "gmm"))
    (more,) = run(several, Fits(results=results))
    assert more.rows[: len(table.rows)] == table.rows
    added = [row.name for row in more.rows[len(table.rows) :]]
    assert added[0] == "views joined, kNN"
    assert added[1:6] == [f"{name}, kNN" for name in VIEWS]
    assert added[6:] == [f"{name}, mixture" for name in (JOINED, *VIEWS)]
    with pytest.raises(AssertionError, match="fitted again"):
        run(replace(scope, base=replace(TINY, max_steps=5)), Fits(results=results))


def test_results_of_other_settings_of_views_are_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ViewPlace(data="x", results=tmp_path)
    fits = [
        ViewFit(what="step", config=Config()),
        ViewFit(what="views", config=Config(), views=("pose",)),
    ]
    before = [fit.file(place, "digest") for fit in fits]
    assert before == [fit.file(place, "digest") for fit in fits]
    monkeypatch.setattr("stepvad.config.SHORT", 12)
    paper, views = (fit.file(place, "digest") for fit in fits)
    assert paper == before[0]
    assert views != before[1]


def test_an_interrupted_study_keeps_what_is_done(
    scope: ViewScope, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_alone(work: object, tasks: list[object], **_: object) -> list[int]:
        assert callable(work)
        work(tasks[0])
        raise KeyboardInterrupt

    one = replace(scope, seeds=(0,))
    with monkeypatch.context() as patch:
        patch.setattr(executors, "run", first_alone)
        with pytest.raises(KeyboardInterrupt):
            run(one, Fits(results=tmp_path))
    (kept,) = tmp_path.glob("*.parquet")
    before = kept.stat().st_mtime_ns
    run(one, Fits(results=tmp_path))
    assert len([*tmp_path.glob("*.parquet")]) == 4
    assert kept.stat().st_mtime_ns == before


def small(train_clips: int, seconds: float) -> Dataset:
    return walkers.make(seed=1, train_clips=train_clips, test_clips=9, seconds=seconds, people=1)


def test_false_alarms_are_counted_where_nothing_was_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = small(9, 6.0)
    few = Division.of(dataset, None)
    assert (few.source, few.held_out) == ("test", [])
    assert len([*few.dataset.train_clips()]) == 9
    normal = sum(int((~labels.abnormal).sum()) for _, labels in few.test)
    assert few.hours == pytest.approx(normal / 25 / 3600)
    monkeypatch.setattr(viewruns, "FEWEST_HOURS", 1e-3)
    enough = Division.of(dataset, None)
    learned, others = hold_out([*dataset.train_clips()])
    assert enough.source == "held-out"
    assert [clip.name for clip in enough.dataset.train_clips()] == [clip.name for clip in learned]
    assert [clip.name for clip, _ in enough.held_out] == [clip.name for clip in others]
    assert enough.hours == pytest.approx(2 * 6 / 3600, rel=0.2)
    assert len(enough.scored) == len({clip.name for clip, _ in enough.scored}) == 9 + 2


def test_held_out_footage_decides_what_is_found(
    scope: ViewScope, results: Path, table: ViewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewruns, "FEWEST_HOURS", 1e-3)
    (made,) = run(replace(scope, seeds=(0,)), Fits(results=results))
    assert (made.normal, table.normal) == ("held-out", "test")
    assert made.rows[0].raw.auroc.mean != table.rows[0].raw.auroc.mean


def test_trivial_scores_are_never_negative() -> None:
    dataset = small(2, 6.0)
    places = Places.of(dataset.train_clips(), 12)
    for clip, _ in dataset.test_clips():
        scores = trivial_scores(clip, Config(), places)
        assert scores.windows.E.shape == (len(scores.windows), len(TITLES))
        assert (scores.windows.E >= 0).all()
        assert (scores.windows.E[:, 0] == 1).all()  # one person
    with pytest.raises(DataError, match="expected windows of 12 frames"):
        trivial_scores(clip, Config(), None)


def test_what_is_no_view_or_density_is_refused(scope: ViewScope, people: Path) -> None:
    with pytest.raises(ConfigError, match="densities: expected step, optionally with knn or gmm"):
        replace(scope, densities=("knn",))
    with pytest.raises(ConfigError, match="views: expected pose"):
        replace(scope, views=("motion",))
    with pytest.raises(DataError, match="expected a frame rate"):
        run(replace(scope, fps=None), Fits(results=people))


@pytest.mark.slow
def test_the_command_prints_and_writes_its_tables(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    out = ("-o", tmp_path / "out", "--results", tmp_path / "r")
    quick = ("--seeds", "1", "--width", "8", "--max-steps", "2", "--K", "6", "--fps", "25")
    words = ("benchmark", "study", "views", people, *out, *quick, "--views", "pose,motion")
    done = stepvad(*words)
    assert done.code == 0, done.err
    assert "test clips" in done.out
    assert "people: AUROC, events found at 6/h, by class (%)" in done.out
    assert f"written: {tmp_path / 'out' / 'views'}.md, .csv and .json" in done.err
    rows = (tmp_path / "out" / "views.csv").read_text("utf-8").splitlines()
    assert len(rows) == 1 + 2 + 4 + 1 + 5
    assert rows[0].endswith("found at 1/h,found at 6/h,found at 60/h,normal footage")
    assert (tmp_path / "out" / "views.json").read_text("utf-8").startswith('{\n  "people": {')
