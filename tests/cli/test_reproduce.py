from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from stepvad import executors
from stepvad.config import Config
from stepvad.evaluation.runs import SweepTask
from stepvad.model import training
from tests.conftest import Command
from tests.evaluation.layouts import write_layouts

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


def test_the_open_choices_and_the_precision_are_told(
    stepvad: Command, layouts: Path, tmp_path: Path, here: None
) -> None:
    (tmp_path / "a.toml").write_text("epochs = 1\nwidth = 16\nprecision = 'bfloat16'\n")
    file = ("--settings", tmp_path / "a.toml")
    words = ("reproduce", "ubnormal", "--data", layouts / "UBnormal", *file)
    run = stepvad(*words, "--results", tmp_path / "r", "--runs", "1")
    assert run.code == 0, run.err
    told = " ".join(run.err.split())
    assert "choices that the paper leaves open: large products of the training in bfloat16" in told
    assert "rated by one validation window in 4" in told
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
