from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Command


def test_distill_writes_a_model_that_other_verbs_take(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    student = tmp_path / "student.safetensors"
    words = ("--steps", "3", "--width", "8", "--blocks", "2", "--runtime", "auto")
    run = stepvad("distill", model, people, "-o", student, *words)
    assert run.code == 0, run.err
    assert run.out.strip() == str(student)
    assert "% of the work, fitted in " in run.err
    assert stepvad("evaluate", student, people, "--runtime", "numpy").code == 0
    told = stepvad("inspect", student).out
    assert told.startswith("Method        student: a small network")
    assert "of width 8, " in told
    assert "Noise" not in told


def test_distances_cannot_be_distilled(stepvad: Command, people: Path, tmp_path: Path) -> None:
    distances = tmp_path / "knn.safetensors"
    assert stepvad("fit", people, "-o", distances, "--method", "knn", "--K", "12").code == 0
    run = stepvad("distill", distances, people)
    assert run.code == 1
    assert "expected a model with a network, got distances" in run.err
