from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Command

SETTINGS = Path(__file__).with_name("quick.toml")
QUICK = ("--settings", SETTINGS, "--width", "16", "--max-steps", "4", "--seeds", "1")


def test_compare_prints_the_table_and_writes_it(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    results, table = tmp_path / "results", tmp_path / "table.csv"
    words = ("compare", people, results, "--methods", "mahalanobis,knn", *QUICK)
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
    (tmp_path / "ray.toml").write_text('executor = "ray"\n')
    run = stepvad("compare", people, tmp_path / "r", "--settings", tmp_path / "ray.toml")
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
    words = ("compare", f"{own_module}:street", "r", "--methods", names, *QUICK)
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
