"""Fitting and calibrating on the command line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from stepvad import Detector, read_clips, write_clip
from stepvad.evaluation.datasets import Dataset
from stepvad.evaluation.protocol import ScoredClip, score_clips
from stepvad.evaluation.walkers import write_dataset
from stepvad.events.calibration import read_calibration
from tests.cli.conftest import QUICK
from tests.conftest import Command


def test_fit_writes_a_model_and_prints_its_name(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    output = tmp_path / "m.safetensors"
    run = stepvad("fit", people / "pose" / "train", "-o", output, *QUICK)
    assert run.code == 0
    assert run.out.strip() == str(output)
    assert "windows of 4 clips" in run.err
    assert "the poses state no frame rate, or several; with --fps RATE" in run.err
    assert "will be replaced" not in run.err
    detector = Detector.load(output)
    assert (detector.config.width, detector.config.K, detector.config.max_steps) == (16, 12, 8)
    assert not list(tmp_path.glob("*.checkpoint"))


def test_the_paper_preset_is_the_papers_training(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    output = tmp_path / "m.safetensors"
    words = ("--preset", "paper", "--width", "8", "--epochs", "1", "--T", "4", "--K", "6")
    assert stepvad("fit", people / "pose" / "train", "-o", output, *words).code == 0
    config = Detector.load(output).config
    assert (config.max_steps, config.ema_warmup, config.learning_rate) == (None, False, 2e-4)
    assert (config.T, config.K, config.epochs) == (4, 6, 1)


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    fit = ("fit", people / "pose" / "train", *QUICK)
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        stepvad(*fit, "-o", tmp_path / name, "--seed", seed)
    again = stepvad(*fit, "-o", tmp_path / "c", "--seed", "2", "--fps", "25", "--json")
    origin = json.loads(again.out)["origin"]
    assert (origin["clips"], origin["windows"] > 900) == (4, True)
    assert f"{tmp_path / 'c'} will be replaced" in again.err
    assert "frame rate" not in again.err
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_two_processes_with_two_threads_each_write_the_same_bytes(
    people: Path, tmp_path: Path
) -> None:
    wide = ("--max-steps", "4", "--width", "64", "--K", "12")
    for name in "ab":
        subprocess.run(
            [sys.executable, "-m", "stepvad", "fit", str(people / "pose" / "train"),
             "-o", str(tmp_path / name), *wide],
            env={**os.environ, "OMP_NUM_THREADS": "2"}, check=True, timeout=300,
        )  # fmt: skip
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_validation_keeps_the_best_epoch(stepvad: Command, people: Path, tmp_path: Path) -> None:
    output = tmp_path / "m.safetensors"
    (tmp_path / "fit.toml").write_text("epochs = 3\npatience = 1\nwidth = 16\nK = 12\n")
    words = ("--settings", tmp_path / "fit.toml", "--validation", people)
    run = stepvad("fit", people / "pose" / "train", "-o", output, *words)
    assert run.code == 0
    assert 1 <= Detector.load(output).origin.epochs <= 3


def test_validation_takes_the_validation_clips_of_a_data_set_that_has_them(
    stepvad: Command, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "people"
    shutil.copytree(people, root)
    write_dataset(root / "validation", seed=8, train_clips=0, test_clips=3, seconds=5.0)
    rated: list[str] = []

    def recording(detector: Detector, dataset: Dataset) -> list[ScoredClip]:
        rated.extend(clip.name for clip, _ in dataset.test_clips())
        return score_clips(detector, dataset)

    monkeypatch.setattr("stepvad.evaluation.experiment.score_clips", recording)
    fit = ("fit", people, "-o", tmp_path / "m.safetensors", *QUICK)
    assert "test clips choose" not in stepvad(*fit, "--validation", root).err
    assert set(rated) == {"01_0001", "02_0002", "03_0003"}
    run = stepvad(*fit, "--validation", people)
    assert "people has no validation clips: its test clips choose the epoch\n" in run.err
    assert "04_0004" in rated


def test_a_data_set_is_fitted_on_its_training_clips(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    for name, poses in (("set", people), ("poses", people / "pose" / "train")):
        assert stepvad("fit", poses, "-o", tmp_path / name, *QUICK).code == 0
    assert (tmp_path / "set").read_bytes() == (tmp_path / "poses").read_bytes()


def test_swapped_coordinates_of_a_data_set_are_noticed(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    train = tmp_path / "mine" / "pose" / "train"
    shutil.copytree(people, tmp_path / "mine")
    for clip in read_clips(people / "pose" / "train"):
        tracks = [replace(track, keypoints=track.keypoints[..., ::-1]) for track in clip.tracks]
        write_clip(replace(clip, tracks=tuple(tracks)), next(train.glob(f"{clip.name}*")))
    run = stepvad("fit", tmp_path / "mine", "-o", tmp_path / "m.safetensors", *QUICK)
    assert "x and y may be swapped" in run.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--K", "500"), "K: expected at most"),
        (("--T", "0"), "T: expected at least 1, got 0"),
        (("--T", "5000"), "expected at least one track of 5000 consecutive frames"),
        (("-o", "missing/dir/m.safetensors"), "expected a file name in a directory that exists"),
        (("--format", "tracks"), "expected files that end in .parquet"),
    ],
)
def test_fit_says_what_is_wrong_and_what_helps(
    stepvad: Command, people: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    default = () if "-o" in words else ("-o", str(tmp_path / "m.safetensors"))
    run = stepvad("fit", people / "pose" / "train", *default, *words)
    assert run.code == 1
    assert run.err.startswith("error: ") or "\nerror: " in run.err
    assert message in run.err
    assert "Traceback" not in run.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("patience = 3", "patience: expected --validation with it"),
        ("learning_rate = 1e30", "training diverged"),
        ("learning-rate = 1", "fit.toml: learning-rate: expected a known setting, got an unknown"),
    ],
)
def test_a_file_of_settings_says_what_is_wrong(
    stepvad: Command, people: Path, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "fit.toml").write_text(text)
    words = (*QUICK, "-o", tmp_path / "m.safetensors", "--settings", tmp_path / "fit.toml")
    run = stepvad("fit", people / "pose" / "train", *words)
    assert run.code == 1
    assert message in run.err
    assert [path.name for path in tmp_path.iterdir()] == ["fit.toml"]


@pytest.mark.slow
def test_ctrl_c_keeps_the_last_epoch_and_resume_ends_at_the_same_bytes(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    def command(output: Path) -> list[str]:
        words = ["fit", str(people / "pose" / "train"), "-o", str(output)]
        return [*words, "--epochs", "30", "--width", "64", "--K", "12"]

    whole, broken = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors"
    checkpoint = tmp_path / "broken.safetensors.checkpoint"
    assert stepvad(*command(whole)).code == 0
    process = [sys.executable, "-m", "stepvad", *command(broken)]
    fit = subprocess.Popen(process, stderr=subprocess.PIPE, text=True, env=os.environ)
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    fit.send_signal(signal.SIGINT)
    _, err = fit.communicate(timeout=60)
    assert fit.returncode == 130
    assert "--resume" in err
    assert "Traceback" not in err
    assert not broken.exists()
    assert stepvad(*command(broken), "--resume").code == 0
    assert broken.read_bytes() == whole.read_bytes()
    assert not checkpoint.exists()


def test_resume_without_an_interrupted_fit_is_refused(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    run = stepvad("fit", people / "pose" / "train", "-o", tmp_path / "m", *QUICK, "--resume")
    assert run.code == 1
    assert "expected the checkpoint of an interrupted fit" in run.err


def test_ctrl_c_before_the_first_epoch_says_that_nothing_was_kept(
    stepvad: Command, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("stepvad.model.training.run_epoch", interrupted)
    run = stepvad("fit", people / "pose" / "train", "-o", tmp_path / "m", *QUICK)
    assert run.code == 130
    assert "nothing was saved" in run.err


@pytest.fixture(scope="module")
def normal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People who do nothing odd; at five frames a second a quarter of an hour."""
    from stepvad.evaluation.walkers import write_dataset

    root = tmp_path_factory.mktemp("normal")
    write_dataset(root, seed=9, train_clips=12, test_clips=1, seconds=15.0)
    return root / "pose" / "train"


def test_it_says_the_threshold_and_what_it_rests_on(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    words = ("calibrate", model, normal, "--fps", "5", "--alerts-per-hour", "10")
    run = stepvad(*words, "-o", tmp_path / "c.json", "--plot", tmp_path / "rates.png")
    assert run.code == 0, run.err
    made = read_calibration(tmp_path / "c.json")
    assert run.out.splitlines()[:3] == [
        "13 min of normal footage, cameras: 1",
        f"threshold {made.threshold.value:.2f}: about 10 alerts an hour: a budget, from 13 min "
        f"watched with {made.threshold.events} events",
        "at most 10 alerts an hour (--strict) takes 18 min without an event",
    ]
    assert made.threshold.hours == pytest.approx(0.222, rel=0.02)
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")


def test_a_strict_threshold_is_counted_or_refused(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    words = ("calibrate", model, normal, "--fps", "5", "--strict", "-o", tmp_path / "c.json")
    run = stepvad(*words, "--alerts-per-hour", "20")
    assert run.code == 0, run.err
    assert "at most 20 alerts an hour, 95 % sure, counted in 13 min with" in run.out
    assert read_calibration(tmp_path / "c.json").threshold.how == "counted"
    run = stepvad(*words, "--alerts-per-hour", "0.0416667")
    assert run.code == 1
    assert "strict: not before 3 days without an alert; 13 min watched, 3 days to go" in run.err


def test_it_is_kept_beside_the_model_and_told_as_json(
    stepvad: Command, model: Path, normal: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(model.read_bytes())
    words = ("calibrate", own, normal, "--fps", "5", "--alerts-per-hour", "8", "--json")
    run = stepvad(*words)
    assert run.code == 0, run.err
    facts = json.loads(run.out)
    made = read_calibration(tmp_path / "own.calibration.json")
    assert facts["threshold"]["value"] == made.threshold.value


def test_it_needs_to_know_the_time(stepvad: Command, model: Path, normal: Path) -> None:
    run = stepvad("calibrate", model, normal, "--alerts-per-hour", "5")
    assert run.code == 1
    assert "expected a frame rate, got none" in run.err
    assert "--fps" in run.err


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
    assert [*both.ledgers] == ["door"]
    assert both.threshold.hours == pytest.approx(whole.threshold.hours)
    assert len(both.block_stats["door"]) == len(whole.block_stats[normal.name])


def test_events_need_a_calibration(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    run = stepvad("score", model, people / "pose" / "test", "--events", tmp_path / "e.jsonl")
    assert run.code == 1
    assert "expected a calibration next to the model" in run.err
