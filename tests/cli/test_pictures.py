from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("words", "least"),
    [
        (("traversal", "--K", "12"), (700, 600)),
        (("lowpass", "--K", "4", "--K", "12"), (600, 400)),
        (("reconstruction", "--T", "4"), (500, 500)),
    ],
    ids=lambda value: value[0] if isinstance(value[0], str) else None,
)
def test_a_picture_is_drawn_of_any_data_set(
    stepvad: Command, people: Path, tmp_path: Path, words: tuple[str, ...], least: tuple[int, int]
) -> None:
    verb, *options = words
    run = stepvad("benchmark", verb, people, "-o", tmp_path / "a.png", *options)
    assert run.code == 0, run.err
    height, width = np.asarray(imread(tmp_path / "a.png")).shape[:2]
    assert width >= least[0]
    assert height >= least[1]
    assert (tmp_path / "a.png").stat().st_size < 400_000


def test_traversal_tells_how_far_its_people_go(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    run = stepvad("benchmark", "traversal", people, "-o", tmp_path / "a.png", "--K", "12")
    assert run.out == f"{tmp_path / 'a.png'}\n"
    words = run.err.split()
    standing, moving = float(words[words.index("goes") + 1]), float(words[-1])
    assert standing < 0.1 < moving


def test_reconstruction_writes_a_row_for_every_k(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    table, picture = tmp_path / "table.csv", tmp_path / "a.png"
    words = ("benchmark", "reconstruction", people, "-o", picture, "--T", "4")
    run = stepvad(*words, "--table", table)
    assert run.code == 0, run.err
    assert "mean squared error of" in run.out
    header, *rows = csv.reader(table.read_text().splitlines())
    assert header[:3] == ["K", "noise 0", "noise 0.05"]
    assert [int(row[0]) for row in rows] == [*range(1, len(rows) + 1)]
    clean = [float(row[1]) for row in rows]
    assert clean == sorted(clean, reverse=True)
    stepvad(*words, "--table", tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text().startswith("| K | noise 0 |")


def test_timelines_are_drawn_best_first(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    words = ("benchmark", "timelines", model, people, "-o", tmp_path / "new")
    run = stepvad(*words, "--clips", "2")
    assert run.code == 0, run.err
    files = sorted(path.name[:2] for path in (tmp_path / "new").iterdir())
    assert files == ["1-", "2-"]
    figures = [float(line.split()[0]) for line in run.out.splitlines()[2:]]
    assert figures == sorted(figures, reverse=True)


def test_what_cannot_be_written_is_refused_before_the_work(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    run = stepvad("benchmark", "lowpass", people, "-o", tmp_path / "a.pdf")
    assert run.code == 1
    assert "a.pdf: expected a name that ends in .png" in run.err
    (tmp_path / "file").write_text("")
    run = stepvad("benchmark", "timelines", model, people, "-o", tmp_path / "file")
    assert "file: expected a directory, got a file" in run.err


def test_pictures_without_matplotlib_name_the_extra(
    stepvad: Command, people: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    run = stepvad("benchmark", "traversal", people)
    assert run.code == 1
    assert "plot needs the plots extra" in run.err
