"""The paper's set-up is what runs, its figures are in place, and ours are judged by them."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.config import Compute, Config
from stepvad.detector import Detector
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation import protocol
from stepvad.evaluation.datasets import Split, open_dataset
from stepvad.evaluation.experiment import Experiment, validation_auroc
from stepvad.evaluation.metrics import Spread
from stepvad.evaluation.reproduce import (
    FIGURES,
    PAPER_RUNS,
    SETUPS,
    Cell,
    Figure,
    PaperDataset,
    ReproducedFigure,
    check_complete,
    deviations,
    open_splits,
    paper_config,
    paper_experiments,
    reproduced_figures,
)
from stepvad.evaluation.runs import SweepPlace, SweepTask, digest_of, run_fit, sweep
from stepvad.model import training
from tests.evaluation.layouts import LEFT_OUT, write_layouts

DIRECTORIES: dict[PaperDataset, str] = {
    "shanghaitech": "ShanghaiTech",
    "ubnormal": "UBnormal",
    "msad": "MSAD",
}
TINY = Config(K=12, width=16, epochs=3, batch_size=128)


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("layouts")
    write_layouts(root, seconds=8.0)
    return root


@pytest.mark.parametrize(
    ("name", "learning_rate", "best_on_validation", "splits"),
    [
        ("shanghaitech", 2e-4, False, ("full", "hr")),
        ("ubnormal", 5e-4, True, ("full", "hr")),
        ("msad", 2e-4, False, ("full", "st", "ub")),
    ],
)
def test_the_settings_are_the_papers(
    name: PaperDataset,
    learning_rate: float,
    best_on_validation: bool,
    splits: tuple[Split, ...],
) -> None:
    config = paper_config(name)
    assert config == Config(learning_rate=learning_rate)
    assert (config.epochs, config.T, config.K, config.width, config.L) == (400, 12, 48, 1024, 10)
    assert config.patience is None  # all epochs; the best one is kept where there is validation
    assert SETUPS[name].splits == splits
    chosen = paper_experiments(name, config, PAPER_RUNS)
    assert {e.best_on_validation for e in chosen} == {best_on_validation}
    assert sorted({e.config.seed for e in chosen}) == [*range(20)]
    assert len({e.fitting for e in chosen}) == 20  # one training serves all aggregations
    assert {e.method for e in chosen} == {"step"}


def test_what_differs_from_the_paper_is_said(layouts: Path) -> None:
    dataset = open_dataset(layouts / "MSAD")
    own = paper_config("msad")
    whole = replace(dataset, labels={str(n): dataset.labels["Fire_1"] for n in range(360)})
    assert deviations("msad", own, 20, whole) == []
    small = replace(paper_config("msad"), epochs=1, width=16)
    assert deviations("msad", small, 2, dataset) == [
        "width 16 instead of 1024",
        "epochs 1 instead of 400",
        "runs 2 instead of 20",
        "test clips 2 instead of 360",
    ]
    with pytest.raises(ConfigError, match="runs: expected at least 1, got 0"):
        paper_experiments("msad", small, 0)


def run_here(
    name: PaperDataset, root: Path, results: Path, runs: int = 2
) -> list[ReproducedFigure]:
    """The whole reproduction with a tiny network, in this process."""
    config = replace(TINY, learning_rate=paper_config(name).learning_rate)
    chosen = paper_experiments(name, config, runs)
    place = SweepPlace(data=root, results=results, checkpoints=True)
    results.mkdir()
    each = len(chosen) // runs
    for first in range(0, len(chosen), each):
        together = tuple(chosen[first : first + each])
        run_fit(SweepTask(together, place, digest_of(place.open())))
    splits = open_splits(name, root)
    return reproduced_figures(name, sweep(chosen, place), splits)


@pytest.mark.parametrize("name", DIRECTORIES)
def test_every_split_is_measured_as_if_scored_by_itself(
    layouts: Path, tmp_path: Path, name: PaperDataset
) -> None:
    root = layouts / DIRECTORIES[name]
    check_complete(name, root)
    lines = run_here(name, root, tmp_path / "results", runs=1)
    assert [*tmp_path.glob("results/*.checkpoint")] == []
    (experiment, *_) = paper_experiments(
        name, replace(TINY, learning_rate=paper_config(name).learning_rate), 1
    )
    fitted = experiment.fit(open_dataset(root))
    for split in SETUPS[name].splits:
        table = protocol.evaluate(fitted, open_dataset(root, split=split))
        for line in lines:
            cell = line.cell
            if cell.split == split and cell.aggregation == "max":
                row = table.row(placement=cell.placement, smoothed=cell.smoothed)
                theirs = row.auroc if cell.metric == "auroc" else row.ap
                assert line.ours.mean == pytest.approx(100 * theirs, nan_ok=True)
    assert len({line.cell.split for line in lines}) == len(SETUPS[name].splits)


def test_lines_stand_beside_the_papers_figures(layouts: Path, tmp_path: Path) -> None:
    lines = run_here("ubnormal", layouts / "UBnormal", tmp_path / "results")
    first = lines[0]
    assert (first.cell, first.figure) == (
        Cell("ubnormal"),
        Figure("90.1", "tab:sota_comparison", 0.4),
    )
    assert first.ours.n == 2
    of_table_1 = [line for line in lines if line.cell == Cell("ubnormal")]
    assert [line.figure.table for line in of_table_1 if line.figure] == [
        "tab:sota_comparison",
        "tab:aucap",
        "tab:aggregation_comprehensive",
    ]
    # 4 aggregations, 2 splits, 2 placements, raw and smoothed, 2 metrics; 6 more in other tables
    assert len(lines) == 4 * 2 * 2 * 2 * 2 + 6
    aggregated = {
        line.cell.aggregation: line.ours.mean
        for line in lines
        if line.cell == Cell("ubnormal", smoothed=False, aggregation=line.cell.aggregation)
    }
    assert len(set(aggregated.values())) > 1
    full, human = (
        open_dataset(layouts / "UBnormal", split=split).labels["abnormal_scene_1_scenario_1"]
        for split in ("full", "hr")
    )
    assert full.counted.sum() - human.counted.sum() == LEFT_OUT


def test_a_line_without_a_figure_of_the_paper_has_no_verdict() -> None:
    cell, ours = Cell("msad", metric="ap"), Spread(50.0, 1.0, 20)
    assert ReproducedFigure(cell, ours, None).verdict == "-"
    assert ReproducedFigure(cell, ours, Figure("50.3", "tab:any")).verdict == "holds"
    assert ReproducedFigure(cell, ours, Figure("52.0", "tab:any")).verdict == "-2.00"


def test_without_its_masks_ubnormal_has_no_human_related_split(
    layouts: Path, tmp_path: Path
) -> None:
    root = tmp_path / "UBnormal"
    shutil.copytree(layouts / "UBnormal", root)
    shutil.rmtree(root / "hr_bool_masks")
    check_complete("ubnormal", root)
    assert [*open_splits("ubnormal", root)] == ["full"]


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("pose/train", r"without pose/train/\*_alphapose_tracked_person.json \(clips to fit on\)"),
        ("pose", r"pose/train/.*; without pose/test/.*; without pose/validation/.*best epoch\);"),
        ("pose/validation", r"without pose/validation/.*\(clips that choose the best epoch\)"),
        ("gt", r"without gt/<clip>_tracks.txt \(labels\)"),
    ],
)
def test_what_is_missing_is_named(layouts: Path, tmp_path: Path, gone: str, named: str) -> None:
    root = tmp_path / "UBnormal"
    shutil.copytree(layouts / "UBnormal", root)
    shutil.rmtree(root / gone)
    with pytest.raises(DataError, match=named):
        check_complete("ubnormal", root)


def test_another_data_set_is_refused(layouts: Path) -> None:
    with pytest.raises(DataError, match="laid out as msad, got one laid out as shanghaitech"):
        check_complete("msad", layouts / "ShanghaiTech")


def test_results_in_a_precision_asked_for_are_kept_apart(layouts: Path, tmp_path: Path) -> None:
    place = SweepPlace(data=layouts / "MSAD", results=tmp_path, checkpoints=True)
    exact, quick = (
        replace(place, compute=Compute(precision=precision))
        for precision in ("float32", "bfloat16")
    )
    some = Experiment(config=TINY)
    assert exact.file(some, "") == place.file(some, "") != quick.file(some, "")
    assert exact.checkpoint(some, "") == place.checkpoint(some, "") != quick.checkpoint(some, "")


def test_abnormal_clips_to_fit_on_are_refused(layouts: Path, tmp_path: Path) -> None:
    shutil.copytree(layouts / "UBnormal", tmp_path / "UBnormal")
    train = tmp_path / "UBnormal" / "pose" / "train"
    (file,) = train.iterdir()
    shutil.copy(file, train / f"ab{file.name}")
    with pytest.raises(DataError, match="expected normal clips alone to fit on, got 1 named"):
        check_complete("ubnormal", tmp_path / "UBnormal")


def test_the_best_epoch_on_the_validation_clips_is_kept(
    layouts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = open_dataset(layouts / "UBnormal")
    rated: list[float] = []
    assert dataset.validation is not None
    validation = dataset.validation()
    rate = validation_auroc(validation)

    def note(state: training.TrainingState, quality: float) -> None:
        rated.append(quality)
        kept(state, quality)

    kept = training._keep_best
    monkeypatch.setattr(training, "_keep_best", note)
    experiment = Experiment(config=TINY, best_on_validation=True)
    fitted = experiment.fit(dataset)
    assert isinstance(fitted, Detector)
    assert len(rated) == TINY.epochs
    assert rate(fitted) == pytest.approx(max(rated))
    exact = protocol.evaluate(fitted, validation).row().auroc
    assert rate(fitted) == pytest.approx(exact, abs=0.02)  # of one window in four
    other = open_dataset(layouts / "MSAD")
    with pytest.raises(DataError, match="expected a data set with validation clips"):
        experiment.fit(other)


def test_a_stopped_training_goes_on_where_it_was(
    layouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = layouts / "UBnormal"
    experiment = paper_experiments("ubnormal", TINY, 1)[0]
    place = SweepPlace(data=root, results=tmp_path, checkpoints=True)
    digest = digest_of(place.open())
    whole = training.run_epoch
    epochs: list[int] = []

    def stops(state: training.TrainingState, *rest: object) -> None:
        epochs.append(state.epoch)
        if len(epochs) == 3:
            raise KeyboardInterrupt
        whole(state, *rest)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(training, "run_epoch", stops)
    with pytest.raises(KeyboardInterrupt):
        run_fit(SweepTask((experiment,), place, digest))
    assert [file.suffix for file in tmp_path.iterdir()] == [".checkpoint"]
    run_fit(SweepTask((experiment,), place, digest))
    assert epochs == [0, 1, 2, 2]  # the third epoch again, and no other
    assert [file.suffix for file in tmp_path.iterdir()] == [".parquet"]
    (run,) = sweep([experiment], place)
    straight = experiment.fit(place.open())
    (clip, _), *_ = place.open().test_clips()
    np.testing.assert_array_equal(run.clips[0].scores.A, straight.score(clip).A)


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        (Cell("shanghaitech"), "86.2 ± 0.1"),
        (Cell("shanghaitech", "hr"), "87.7 ± 0.1"),
        (Cell("ubnormal"), "90.1 ± 0.4"),
        (Cell("ubnormal", "hr"), "90.9 ± 0.4"),
        (Cell("ubnormal", metric="ap"), "91.6"),
        (Cell("shanghaitech", "hr", metric="ap"), "85.2"),
        (Cell("ubnormal", "hr", "backtrack", True, "ap", aggregation="top3"), "92.36"),
        (Cell("shanghaitech", placement="latest", smoothed=False), "83.55"),
        (Cell("msad", "ub"), "74.1"),
        (Cell("msad", "st", "backtrack", smoothed=False), "71.7"),
    ],
)
def test_a_figure_is_found_by_what_it_measures(cell: Cell, printed: str) -> None:
    assert FIGURES[cell][0].words == printed


@pytest.mark.parametrize(
    ("cell", "printed"),
    [
        (Cell("ubnormal", metric="ap"), {"91.6", "91.90"}),
        (Cell("shanghaitech", "hr"), {"87.7", "87.97"}),
    ],
)
def test_where_the_tables_disagree_all_of_them_are_there(cell: Cell, printed: set[str]) -> None:
    assert {figure.printed for figure in FIGURES[cell]} == printed


def test_every_table_has_as_many_figures_as_the_paper_prints() -> None:
    counted = Counter(figure.table for figures in FIGURES.values() for figure in figures)
    assert counted == {
        "tab:sota_comparison": 4,
        "tab:aucap": 2 * 4,
        "tab:aggregation_comprehensive": 8 * 16,
        "tab:msad_hr": 3 * 4,
    }


@pytest.mark.parametrize(
    ("printed", "deviation", "ours", "verdict"),
    [
        ("90.4", None, 90.4, "holds"),
        ("90.4", None, 90.9, "holds"),  # half a point, which floats make a little more
        ("90.4", None, 89.9, "holds"),
        ("90.4", None, 90.91, "+0.51"),
        ("90.4", None, 88.2, "-2.20"),
        ("90.1", 0.4, 90.5, "holds"),
        ("90.1", 0.4, 89.65, "holds, -0.45 is over one deviation"),
        ("86.2", 0.1, 86.3, "holds"),
        ("86.2", 0.1, 86.5, "holds, +0.30 is over one deviation"),
        ("86.2", 0.1, 86.75, "+0.55"),
        ("70.0", 0.8, 70.7, "holds"),
        ("70.0", 0.8, 70.9, "+0.90"),
        ("70.0", None, float("nan"), "-"),
    ],
)
def test_a_figure_holds_within_half_a_point_or_one_deviation(
    printed: str, deviation: float | None, ours: float, verdict: str
) -> None:
    assert Figure(printed, "tab:any", deviation).verdict(ours) == verdict
