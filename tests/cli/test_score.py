from __future__ import annotations

import csv
import json
import math
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad import Clip, Detector, Track, read_clips, write_clips
from tests.conftest import Command


def test_score_names_the_strangest_moment_of_every_clip(
    stepvad: Command, model: Path, people: Path
) -> None:
    run = stepvad("score", model, people / "pose" / "test")
    assert run.code == 0
    detector = Detector.load(model)
    for clip in read_clips(people / "pose" / "test"):
        scores = detector.score(clip)
        line = next(line for line in run.out.splitlines() if line.startswith(clip.name))
        top = int(scores.A.argmax())
        assert line.split()[3:] == [
            f"{scores.A[top]:.2f}",
            str(scores.windows.frame[top]),
            str(scores.windows.track_id[top]),
        ]


@pytest.mark.filterwarnings("default:expected coordinates in pixels")
def test_fractions_of_the_image_are_warned_of_once(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    clips = list(read_clips(people / "pose" / "test"))
    write_clips([replace(clip, tracks=tuple(map(scaled, clip.tracks))) for clip in clips], tmp_path)
    run = stepvad("score", model, tmp_path)
    assert run.code == 0
    line = (
        "warning: expected coordinates in pixels, got all of them within 0 to 1; multiply x by "
        "the width and y by the height of the image"
    )
    assert run.err.count("pixels") == run.err.splitlines().count(line) == 1


def scaled(track: Track) -> Track:
    low, high = track.keypoints.min(), track.keypoints.max()
    return replace(track, keypoints=(track.keypoints - low) / (high - low))


def test_csv_and_json_hold_the_score_of_every_frame(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    file = sorted((people / "pose" / "test").iterdir())[0]
    run = stepvad("score", model, file, "-o", tmp_path / "s.csv", "--json")
    (clip,) = read_clips(file)
    expected = Detector.load(model).score(clip).frames
    with (tmp_path / "s.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    from_csv = [float(row["score"]) if row["score"] else math.nan for row in rows]
    np.testing.assert_allclose(from_csv, expected, rtol=1e-5)
    from_json = [math.nan if v is None else v for v in json.loads(run.out)[0]["frames"]]
    np.testing.assert_allclose(from_json, expected, rtol=1e-6)
    assert np.isnan(expected).any()


def test_what_commands_write_is_for_its_owner_alone(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        file = sorted((people / "pose" / "test").iterdir())[0]
        stepvad("score", model, file, "-o", tmp_path / "s.csv", "--plot", tmp_path / "s.png")
        stepvad("convert", file, tmp_path / "tracks.parquet")
        stepvad("convert", file, tmp_path / "tracks.json")
        stepvad("export", model, "-o", tmp_path / "model.onnx")
        Detector.load(model).save(tmp_path / "model.safetensors")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    names = ("s.csv", "s.png", "tracks.parquet", "tracks.json", "model.onnx", "model.safetensors")
    assert modes == dict.fromkeys(names, 0o600)


def test_plots_are_written_for_one_clip_and_for_many(
    stepvad: Command, model: Path, people: Path, tmp_path: Path
) -> None:
    poses = people / "pose" / "test"
    file = sorted(poses.iterdir())[0]
    assert stepvad("score", model, file, "--plot", tmp_path / "one.png").code == 0
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    folder = tmp_path / "many"
    folder.mkdir()
    assert stepvad("score", model, poses, "--plot", folder).code == 0
    assert len(list(folder.glob("*.png"))) == 4
    run = stepvad("score", model, poses, "--plot", tmp_path / "x.png")
    assert run.code == 1
    assert "expected a directory for the plots of several clips" in run.err


def test_an_empty_clip_and_a_short_track_have_no_score(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.json").write_text("{}", encoding="utf-8")
    pose = {"keypoints": [float(i) for i in range(51)], "scores": 1.0}
    (tmp_path / "short.json").write_text(json.dumps({"1": {"0": pose}}), encoding="utf-8")
    run = stepvad("score", model, tmp_path)
    assert run.code == 0
    assert (
        "warning: nobody is seen for long enough to be scored, clips: 2 (empty, short)" in run.err
    )
    assert [line.split()[1:] for line in run.out.splitlines()[2:]] == [
        ["0", "0", "-", "-", "-"],
        ["1", "0", "-", "-", "-"],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--plot", "x.jpg"), "expected a name that ends in .png"),
        (("--plot", "no/such/x.png"), "in a directory that exists"),
        (("-o", "no/such/s.csv"), "in a directory that exists"),
        (("-o", "/proc/s.csv"), "/proc/s.csv: expected a place that can be written"),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error_and_no_traceback(
    stepvad: Command, model: Path, people: Path, words: tuple[str, ...], message: str
) -> None:
    file = sorted((people / "pose" / "test").iterdir())[0]
    run = stepvad("score", model, file, *words)
    assert run.code == 1
    assert message in run.err
    assert "hint: " in run.err


def test_a_reader_that_has_seen_enough_is_no_error(model: Path, people: Path) -> None:
    words = (
        f"{sys.executable} -m stepvad score {model} {people / 'pose' / 'test'} --json | head -n 1"
    )
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", words], capture_output=True, text=True, check=False
    )
    assert run.stdout == "[\n"
    assert "Traceback" not in run.stderr
    assert "Broken" not in run.stderr


def test_odd_clip_names_are_only_names(stepvad: Command, model: Path, tmp_path: Path) -> None:
    names = ["[bold]x[red]", 'a,"b"', "a$frac^$"]
    (tmp_path / "poses").mkdir()
    for name in names:
        (tmp_path / "poses" / f"{name}.json").write_text("{}", encoding="utf-8")
    plots = tmp_path / "plots"
    plots.mkdir()
    words = ("-o", tmp_path / "s.csv", "--plot", plots)
    run = stepvad("score", model, tmp_path / "poses", *words)
    assert run.code == 0
    for name in names:
        assert name in run.out
        assert (plots / f"{name}.png").exists()


def test_a_clip_named_as_a_path_is_not_drawn_elsewhere(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    write_clips([Clip("../outside", None, 3, ())], tmp_path / "p.parquet")
    (tmp_path / "plots").mkdir()
    run = stepvad("score", model, tmp_path / "p.parquet", "--plot", tmp_path / "plots")
    assert run.code == 1
    assert "expected a name that can be a file name" in run.err
    assert not (tmp_path / "outside.png").exists()


def test_the_same_clip_twice_is_refused(stepvad: Command, model: Path, people: Path) -> None:
    poses = people / "pose" / "test"
    run = stepvad("score", model, poses, poses)
    assert run.code == 1
    assert "twice" in run.err


def test_distances_have_no_runtime_to_choose(
    stepvad: Command, people: Path, tmp_path: Path
) -> None:
    train, path = people / "pose" / "train", tmp_path / "knn.safetensors"
    stepvad("fit", train, "-o", path, "--method", "knn", "--K", "8")
    done = stepvad("score", path, train, "--runtime", "numpy")
    assert done.code == 1
    assert (
        "error: --runtime: expected a model with a network for 'numpy', got distances" in done.err
    )
