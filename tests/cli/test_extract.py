from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stepvad import read_clip
from stepvad.cli import app
from stepvad.cli.extract import extract
from stepvad.config import PoseRuntime
from stepvad.errors import silent
from stepvad.formats import tracks
from stepvad.skeletons import COCO17
from stepvad.video.extract import MIN_CONFIDENCE, PART_FRAMES, FrameRange
from stepvad.video.models import DETECTOR, POSE
from stepvad.video.networks import choose_engine
from stepvad.video.recordings import ExtractionSettings, extract_all, open_sources
from tests.conftest import Command
from tests.video import graphs
from tests.video.clips import (
    N_FRAMES,
    broken,
    unusable_files,
    walking_images,
    write_images,
    write_pictures,
    write_video,
)
from tests.video.servers import CANARY, SLOWER, wait_until

pytest.importorskip("av")
pytest.importorskip("cv2")


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Options for networks that see two people in every picture, one of them unsure."""
    directory = tmp_path_factory.mktemp("networks")
    rows = {80: [0.5, 0.5, 0.0, 0.0, 1.0, 0.9], 81: [0.5, 0.5, 0.0, 0.0, 1.0, 0.8]}
    joints = np.full((17, 3), 0.5, np.float32)
    detector = graphs.yolox(directory / "d.onnx", rows)
    pose = graphs.movenet(directory / "p.onnx", joints)
    return ("--detector", str(detector), "--pose", str(pose))


def test_a_video_becomes_a_track_file_once(
    stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    video = write_video(tmp_path / "lobby.avi")
    run = stepvad("extract", video, "-o", tmp_path / "out", *networks)
    assert run.code == 0, run.err
    assert run.out.splitlines()[-1].split() == (
        ["lobby", "30", "2.00", "2", "30.0", "0.0", "%", "0", run.out.split()[-2], "done"]
    )
    clip = read_clip(tmp_path / "out" / "lobby.parquet")
    assert (clip.name, clip.fps, clip.n_frames, clip.skeleton) == ("lobby", 10, N_FRAMES, COCO17)
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["lobby.parquet"]

    before = (tmp_path / "out" / "lobby.parquet").stat()
    (fact,) = json.loads(stepvad("extract", video, "-o", tmp_path / "out", *networks, "--json").out)
    assert (fact["video"], fact["state"]) == ("lobby", "finished before")
    assert (tmp_path / "out" / "lobby.parquet").stat() == before


def test_a_track_file_tells_how_its_poses_came_about(
    stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    video = write_video(tmp_path / "lobby.avi")
    stepvad("extract", video, "-o", tmp_path, *networks, "--frames", ":9")
    origin = tracks.read_origin(tmp_path / "lobby-0-9.parquet")
    assert [*origin] == [
        *("video", "digest", "frames", "detector", "pose"),
        *("engine", "min_confidence", "rate"),
    ]
    assert (origin["video"], origin["frames"], origin["engine"]) == (
        *("lobby.avi", "0:9"),
        str(choose_engine()),
    )
    assert len(str(origin["pose"])) == 64


def test_the_first_frames_and_the_rest_are_two_files(
    stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    video = write_video(tmp_path / "lobby.avi")
    for frames in (":10", "10:"):
        assert stepvad("extract", video, "-o", tmp_path, *networks, "--frames", frames).code == 0
    head, rest = (read_clip(tmp_path / f"lobby-{part}.parquet") for part in ("0-10", "10-end"))
    assert head.tracks[0].frames.tolist() == list(range(10))
    assert rest.tracks[0].frames.tolist() == list(range(10, N_FRAMES))


def test_poses_made_otherwise_are_not_taken_for_finished(
    stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    video = write_video(tmp_path / "lobby.avi")
    assert stepvad("extract", video, "-o", tmp_path, *networks).code == 0
    run = stepvad("extract", video, "-o", tmp_path, *networks, "--min-confidence", "0.3")
    assert run.code == 1
    assert "expected min_confidence 0.3, got poses made with 0.25" in run.err
    write_video(tmp_path / "lobby.avi", n_frames=20)
    run = stepvad("extract", video, "-o", tmp_path, *networks)
    assert run.code == 1
    assert "expected digest" in run.err


def test_unsure_people_are_left_out_and_counted(
    stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    video = write_video(tmp_path / "lobby.avi")
    run = stepvad("extract", video, "-o", tmp_path, *networks, "--min-confidence", "0.6", "--json")
    (fact,) = json.loads(run.out)
    assert (fact["low_confidence"], fact["tracks"], fact["empty_frames"]) == (1, 0, N_FRAMES)
    assert read_clip(tmp_path / "lobby.parquet").tracks == ()


@pytest.mark.data
@pytest.mark.slow
def test_both_engines_and_every_run_find_the_same_tracks(data_dir: Path, tmp_path: Path) -> None:
    """Byte for byte on one engine; within a tenth of a pixel and 0.01 of confidence on two."""
    pytest.importorskip("openvino")
    models, video = data_dir.parent / "models", data_dir.parent / "media" / "vtest.avi"
    if not (models.is_dir() and video.is_file()):
        pytest.skip(f"no networks at {models} or no clip at {video}")
    first = open_sources([str(video)], FrameRange(0, 16))
    engines: dict[str, PoseRuntime] = {"a": "onnxruntime", "b": "onnxruntime", "c": "openvino"}
    for name, engine in engines.items():
        settings = ExtractionSettings.with_networks(
            tmp_path / name,
            (str(models / "yolox_nano.onnx"), str(models / "movenet-lightning.onnx")),
            choose_engine(engine, "float32"),
        )
        extract_all(first, settings, jobs=1, report=silent)
    files = [tmp_path / name / "vtest-0-16.parquet" for name in "abc"]
    assert files[0].read_bytes() == files[1].read_bytes()
    here, there = read_clip(files[0]), read_clip(files[2])
    assert len(here.tracks) >= 4
    for one, other in zip(here.tracks, there.tracks, strict=True):
        np.testing.assert_array_equal(one.frames, other.frames)
        np.testing.assert_allclose(one.keypoints, other.keypoints, atol=0.1)
        np.testing.assert_allclose(one.confidence, other.confidence, atol=0.01)


def test_a_bad_video_does_not_stop_the_others(
    stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    files = unusable_files(tmp_path)
    bad = [files[kind] for kind in ("cut", "image", "sound", "empty", "text", "pipe", "missing")]
    good = write_video(tmp_path / "good.avi")
    damaged = broken(write_video(tmp_path / "damaged.avi"), "noise", tmp_path)
    run = stepvad("extract", *bad, good, damaged, "-o", tmp_path / "out", *networks)
    assert run.code == 1
    assert run.err.count("error: ") == run.err.count("hint: ") == len(bad)
    assert "Traceback" not in run.err
    for file in bad:
        assert f"{file}: expected" in run.err
    assert "undecodable" in run.out
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == sorted(["good.parquet", f"{damaged.stem}.parquet"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.avi", "b/a.avi"], "a: expected videos of distinct names"),
        (["a.avi", "--frames", "5"], "--frames: expected A:B with A below B"),
        (["a.avi", "--frames", "9:5"], "--frames: expected A:B with A below B"),
        (["my door=rtsp://u:canary-Zq7@h/a"], "expected files and folders, got the address of a"),
        (["a.avi", "--detector", "nono"], "nono: expected a file or one of rtmdet-nano"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(
    words: list[str], message: str, stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    run = stepvad("extract", "-o", tmp_path, *networks, *words)
    assert run.code == 1
    assert message in run.err
    assert CANARY not in run.err
    assert not list(tmp_path.iterdir())


def test_a_network_nobody_publishes_asks_for_its_path(
    stepvad: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPVAD_CACHE", str(tmp_path / "cache"))
    detector = graphs.yolox(tmp_path / "d.onnx", {})
    words = ("--detector", detector, "--pose", "movenet-lightning")
    run = stepvad("extract", write_video(tmp_path / "a.avi"), "-o", tmp_path, *words)
    assert run.code == 1
    assert "give the path of the ONNX file" in run.err


def test_a_folder_of_pictures_becomes_a_track_file_like_its_video(
    stepvad: Command, networks: tuple[str, ...], tmp_path: Path
) -> None:
    images = walking_images()
    video = write_images(tmp_path / "door.mkv", images)
    folder = write_pictures(tmp_path / "frames", images)
    for source in (video, folder):
        words = (source, "-o", tmp_path / "out", *networks, "--fps", "10")
        assert stepvad("extract", *words).code == 0
    one, other = (read_clip(tmp_path / "out" / f"{name}.parquet") for name in ("door", "frames"))
    assert (other.fps, other.n_frames) == (10, N_FRAMES) == (one.fps, one.n_frames)
    assert len(one.tracks) == len(other.tracks)
    assert np.array_equal(one.tracks[0].keypoints, other.tracks[0].keypoints)

    run = stepvad("extract", folder, "-o", tmp_path / "out", *networks, "--fps", "10")
    assert "finished before" in run.out
    run = stepvad("extract", folder, "-o", tmp_path / "out", *networks)
    assert run.code == 1
    assert "expected picture_rate 25.0, got poses made with 10.0" in run.err
    words = ("--fps", "10", "--frames", "20:")
    assert stepvad("extract", folder, "-o", tmp_path / "out", *networks, *words).code == 0
    rest = read_clip(tmp_path / "out" / "frames-20-end.parquet")
    assert rest.tracks[0].frames.tolist() == list(range(20, N_FRAMES))


def test_the_command_has_the_defaults_of_the_library() -> None:
    defaults = {name: value.default for name, value in signature(extract).parameters.items()}
    assert (defaults["detector"], defaults["pose"]) == (DETECTOR, POSE)
    assert defaults["min_confidence"] == MIN_CONFIDENCE


PARTS = 15
"""Of a video that takes long enough to be ended in the midst of it."""


def start(*words: str | Path) -> subprocess.Popen[str]:
    """The command line in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepvad", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


@pytest.fixture(scope="module")
def uninterrupted(
    networks: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, bytes]:
    """A video of many parts, and its poses from a run that nobody ended."""
    place = tmp_path_factory.mktemp("whole")
    video = write_video(place / "long.avi", n_frames=PARTS * PART_FRAMES)
    done = CliRunner().invoke(app, ["extract", str(video), "-o", str(place), *networks])
    assert done.exit_code == 0, done.output
    return video, (place / "long.parquet").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_ended_goes_on_to_the_same_bytes(
    end: signal.Signals,
    stepvad: Command,
    networks: tuple[str, ...],
    uninterrupted: tuple[Path, bytes],
    tmp_path: Path,
) -> None:
    video, whole = uninterrupted
    out = tmp_path / "out"
    process = start("extract", video, "-o", out, *networks)
    wait_until(lambda: len(list(out.glob(".long.parts/*.npz"))) >= 1)
    process.send_signal(end)
    printed, said = process.communicate(timeout=60)
    kept = len(list(out.glob(".long.parts/*.npz")))
    assert 1 <= kept < PARTS
    assert not (out / "long.parquet").exists()
    if end == signal.SIGINT:
        assert process.returncode == 130
        assert "repeat the command to resume" in said
        assert "unfinished" in printed
        assert "Traceback" not in said
    assert stepvad("extract", video, "-o", out, *networks).code == 0
    assert (out / "long.parquet").read_bytes() == whole
    assert [file.name for file in out.iterdir()] == ["long.parquet"]


@pytest.mark.slow
def test_ctrl_c_that_reaches_another_thread_ends_it_all_the_same(
    networks: tuple[str, ...], tmp_path: Path
) -> None:
    video = write_video(tmp_path / "long.avi", n_frames=6000)
    with start("extract", video, "-o", tmp_path / "out", *networks) as process:
        try:
            wait_until(lambda: len(list(tmp_path.glob("out/.long.parts/*.npz"))) >= 1)
            tasks = sorted(int(task.name) for task in Path(f"/proc/{process.pid}/task").iterdir())
            tgkill = ctypes.CDLL(None).tgkill
            assert any(tgkill(process.pid, task, signal.SIGINT) == 0 for task in tasks[1:])
            _, said = process.communicate(timeout=20 * SLOWER)
        finally:
            process.kill()
    assert process.returncode == 130, said
    assert "stopping; poses so far are kept" in said
