"""Commands for researchers: evaluate, walkers, compare, reproduce."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from stepvad import Detector, executors, read_clip
from stepvad.config import Config
from stepvad.evaluation import baselines
from stepvad.evaluation.baselines import DistanceDetector, Method
from stepvad.evaluation.datasets import open_dataset
from stepvad.evaluation.protocol import evaluate
from stepvad.evaluation.runs import SweepTask
from stepvad.evaluation.trivial import TITLES
from stepvad.model import training
from tests.cli.conftest import QUICK
from tests.conftest import Command
from tests.evaluation.layouts import write_layouts
from tests.video.servers import wait_until


def test_the_table_holds_what_the_library_measures(
    stepvad: Command, model: Path, people: Path
) -> None:
    run = stepvad("evaluate", model, people)
    assert run.code == 0
    result = evaluate(Detector.load(model), open_dataset(people))
    row = result.row(placement="latest", smoothed=True, frames="all")
    line = next(
        line for line in run.out.splitlines() if line.split()[:3] == ["online", "smoothed", "all"]
    )
    assert line.split()[3:8] == [
        f"{row.n_frames:,}",
        f"{row.n_abnormal:,}",
        *(f"{100 * value:.1f}" for value in (row.auroc, row.ap, row.eer)),
    ]
    assert len(run.out.splitlines()) == 2 + 12
    assert " online, " in run.err


THREE = ("--placements", "latest,center,backtrack_max")


def test_json_carries_every_row_and_the_trivial_scores(
    stepvad: Command, model: Path, people: Path
) -> None:
    rows = json.loads(stepvad("evaluate", model, people, "--json", *THREE).out)["global"]["rows"]
    assert len(rows) == 3 * 2 * 6 * 3
    assert {row["method"] for row in rows} == {"detector", *TITLES}


def test_trivial_scores_stand_beside_the_model(stepvad: Command, model: Path, people: Path) -> None:
    result = evaluate(Detector.load(model), open_dataset(people))
    run = stepvad("evaluate", model, people)
    row = result.row(method="confidence", placement="latest", smoothed=False, frames="covered")
    line = next(
        line for line in run.out.splitlines() if line.split()[:3] == ["online", "raw", "covered"]
    )
    assert line.split()[10] == f"{100 * row.auroc:.1f}"


def test_without_training_clips_there_is_no_score_by_place(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    shutil.copytree(people, tmp_path / "test-only")
    shutil.rmtree(tmp_path / "test-only" / "pose" / "train")
    run = stepvad("evaluate", model, tmp_path / "test-only")
    assert run.code == 0, run.err
    assert run.out.splitlines()[1].split()[-4:] == ["persons", "confidence", "random", "speed"]


def test_intervals_hold_the_figure_and_classes_are_told_apart(
    stepvad: Command, model: Path, people: Path
) -> None:
    words = ("evaluate", model, people, "--intervals", "--placements", "latest")
    tables = json.loads(stepvad(*words, "--json").out)
    assert len(tables["intervals"]) == 6
    shown = {kind for truth in open_dataset(people).labels.values() for kind in truth.classes}
    for line, row in zip(tables["intervals"], tables["global"]["rows"][:2], strict=False):
        assert line["frames"] == row["frames"] != "one-person"  # nobody is alone here
        assert line["auroc"]["value"] == pytest.approx(row["auroc"])
        assert line["auroc"]["low"] < line["auroc"]["value"] < line["auroc"]["high"]
        assert line["by_class"].keys() == shown
    assert "95 % over clips" in stepvad(*words).out


def test_smoothing_and_aggregation_can_be_chosen(
    stepvad: Command, model: Path, people: Path
) -> None:
    def rows(*words: str) -> list[dict[str, object]]:
        tables = json.loads(stepvad("evaluate", model, people, "--json", *words).out)
        return next(iter(tables.values()))["rows"]

    default = rows()
    assert rows("--aggregation", "max") == default
    assert rows("--aggregation", "sum") != default
    assert rows("--frame-sigma", "40") != default


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--aggregation", "best"), 1, "aggregation: expected"),
        (("--aggregation", "10"), 1, "a scale from 0 to 9"),
        (("--split", "none"), 2, "--split"),
        (("--placements", "late"), 1, "--placements: expected some of latest, center"),
        (("--frame-sigma", "-1"), 2, "--frame-sigma"),
    ],
)
def test_a_wrong_choice_is_refused(
    stepvad: Command, model: Path, people: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    run = stepvad("evaluate", model, people, *words)
    assert run.code == code
    assert message in run.err


SETTINGS = Path(__file__).with_name("quick.toml")
COMPARED = (
    "--settings",
    SETTINGS,
    "--frames",
    "covered",
    "--width",
    "16",
    "--max-steps",
    "4",
    "--seeds",
    "1",
)


def test_compare_prints_the_table_and_writes_it(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    results, table = tmp_path / "results", tmp_path / "table.csv"
    words = ("compare", people, results, "--methods", "mahalanobis,knn", *COMPARED)
    run = stepvad(*words, "--table", table)
    assert run.code == 0, run.err
    assert "PCA/kNN times confidence" in run.out
    assert "number of persons" in run.out
    rows = [*csv.reader(table.read_text().splitlines())]
    assert rows[0][:3] == ["method", "AUROC", "over seeds"]
    assert [row[0] for row in rows[1:3]] == [
        "Mahalanobis times confidence",
        "PCA/kNN times confidence",
    ]
    again = stepvad(*words, "--table", tmp_path / "table.md")
    assert again.out == run.out
    lines = (tmp_path / "table.md").read_text().splitlines()
    assert lines[0].startswith("| method | AUROC |")
    assert lines[1].startswith("| --- | --: |")
    assert len(lines) == 2 + 7


def test_compare_on_ray_without_ray_names_the_extra(
    stepvad: Command, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    run = stepvad("compare", people, tmp_path / "r", "--executor", "ray")
    assert run.code == 1
    assert "error: executor ray needs the ray extra" in run.err
    assert "hint: pip install 'stepvad[ray]'" in run.err
    assert not (tmp_path / "r").exists()


OWN = """
import numpy as np

from stepvad.evaluation import CustomDataset, CustomMethod
from stepvad.evaluation.walkers import make

people = make(seed=3, train_clips=3, test_clips=4, seconds=5.0)
street = CustomDataset("street", people.train_clips, people.test_clips)


def fit(clips):
    return sum(clip.n_poses for clip in clips)


def score(n_poses, clip):
    return clip.persons_per_frame() / n_poses


crowd = CustomMethod("a crowd", fit, score)
broken = CustomMethod("broken", fit, lambda n_poses, clip: np.full(clip.n_frames, np.nan))
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of one's own in the directory where the command runs."""
    (tmp_path / "my_own_methods.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield "my_own_methods"
    sys.modules.pop("my_own_methods", None)


def test_compare_takes_a_method_and_data_of_ones_own(stepvad: Command, own_module: str) -> None:
    names = f"mahalanobis,{own_module}:crowd"
    words = ("compare", f"{own_module}:street", "r", "--methods", names, *COMPARED)
    run = stepvad(*words, "--table", "table.csv")
    assert run.code == 0, run.err
    assert "street (%)" in run.out
    rows = [*csv.reader(Path("table.csv").read_text().splitlines())]
    assert [row[0] for row in rows[1:]] == [
        "Mahalanobis times confidence",
        "a crowd",
        "number of persons",
        "minus confidence",
        "random",
        "speed alone",
        "place alone",
    ]


METHODS: list[Method] = [method for method in get_args(Method) if method != "usual"]
SCORE_MATCHING = [method for method in METHODS if not baselines.is_distance(method)]

LINES: dict[Method, tuple[str, ...]] = {
    "step": (
        "STEP: score matching in PC-space",
        "12 of 432 principal components, whitened",
        "4 σ-modulated blocks of width 16",
        "weighs the score",
    ),
    "raw-modulated": (
        "raw-modulated: score matching on raw coordinates, STEP's network",
        "none: all 432 coordinates",
        "4 σ-modulated blocks of width 16",
    ),
    "raw": (
        "raw: score matching on raw coordinates, plain network",
        "none: all 432 coordinates",
        "4 plain layers of width 16",
    ),
    "vanilla": (
        "vanilla: score matching in PC-space, plain network",
        "12 of 432 principal components, whitened",
        "4 plain layers of width 16",
    ),
    "knn": (
        "knn: distance to the nearest training windows",
        "12 of 432 principal components, whitened",
        "Neighbours    1 of ",
        "weighs the score",
    ),
    "mahalanobis": (
        "mahalanobis: distance to the mean of the training windows",
        "12 of 432 principal components, whitened",
        "weighs the score",
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_fitted_scored_and_described(
    stepvad: Command, people: Path, tmp_path: Path, method: Method
) -> None:
    path = tmp_path / f"{method}.safetensors"
    run = stepvad("fit", people / "pose" / "train", "-o", path, *QUICK, "--method", method)
    trained = method in SCORE_MATCHING
    assert (run.code, run.out.strip(), " epochs, " in run.err) == (0, str(path), trained)
    fitted = baselines.load(path)
    assert baselines.method_of(fitted) == method
    assert (432 if method.startswith("raw") else 12) == fitted.config.K
    poses = sorted((people / "pose" / "test").iterdir())[0]
    scores = json.loads(stepvad("score", path, poses, "--json").out)[0]["windows"]["score"]
    np.testing.assert_array_equal(scores, fitted.score(read_clip(poses)).A)
    told = stepvad("inspect", path).out
    for words in (*LINES[method], "of 4 clips, sha256 ", "format 3, sha256 "):
        assert words in told
    for words in ("Energy ", "Noise ", "Training "):
        assert (words in told) == trained
    facts = json.loads(stepvad("inspect", path, "--json").out)
    assert (facts["method"], facts.get("k")) == (method, 1 if method == "knn" else None)
    assert ("E_mean" in facts) == trained
    assert facts["sha256"] in told


def test_neighbours_whitening_and_confidence_can_be_chosen(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    output = tmp_path / "m.safetensors"
    (tmp_path / "knn.toml").write_text("confidence = false\nK = 12\n[reference]\nwhitening = 0\n")
    words = ("--method", "knn", "--neighbours", "3", "--settings", tmp_path / "knn.toml")
    assert stepvad("fit", people / "pose" / "train", "-o", output, *words).code == 0
    detector = baselines.load(output)
    assert isinstance(detector, DistanceDetector)
    assert detector.neighbours is not None
    assert detector.neighbours.k == 3
    assert (detector.config.reference.whitening, detector.config.confidence) == (0, False)
    told = stepvad("inspect", output).out
    for line in ("components, not whitened", "Confidence    is ignored", "3 of "):
        assert line in told
    assert json.loads(stepvad("inspect", output, "--json").out)["k"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "knn", "--neighbours", "1000000"), "k: expected a number from 1 to "),
        (("--method", "knn", "--K", "500"), "K: expected at most"),
        (("--method", "mahalanobis", "--validation", "x"), "--validation: expected a fit"),
        (("--method", "knn", "--resume"), "--resume: expected a fit"),
        (("--neighbours", "2"), "--neighbours: expected a fit that uses it, got --method"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(
    stepvad: Command, people: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    run = stepvad("fit", people / "pose" / "train", "-o", tmp_path / "m.safetensors", *words)
    assert run.code == 1
    assert "error: " in run.err
    assert message in " ".join(run.err.split())
    assert "Traceback" not in run.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("--method", "wings"), ("--method", "knn", "--neighbours", "0")])
def test_an_unknown_method_and_no_neighbour_are_usage_errors(
    stepvad: Command, people: Path, words: tuple[str, ...]
) -> None:
    run = stepvad("fit", people / "pose" / "train", *words)
    assert run.code == 2
    assert words[-2] in run.err


SMALL = ("--settings", Path(__file__).with_name("trial.toml"))


@pytest.fixture(scope="module")
def layouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("layouts")
    write_layouts(root, seconds=8.0)
    return root


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings in this process, which is quicker than to start another."""

    def in_this_process(
        work: Callable[[SweepTask], int], tasks: Sequence[SweepTask], **_: object
    ) -> Iterator[int]:
        return map(work, tasks)

    monkeypatch.setattr(executors, "run", in_this_process)


@pytest.mark.parametrize(
    ("name", "directory", "first"),
    [
        ("ubnormal", "UBnormal", ["90.1 ± 0.4", "tab:sota_comparison"]),
        ("shanghaitech", "ShanghaiTech", ["86.2 ± 0.1", "tab:sota_comparison"]),
        ("msad", "MSAD", ["59.6", "tab:msad_hr"]),
    ],
)
def test_ours_stands_beside_the_papers(
    stepvad: Command,
    layouts: Path,
    tmp_path: Path,
    here: None,
    name: str,
    directory: str,
    first: list[str],
) -> None:
    table = tmp_path / "table.csv"
    words = ("reproduce", name, "--data", layouts / directory, *SMALL)
    run = stepvad(*words, "--results", tmp_path / "r", "--runs", "2", "--table", table)
    assert run.code == 0, run.err
    assert "not the paper's settings: width 16 instead of 1024, epochs 1 instead of" in run.err
    assert "not the paper's settings" in run.out
    assert " figures of the paper hold" in run.err
    header, *rows = csv.reader(table.read_text("utf-8").splitlines())
    assert header[-3:] == ["paper", "table", "verdict, not the paper's settings"]
    assert rows[0][:5] == ["full", "online", "smoothed", "max", "AUROC"]
    assert rows[0][6:8] == first
    ours, paper = (float(cell.split()[0]) for cell in rows[0][5:7])
    assert float(rows[0][8]) == pytest.approx(ours - paper, abs=0.011)


def test_what_is_there_is_not_trained_again(
    stepvad: Command, layouts: Path, tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[int] = []
    train = training.train

    def noted(data: training.TrainingSet, config: Config, **rest: Any) -> object:
        trained.append(config.seed)
        return train(data, config, **rest)

    monkeypatch.setattr(training, "train", noted)
    words: tuple[str | Path, ...] = ("reproduce", "msad", *SMALL)
    words += ("--data", layouts / "MSAD", "--results", tmp_path / "r")
    one = stepvad(*words, "--runs", "1")
    assert one.code == 0, one.err
    more = stepvad(*words, "--runs", "3", "--table", tmp_path / "t.md")
    assert more.code == 0, more.err
    assert trained == [0, 1, 2]
    lines = (tmp_path / "t.md").read_text("utf-8").splitlines()
    assert lines[0].startswith(
        "| split | protocol | scores | aggregation | metric | ours | paper |"
    )
    assert lines[1].startswith("| --- | --: |")
    assert len(lines) == 2 + 3 * 2 * 2 * 2
    again = stepvad(*words, "--runs", "3")
    assert again.out == more.out
    assert trained == [0, 1, 2]


def test_a_dry_run_tells_and_does_nothing(
    stepvad: Command, layouts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train", None)  # would fail if it were called
    words = ("reproduce", "ubnormal", "--data", layouts / "UBnormal", "--dry-run")
    run = stepvad(*words, *SMALL, "--table", tmp_path / "table.md")
    assert run.code == 0, run.err
    plan, one_run, runs, takes, advice = run.out.splitlines()
    assert plan.startswith("UBnormal: fitted on 1 clips, ")
    assert one_run == "one run: 1 epochs, 1 steps, width 16"
    assert runs == "runs: 20, of which 0 are in ubnormal-results"
    assert takes.startswith("training on cpu: ")
    assert "fewer --runs" in advice
    assert [*tmp_path.iterdir()] == []


def test_the_precision_is_part_of_the_name_of_a_result(
    stepvad: Command, layouts: Path, tmp_path: Path, here: None
) -> None:
    (tmp_path / "a.toml").write_text("epochs = 1\nwidth = 16\n")
    file = ("--settings", tmp_path / "a.toml", "--precision", "bfloat16")
    words = ("reproduce", "ubnormal", "--data", layouts / "UBnormal", *file)
    run = stepvad(*words, "--results", tmp_path / "r", "--runs", "1")
    assert run.code == 0, run.err
    assert all(file.stem.endswith("-bfloat16") for file in (tmp_path / "r").iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_one_sentence(
    stepvad: Command, layouts: Path, people: Path, tmp_path: Path
) -> None:
    data = layouts / "MSAD"
    results = ("--results", tmp_path / "r")
    for words in (
        ("reproduce", "msad", "--data", data, *SMALL, *results),
        ("reproduce", "msad", "--data", data, *SMALL, "--dry-run"),
        ("fit", people / "pose" / "train", "-o", tmp_path / "m.safetensors"),
    ):
        run = stepvad(*words, "--device", "cuda")
        assert run.code == 1
        told = " ".join(run.err.split())
        assert (
            "error: device: expected one that torch can compute on here (cpu), got 'cuda'" in told
        )
        assert "hint: " in run.err
        assert "Traceback" not in run.err
    assert [*tmp_path.iterdir()] == []


def test_poses_that_are_missing_are_named(stepvad: Command, tmp_path: Path) -> None:
    run = stepvad("reproduce", "shanghaitech", "--data", tmp_path)
    assert run.code == 1
    assert "got a directory without pose/train/*_alphapose_tracked_person.json" in run.err
    assert "without gt/test_frame_mask/<clip>.npy (labels)" in run.err
    assert "hint: " in run.err


EPOCHS = 40
"""Small ones: enough that a training is caught in the middle."""


def reproduce(name: str, data: Path, directory: Path) -> list[str | Path]:
    (directory / "trial.toml").write_text(f"epochs = {EPOCHS}\nwidth = 16\n")
    words: Sequence[str | Path] = ("reproduce", name, "--data", data)
    words = (*words, "--results", directory / "results", "--table", directory / "table.csv")
    words = (*words, "--runs", "2", "--settings", directory / "trial.toml")
    return [sys.executable, "-m", "stepvad", *words]


def checkpoints(results: Path) -> list[int]:
    """When the checkpoints were written."""
    return sorted(one.stat().st_mtime_ns for one in results.glob("*.checkpoint"))


def kill_while_training(words: Sequence[str | Path], results: Path, log: Path) -> None:
    """kill -9, the command and the processes that train, once there is another checkpoint."""
    before = checkpoints(results)
    with log.open("wb") as out:
        running = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)
    try:
        wait_until(lambda: checkpoints(results) > before or running.poll() is not None, 60)
        assert running.poll() is None, log.read_text()
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.mark.slow
def test_killed_twice_it_ends_with_the_table_of_a_run_in_one_go(tmp_path: Path) -> None:
    write_layouts(tmp_path, seconds=8.0)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for one in (whole, broken):
        one.mkdir()
    data = tmp_path / "UBnormal"  # which also keeps the best epoch
    subprocess.run(reproduce("ubnormal", data, whole), check=True, capture_output=True)
    words = reproduce("ubnormal", data, broken)
    for _ in range(2):
        kill_while_training(words, broken / "results", tmp_path / "log")
    assert checkpoints(broken / "results")
    assert not (broken / "table.csv").exists()
    subprocess.run(words, check=True, capture_output=True)
    assert (broken / "table.csv").read_text() == (whole / "table.csv").read_text()
    assert not checkpoints(broken / "results")
