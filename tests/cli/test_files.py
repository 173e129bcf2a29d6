"""Files converted, inspected and exported on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from stepvad import read_clip, read_clips
from tests.conftest import Command


def test_poses_become_parquet_and_come_back_the_same(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    source = people / "pose" / "test"
    run = stepvad("convert", source, tmp_path / "all.parquet", "--fps", "25")
    assert run.code == 0
    assert "4 clips" in run.out
    before, after = list(read_clips(source)), list(read_clips(tmp_path / "all.parquet"))
    assert [clip.name for clip in after] == [clip.name for clip in before]
    assert {clip.fps for clip in after} == {25.0}
    for a, b in zip(before, after, strict=True):
        for track, same in zip(a.tracks, b.tracks, strict=True):
            np.testing.assert_array_equal(track.keypoints, same.keypoints)


def test_one_clip_becomes_json(stepvad: Command, people: Path, tmp_path: Path) -> None:
    source = sorted((people / "pose" / "test").iterdir())[0]
    assert stepvad("convert", source, tmp_path / "one.json", "--json").code == 0
    assert read_clip(tmp_path / "one.json").n_poses == read_clip(source).n_poses


def test_a_directory_gets_one_file_per_clip(stepvad: Command, people: Path, tmp_path: Path) -> None:
    assert stepvad("convert", people / "pose" / "test", tmp_path / "out").code == 0
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 4


def test_inspect_tells_a_model_in_words(stepvad: Command, model: Path) -> None:
    run = stepvad("inspect", model)
    assert run.code == 0
    for words in (
        "12 frames of 18 joints (step18)",
        "each centred and divided by its spread in y",
        "12 of 432 principal components, whitened",
        "10 scales from 0.1 to 1",
        "of 4 clips, sha256 ",
        "stepvad 0.1.0",
        "format 3, sha256 ",
    ):
        assert words in run.out
    facts = json.loads(stepvad("inspect", model, "--json").out)
    assert facts["config"]["width"] == 16
    assert facts["skeleton"]["joints"][1] == "neck"
    assert facts["sha256"] in run.out


def test_inspect_tells_pose_files_in_words(stepvad: Command, people: Path) -> None:
    run = stepvad("inspect", people / "pose" / "train")
    clips = list(read_clips(people / "pose" / "train"))
    assert f"{sum(clip.n_poses for clip in clips):,} poses" in run.out
    assert "coco17" in run.out
    facts = json.loads(stepvad("inspect", people / "pose" / "train", "--json").out)
    assert facts["clips"] == 4


def test_no_words_show_the_help_and_version_the_version(stepvad: Command) -> None:
    shown = stepvad().out
    panels = ("Poses and models", "A site", "Research", "Many sites")
    assert [shown.index(panel) for panel in panels] == sorted(shown.index(one) for one in panels)
    assert shown.index("watch --demo") < shown.index("fit people/pose/train")
    assert all(word in shown for word in ("train", "run", "draw", "threshold", "completion"))
    assert stepvad("--version").out.strip() == "0.1.0"
    for verb in ("fit", "score", "evaluate", "convert", "inspect"):
        assert f"stepvad {verb}" in stepvad(verb, "--help").out


def test_walkers_are_written_where_asked(stepvad: Command, tmp_path: Path) -> None:
    words = ("--train-clips", "1", "--test-clips", "1", "--seed", "5")
    run = stepvad("walkers", tmp_path / "w", *words)
    assert run.out.strip() == str(tmp_path / "w")
    assert len(list((tmp_path / "w").rglob("*.json"))) == 2


def test_a_target_of_no_known_layout_is_refused(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    run = stepvad("convert", people / "pose" / "test", tmp_path / "out.txt")
    assert run.code == 1
    assert "got .txt" in run.err
    assert not (tmp_path / "out.txt").exists()
    taken = tmp_path / "taken"
    taken.write_text("")
    assert "error: " in stepvad("walkers", taken).err


def test_export_writes_a_file_and_says_how_close_it_is(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    run = stepvad("export", model, "-o", path)
    assert run.code == 0, run.err
    assert run.out.strip() == str(path)
    assert " windows deviate by " in run.err
    assert path.stat().st_size > 1000
    told = json.loads(stepvad("export", model, "-o", path, "--json").out)
    assert 0 <= told["deviation"] < 1e-3


def test_export_refuses_what_it_cannot_write(stepvad: Command, model: Path, tmp_path: Path) -> None:
    run = stepvad("export", model, "-o", tmp_path / "model.pt")
    assert run.code == 1
    assert "expected a name that ends in .onnx, got" in run.err
    assert list(tmp_path.iterdir()) == []


def test_distances_cannot_be_exported(stepvad: Command, people: Path, tmp_path: Path) -> None:
    distances = tmp_path / "knn.safetensors"
    assert stepvad("fit", people, "-o", distances, "--method", "knn", "--K", "12").code == 0
    run = stepvad("export", distances, "-o", tmp_path / "knn.onnx")
    assert run.code == 1
    assert "expected a model with a network, got distances" in run.err
