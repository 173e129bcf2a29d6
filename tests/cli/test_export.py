from __future__ import annotations

import json
from pathlib import Path

from tests.conftest import Command


def test_export_writes_a_file_and_says_how_close_it_is(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    run = stepvad("export", model, "-o", path)
    assert run.code == 0, run.err
    assert run.out.strip() == str(path)
    assert " windows on " in run.err
    assert path.stat().st_size > 1000
    told = json.loads(stepvad("export", model, "-o", path, "--json").out)
    assert 0 <= told["deviation"] < 1e-3


def test_export_refuses_what_it_cannot_write(stepvad: Command, model: Path, tmp_path: Path) -> None:
    run = stepvad("export", model, "-o", tmp_path / "model.pt")
    assert run.code == 1
    assert "expected a name that ends in .onnx or .xml" in run.err
    assert list(tmp_path.iterdir()) == []


def test_distances_cannot_be_exported(stepvad: Command, people: Path, tmp_path: Path) -> None:
    distances = tmp_path / "knn.safetensors"
    assert stepvad("fit", people, "-o", distances, "--method", "knn", "--K", "12").code == 0
    run = stepvad("export", distances, "-o", tmp_path / "knn.onnx")
    assert run.code == 1
    assert "expected a model with a network, got distances" in run.err
