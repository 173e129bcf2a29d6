"""A threshold from the command line, in words, as a file and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepvad.calibration import file
from tests.cli.conftest import Command


@pytest.fixture(scope="module")
def normal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quarter of an hour of people who do nothing odd."""
    from stepvad.benchmark.walkers import write_dataset

    root = tmp_path_factory.mktemp("normal")
    write_dataset(root, seed=9, train_clips=60, test_clips=1, seconds=15.0)
    return root / "pose" / "train"


def test_it_says_what_it_promises_and_on_what_grounds(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    words = ("calibrate", model, normal, "--fps", "25", "--alerts-per-hour", "5")
    run = stepvad(*words, "-o", tmp_path / "c.json", "--plot", tmp_path / "rates.png")
    assert run.code == 0, run.err
    assert "hours of normal footage, cameras: 1" in run.out
    assert "at most 5 false events per hour of a camera, with 95 % confidence" in run.out
    assert "the strictest promise from so much footage" in run.out
    made = file.read(tmp_path / "c.json")
    assert f"threshold {made.threshold.value:.2f}" in run.out
    assert made.threshold.hours == pytest.approx(0.222, rel=0.02)
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_it_is_kept_beside_the_model_and_told_as_json(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(model.read_bytes())
    words = ("calibrate", own, normal, "--fps", "25", "--alerts-per-hour", "8", "--json")
    run = stepvad(*words, "--gap-seconds", "2")
    assert run.code == 0, run.err
    (facts,) = json.loads(run.out)
    made = file.read(tmp_path / "own.calibration.json")
    assert facts["threshold"]["value"] == made.threshold.value
    assert made.rules.gap_s == 2


def test_it_refuses_what_the_footage_cannot_carry(
    stepvad: Command, model: Path, normal: Path
) -> None:
    run = stepvad("calibrate", model, normal, "--fps", "25", "--alerts-per-hour", "0.01")
    assert run.code == 1
    assert "alerts_per_hour: expected at least 0.45 from 0.22 hours of footage, got 0.01" in run.err
    assert "record 10 hours of normal footage" in run.err
    assert not file.beside(model).exists()


def test_it_needs_to_know_the_time(stepvad: Command, model: Path, normal: Path) -> None:
    run = stepvad("calibrate", model, normal, "--alerts-per-hour", "5")
    assert run.code == 1
    assert "expected to know its frames per second, got none" in run.err
    assert "--fps" in run.err


def test_recent_footage_is_compared_with_that_of_calibration(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(model.read_bytes())
    run = stepvad("inspect", own, "--drift", normal, "--fps", "25")
    assert run.code == 1
    assert "own.calibration.json: expected a calibration, got: No such file" in run.err
    assert "stepvad calibrate MODEL NORMAL_POSES" in run.err
    words = ("calibrate", own, normal, "--fps", "25", "--alerts-per-hour", "8")
    assert stepvad(*words).code == 0
    run = stepvad("inspect", own, "--drift", normal, "--fps", "25")
    assert run.code == 0, run.err
    assert "no change beyond chance (p = 1; 60 blocks of camera train, 60 now)" in run.out
    run = stepvad("inspect", own, "--drift", normal, "--fps", "25", "--json")
    assert json.loads(run.out)["changed"] is False
