"""Every study runs as a command, at toy size, and writes its table and its figure."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepvad import executors
from stepvad.cli.studies import NAMES
from stepvad.evaluation.studies import STUDIES
from tests.cli.conftest import Command

TINY = ("--seeds", "1", "--width", "8", "--max-steps", "2", "--K", "12", "--frames", "covered")
OF_THE_PAPER = [name for name in NAMES if name != "views"]
"""`views` has options and tables of its own: tests/evaluation/test_viewstudy.py."""


def test_every_study_has_a_command() -> None:
    assert [*(study.name for study in STUDIES), "views"] == [*NAMES]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Studies share results, as they do for a user."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch takes longer than such a study; tests/test_executors.py has processes."""

    def run(work: Callable[[Any], Any], tasks: Sequence[Any], **_: object) -> list[Any]:
        return [work(task) for task in tasks]

    monkeypatch.setattr(executors, "run", run)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("name", [name for name in OF_THE_PAPER if name != "projections"])
def test_a_study_writes_its_table_and_its_figure(
    name: str, stepvad: Command, people: Path, results: Path, tmp_path: Path
) -> None:
    words = (
        "benchmark",
        "study",
        name,
        people,
        "-o",
        tmp_path / "out",
        "--results",
        results,
        *TINY,
    )
    run = stepvad(*words)
    assert run.code == 0, run.err
    assert f"written: {tmp_path / 'out' / name}.md, .csv and .png" in run.err
    header, *rows = csv.reader((tmp_path / "out" / f"{name}.csv").read_text("utf-8").splitlines())
    assert header[:3] == ["data", "case", "AUROC"]
    assert all(0 <= float(row[2]) <= 100 for row in rows)
    assert len((tmp_path / "out" / f"{name}.md").read_text("utf-8").splitlines()) == 2 + len(rows)
    assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_several_T_and_K_make_a_map_too(stepvad: Command, people: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path, "--results", tmp_path / "r")
    words = ("benchmark", "study", "grid", people, *out, *TINY)
    run = stepvad(*words, "--T", "4,12", "--K", "8,12")
    assert run.code == 0, run.err
    assert (tmp_path / "grid-maps.png").stat().st_size > 5_000


def test_numbers_are_checked(stepvad: Command, people: Path) -> None:
    run = stepvad("benchmark", "study", "grid", people, "--T", "4,twelve")
    assert run.code == 1
    assert "--T: expected whole numbers of at least 1, got 4,twelve" in run.err


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("views", "--methods", "step"),
        ("views", "--placement", "center"),
        ("views", "--smoothed", ""),
        ("grid", "--views", "pose"),
        ("grid", "--densities", "step,knn"),
        ("grid", "--fps", "25"),
    ],
)
def test_options_of_other_studies_are_refused(
    name: str, option: str, value: str, stepvad: Command, people: Path
) -> None:
    run = stepvad("benchmark", "study", name, people, option, *([value] if value else []))
    assert run.code == 1
    assert f"{option}" in run.err
    assert f"expected a study that uses it, got {name}" in run.err
