"""The chain as one command, on made poses and on a made video."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.evaluation.walkers.dataset import make
from stepvad.formats import write_clip
from stepvad.model.scoring import true_runs
from tests.cli.conftest import Command
from tests.video import graphs
from tests.video.clips import write_walker

QUICK = ("--max-steps", "8")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def walkers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of walkers as pose files: two to fit on, two to calibrate on, four to test."""
    directory = tmp_path_factory.mktemp("walkers")
    data = make(seed=3, train_clips=5, test_clips=4, seconds=8.0)
    clips: dict[str, dict[str, Any]] = {}
    for number, clip in enumerate(data.train_clips()):
        clips[f"normal-{number}"] = {"poses": f"normal-{number}.parquet"}
        write_clip(replace(clip, name=f"normal-{number}"), directory / f"normal-{number}.parquet")
    for number, (clip, labels) in enumerate(data.test_clips()):
        runs = true_runs(labels.abnormal)
        times = [[first / clip.rate(), end / clip.rate()] for first, end in runs]
        clips[f"test-{number}"] = {"poses": f"test-{number}.parquet", "events": times}
        write_clip(replace(clip, name=f"test-{number}"), directory / f"test-{number}.parquet")
    fold = {
        "fit": ["normal-0", "normal-1"],
        "calibrate": ["normal-2", "normal-3"],
        "test": ["normal-4", *(f"test-{number}" for number in range(4))],
    }
    facts = {"version": 1, "name": "walkers", "clips": clips, "folds": {"all": fold}}
    (directory / "walkers.json").write_text(json.dumps(facts), "utf-8")
    return directory / "walkers.json"


def test_made_poses_are_measured(stepvad: Command, walkers: Path, tmp_path: Path) -> None:
    run = stepvad("benchmark", "footage", walkers, "-o", tmp_path, *QUICK)
    assert run.code == 0, run.err
    assert "fit 2 clips of 16 s, calibrate 2 clips of 16 s" in run.err
    assert "the highest score of the calibration clips" in run.err
    facts = json.loads((tmp_path / "walkers.json").read_text("utf-8"))
    with (tmp_path / "walkers-clips.csv").open() as file:
        clips = {row["clip"]: row for row in csv.DictReader(file)}
    assert [*clips] == ["normal-4", *(f"test-{number}" for number in range(4))]
    labelled = json.loads(walkers.read_text("utf-8"))["clips"]
    n_events = sum(len(labelled[name].get("events", [])) for name in clips)
    assert facts["summary"]["found"]["of"] == n_events > 0
    found = sum(row["outcome"].split().count("found") for row in clips.values())
    assert facts["summary"]["found"]["n"] == found
    assert facts["summary"]["false_clips"]["of"] == sum(
        r["label"] == "normal" for r in clips.values()
    )
    header, _, row = (tmp_path / "walkers.md").read_text("utf-8").splitlines()
    assert "false alerts per hour" in header
    assert f"{found} of {n_events}" in row
    again = stepvad(
        "benchmark", "footage", tmp_path / "walkers-set.json", "-o", tmp_path / "b", *QUICK
    )
    assert again.out == run.out


def test_several_views_and_another_time(stepvad: Command, walkers: Path, tmp_path: Path) -> None:
    run = stepvad(
        *("benchmark", "footage", walkers, "-o", tmp_path, *QUICK),
        *("--views", "pose,motion", "--within", "0.01", "--seed", "2"),
    )
    assert run.code == 0, run.err
    facts = json.loads((tmp_path / "walkers.json").read_text("utf-8"))
    assert facts["views"] == ["pose", "motion"]
    assert (facts["within_s"], facts["config"]["seed"]) == (0.01, 2)
    assert all(delay <= 0.01 for delay in facts["summary"]["delays_s"])


def test_a_video_is_tested_from_its_pictures(
    stepvad: Command, walkers: Path, tmp_path: Path
) -> None:
    pytest.importorskip("av")
    pytest.importorskip("cv2")
    write_walker(tmp_path / "yard.mkv")
    facts = json.loads(walkers.read_text("utf-8"))
    for clip in facts["clips"].values():
        clip["poses"] = str(walkers.parent / clip["poses"])
    facts["clips"]["yard"] = {"video": "yard.mkv", "events": "whole"}
    facts["clips"]["yard-2x"] = {"video": "yard.mkv", "frames": ":20", "speed": 2}
    facts["folds"]["all"]["test"] = ["yard", "yard-2x"]
    (tmp_path / "set.json").write_text(json.dumps(facts), "utf-8")
    joints = np.random.default_rng(0).uniform(0.2, 0.9, (17, 3)).astype(np.float32)
    detector = graphs.yolox(tmp_path / "d.onnx", {80: [0.5, 0.5, 0.0, 0.0, 1.0, 0.9]})
    networks = ("--detector", detector, "--pose", graphs.movenet(tmp_path / "p.onnx", joints))
    command = ("benchmark", "footage", tmp_path / "set.json", "--poses", tmp_path / "poses", *QUICK)
    run = stepvad(*command, *networks, "-o", tmp_path)
    assert run.code == 0, run.err
    assert sorted(file.name for file in (tmp_path / "poses").iterdir()) == [
        *("yard-2x.parquet", "yard.parquet")
    ]
    with (tmp_path / "walkers-clips.csv").open() as file:
        seconds = {row["clip"]: row["seconds"] for row in csv.DictReader(file)}
    assert seconds == {"yard": "3.0", "yard-2x": "1.0"}


def test_options_without_effect_are_refused(stepvad: Command, walkers: Path) -> None:
    run = stepvad("benchmark", "footage", walkers, "--every", "2")
    assert run.code == 1
    assert "--airtlab, --every: expected --data with them" in run.err
