"""A threshold from the command line, in words, as a file and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepvad.events.calibration import calibration_path, read_calibration
from tests.conftest import Command


@pytest.fixture(scope="module")
def normal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People who do nothing odd; at five frames a second a quarter of an hour."""
    from stepvad.evaluation.walkers import write_dataset

    root = tmp_path_factory.mktemp("normal")
    write_dataset(root, seed=9, train_clips=12, test_clips=1, seconds=15.0)
    return root / "pose" / "train"


def test_it_says_what_it_promises_and_on_what_grounds(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    words = ("calibrate", model, normal, "--fps", "5", "--alerts-per-hour", "5")
    run = stepvad(*words, "-o", tmp_path / "c.json", "--plot", tmp_path / "rates.png")
    assert run.code == 0, run.err
    assert "13 min of normal footage, cameras: 1" in run.out
    assert "at most 5 false events per hour of a camera, with 95 % confidence" in run.out
    assert "strictest promise: 0.45 per hour from this footage, 0.045 from ten times it" in run.out
    assert "provisional" not in run.out
    made = read_calibration(tmp_path / "c.json")
    assert f"threshold {made.threshold.value:.2f}" in run.out
    assert made.threshold.hours == pytest.approx(0.222, rel=0.02)
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_it_is_kept_beside_the_model_and_told_as_json(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(model.read_bytes())
    words = ("calibrate", own, normal, "--fps", "5", "--alerts-per-hour", "8", "--json")
    run = stepvad(*words)
    assert run.code == 0, run.err
    (facts,) = json.loads(run.out)
    made = read_calibration(tmp_path / "own.calibration.json")
    assert facts["threshold"]["value"] == made.threshold.value


def test_too_little_footage_gives_a_provisional_threshold_and_says_what_is_missing(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    words = ("calibrate", model, normal, "--fps", "5", "--alerts-per-hour", "0.01")
    run = stepvad(*words, "-o", tmp_path / "c.json")
    assert run.code == 0, run.err
    made = read_calibration(tmp_path / "c.json").threshold
    assert (made.how, made.is_promised) == ("provisional", False)
    assert f"threshold {made.value:.2f}: provisional, no promise yet" in run.out
    assert "a promise of at most 0.01 per hour needs about 10 h in total" in run.out
    assert "to confirm it by counting takes 12 days without an event" in run.out


def test_it_needs_to_know_the_time(stepvad: Command, model: Path, normal: Path) -> None:
    run = stepvad("calibrate", model, normal, "--alerts-per-hour", "5")
    assert run.code == 1
    assert "expected a frame rate, got none" in run.err
    assert "--fps" in run.err


def test_recent_footage_is_compared_with_that_of_calibration(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(model.read_bytes())
    run = stepvad("inspect", own, "--drift", normal, "--fps", "5")
    assert run.code == 1
    assert "expected a calibration next to the model, got none" in run.err
    assert "stepvad calibrate MODEL NORMAL_POSES" in run.err
    words = ("calibrate", own, normal, "--fps", "5", "--alerts-per-hour", "8")
    assert stepvad(*words).code == 0
    run = stepvad("inspect", own, "--drift", normal, "--fps", "5")
    assert run.code == 0, run.err
    assert "no change beyond chance (p = 1; 33 blocks of camera train, 33 now)" in run.out
    run = stepvad("inspect", own, "--drift", normal, "--fps", "5", "--json")
    assert json.loads(run.out)["changed"] is False


def test_directories_of_one_name_are_one_camera(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    files = sorted(normal.iterdir())
    for day, some in (("monday", files[:6]), ("tuesday", files[6:])):
        (tmp_path / day / "door").mkdir(parents=True)
        for one in some:
            (tmp_path / day / "door" / one.name).symlink_to(one)
    days = [tmp_path / day / "door" for day in ("monday", "tuesday")]
    words = ("--fps", "5", "--alerts-per-hour", "5", "-o", tmp_path / "c.json")
    assert stepvad("calibrate", model, *days, *words).code == 0
    both = read_calibration(tmp_path / "c.json")
    assert stepvad("calibrate", model, normal, *words).code == 0
    whole = read_calibration(tmp_path / "c.json")
    assert [*both.counted] == ["door"]
    assert both.threshold.hours == pytest.approx(whole.threshold.hours)
    assert len(both.looks["door"]) == len(whole.looks[normal.name])


def test_the_calibration_of_another_model_tells_no_drift(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(model.read_bytes())
    words = ("--fps", "5", "--alerts-per-hour", "8")
    assert stepvad("calibrate", own, normal, *words).code == 0
    beside = calibration_path(own)
    beside.write_text(beside.read_text().replace(read_calibration(beside).model_sha256, "0" * 64))
    run = stepvad("inspect", own, "--drift", normal, "--fps", "5")
    assert run.code == 1
    assert "belongs to another model" in run.err
