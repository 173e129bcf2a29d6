"""An operator who says that alerts were normal, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepvad.calibration import file
from tests.cli.conftest import Command


@pytest.fixture
def own(stepvad: Command, model: Path, people: Path, tmp_path: Path) -> Path:
    """A model with a calibration that lets many events through."""
    path = tmp_path / "own.safetensors"
    path.write_bytes(model.read_bytes())
    words = ("--fps", "25", "--alerts-per-hour", "600", "--confidence", "0.5")
    assert stepvad("calibrate", path, people / "pose" / "train", *words).code == 0
    return path


@pytest.fixture
def events(stepvad: Command, own: Path, people: Path, tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    run = stepvad("score", own, people / "pose" / "test", "--fps", "25", "--events", path)
    assert run.code == 0, run.err
    return path


def ids(events: Path) -> list[str]:
    return [str(json.loads(line)["id"]) for line in events.read_text().splitlines()]


def test_a_marked_event_joins_the_normal_set_and_raises_the_threshold(
    stepvad: Command, own: Path, events: Path
) -> None:
    before = file.read(file.beside(own)).threshold.value
    names = ids(events)
    marks = [word for name in names for word in ("--normal", name)]
    run = stepvad("feedback", events, *marks)
    assert run.code == 0, run.err
    after = file.read(file.beside(own))
    assert f"events marked as normal: {len(names)}" in run.out
    assert f"threshold {before:.2f} -> {after.threshold.value:.2f}" in run.out
    assert after.threshold.value > before
    assert {*after.marked} == {*names}
    assert after.looks
    kept = own.with_suffix(".normal")
    assert {path.stem for path in kept.iterdir()} == {*names}
    again = stepvad("feedback", events, "--not-normal", names[0])
    assert again.code == 0, again.err
    assert {*file.read(file.beside(own)).marked} == {*names[1:]}
    assert {path.stem for path in kept.iterdir()} == {*names[1:]}


def test_a_model_is_fitted_anew_with_what_was_marked(
    stepvad: Command, own: Path, events: Path, people: Path, tmp_path: Path
) -> None:
    from stepvad import Detector

    assert stepvad("feedback", events, "--normal", ids(events)[0]).code == 0
    better = tmp_path / "better.safetensors"
    run = stepvad("feedback", events, "--refit", people / "pose" / "train", "-o", better)
    assert run.code == 0, run.err
    assert "calibrate it" in run.err
    old, new = Detector.load(own), Detector.load(better)
    assert new.config == old.config
    assert 1.01 < new.origin.windows / old.origin.windows < 1.2


def test_what_cannot_be_marked_is_said(
    stepvad: Command, own: Path, events: Path, people: Path, tmp_path: Path
) -> None:
    run = stepvad("feedback", events, "--normal", "nobody")
    assert run.code == 1
    assert "expected an event nobody, got others" in run.err
    run = stepvad("feedback", events, "--refit", people)
    assert "expected training poses and -o MODEL" in run.err
    name = ids(events)[0]
    (tmp_path / "others").mkdir()
    some = next((people / "pose" / "train").iterdir())
    (tmp_path / "others" / "other.json").write_bytes(some.read_bytes())
    run = stepvad("feedback", events, "--normal", name, "--poses", tmp_path / "others")
    assert run.code == 1
    assert f"{name}: expected its poses in" in run.err
    own.rename(tmp_path / "moved.safetensors")
    run = stepvad("feedback", events, "--normal", name)
    assert "expected the model that found the events" in run.err
    (tmp_path / "none.jsonl").write_text("")
    run = stepvad("feedback", tmp_path / "none.jsonl")
    assert "expected events, got none" in run.err


def test_events_need_a_calibration(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    run = stepvad("score", model, people / "pose" / "test", "--events", tmp_path / "e.jsonl")
    assert run.code == 1
    assert "expected a calibration beside the model" in run.err
