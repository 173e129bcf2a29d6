from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

QUICK = ("--K", "12", "--width", "16", "--max-steps", "4", "--seeds", "1", "--frames", "covered")


def test_compare_prints_the_table_and_writes_it(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    results, table = tmp_path / "results", tmp_path / "table.csv"
    words = ("benchmark", "compare", people, results, "--methods", "mahalanobis,knn", *QUICK)
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
    assert len(lines) == 2 + 5


def test_compare_refuses_a_name_nobody_knows(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    run = stepvad("benchmark", "compare", people, tmp_path / "r", "--methods", "step,stepp")
    assert run.code == 1
    assert "error: method: expected one of step, step-unweighted" in run.err


def test_compare_on_ray_without_ray_names_the_extra(
    stepvad: Command, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    run = stepvad("benchmark", "compare", people, tmp_path / "r", "--executor", "ray")
    assert run.code == 1
    assert "error: executor ray needs the ray extra" in run.err
    assert "hint: pip install 'stepvad[ray]'" in run.err
    assert not (tmp_path / "r").exists()
