from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad import Clip, Detector, Track, read_clip, write_clip, write_clips
from stepvad.events.calibration import Calibration, calibration_path, write_calibration
from stepvad.events.ledger import LedgerEntry
from stepvad.formats.labels import shanghaitech
from stepvad.model import modelfile
from stepvad.model.scoring import WindowScores
from stepvad.video import overlay
from stepvad.video.timeline import TRUTH
from tests.conftest import Command
from tests.video.clips import write_video

av = pytest.importorskip("av")
cv2 = pytest.importorskip("cv2")

N_FRAMES = 30


@pytest.fixture(scope="module")
def poses(people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first frames of a test clip, at a third of its size."""
    path = tmp_path_factory.mktemp("poses") / "yard.parquet"
    whole = read_clip(sorted((people / "pose" / "test").iterdir())[0])
    tracks = []
    for track in whole.tracks:
        few = track.frames < N_FRAMES
        keypoints = track.keypoints[few] / np.float32(3)
        tracks.append(Track(track.id, track.frames[few], keypoints, track.confidence[few]))
    write_clip(Clip("yard", 10.0, N_FRAMES, tuple(tracks)), path)
    return path


def probe(path: Path) -> dict[str, Any]:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        return {"fps": float(stream.average_rate), "codec": stream.name, "frames": frames}


def test_a_clip_becomes_a_video_on_black_with_its_highest_moments(
    stepvad: Command, model: Path, poses: Path, tmp_path: Path
) -> None:
    output = tmp_path / "yard.mp4"
    run = stepvad("overlay", model, poses, "-o", output, "--stills", "2")
    assert run.code == 0, run.err
    made = probe(output)
    assert (made["fps"], len(made["frames"])) == (10.0, N_FRAMES)
    clip = read_clip(poses)
    frames = Detector.load(model).score(clip).frames
    top = int(np.nanargmax(frames))
    far = np.where(np.abs(np.arange(N_FRAMES) - top) >= 10, frames, np.nan)
    expected = {top, int(np.nanargmax(far))}
    stills = sorted(tmp_path.glob("*.png"))
    assert [still.name for still in stills] == [f"yard-{at:06}.png" for at in sorted(expected)]
    assert run.out.split() == [*map(str, stills), str(output)]
    assert "red from" in run.err
    height = cv2.imread(str(stills[0])).shape[0]
    assert made["frames"][0].shape[0] == height
    corner = np.stack([frame[:20, :20] for frame in made["frames"]])
    assert corner.max() < 4


def test_the_threshold_of_the_calibration_is_red(
    stepvad: Command, model: Path, poses: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.safetensors"
    own.write_bytes(model.read_bytes())
    entry = LedgerEntry(watched_s=3600.0, quiet=(4.0, 3.0, 2.0))
    sha256 = modelfile.sha256(own)
    made = Calibration.from_ledgers({"door": [entry]}, model_sha256=sha256, alerts_per_day=24.0)
    write_calibration(made, calibration_path(own))
    run = stepvad("overlay", own, poses, "-o", tmp_path / "a.mp4", "--frames", "20:22")
    assert run.code == 0, run.err
    assert f"red from {made.threshold.value:.3g}: " in run.err
    write_calibration(replace(made, model_sha256="another"), calibration_path(own))
    run = stepvad("overlay", own, poses, "-o", tmp_path / "a.mp4", "--frames", "20:22")
    assert "belongs to another model and is ignored; calibrate again" in run.err
    assert f"red from {made.threshold.value:.3g}: " not in run.err


def of_exponentials() -> WindowScores:
    A = np.repeat(np.random.default_rng(0).exponential(size=7200), 5).astype(np.float32)
    n = len(A)
    nothing = np.empty((n, 0), np.float32)
    return WindowScores(np.ones(n, np.int64), np.arange(n), np.ones(n, np.float32), nothing, A)


def test_on_the_video_its_pixels_show(
    stepvad: Command, model: Path, poses: Path, tmp_path: Path
) -> None:
    video = write_video(tmp_path / "in.mp4", size=(428, 242), n_frames=N_FRAMES)
    words = ("--video", video, "--frames", "10:20")
    run = stepvad("overlay", model, poses, "-o", tmp_path / "out.mp4", *words)
    assert run.code == 0, run.err
    made = probe(tmp_path / "out.mp4")
    assert made["fps"] == 10.0
    seen = [frame[5:40, 5:60].mean() for frame in made["frames"]]
    assert np.allclose(seen, 8 * np.arange(10, 20), atol=5)


def test_where_the_poses_end_the_video_ends(
    stepvad: Command, model: Path, poses: Path, tmp_path: Path
) -> None:
    video = write_video(tmp_path / "in.mp4", size=(428, 242), n_frames=N_FRAMES + 2)
    run = stepvad("overlay", model, poses, "-o", tmp_path / "out.mp4", "--video", video)
    assert run.code == 0, run.err
    assert "the poses end with frame 29; the rest of the video is not drawn" in run.err
    assert len(probe(tmp_path / "out.mp4")["frames"]) == N_FRAMES


def test_other_rates_are_taken(stepvad: Command, model: Path, poses: Path, tmp_path: Path) -> None:
    words = ("--fps", "12.5", "--frames", ":5")
    assert stepvad("overlay", model, poses, "-o", tmp_path / "a.mp4", *words).code == 0
    made = probe(tmp_path / "a.mp4")
    assert (made["fps"], len(made["frames"])) == (12.5, 5)


@pytest.mark.parametrize("given", ["data set", "mask"])
def test_the_truth_is_shaded(
    stepvad: Command, model: Path, people: Path, tmp_path: Path, given: str
) -> None:
    file = sorted((people / "pose" / "test").iterdir())[0]
    name = file.name.removesuffix("_alphapose_tracked_person.json")
    abnormal = shanghaitech(people)[name].abnormal
    labels = people if given == "data set" else people / "gt" / "test_frame_mask" / f"{name}.npy"
    words = ("-o", tmp_path / "a.mp4", "--stills", "1")
    shares = []
    for more in (("--labels", labels), ()):
        assert stepvad("overlay", model, file, *words, *more).code == 0
        (still,) = tmp_path.glob("a-*.png")
        picture = cv2.imread(str(still))[..., ::-1]
        shares.append((picture == TRUTH).all(axis=2).any(axis=0).mean())
    assert shares == [pytest.approx(abnormal.mean(), abs=0.15), 0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-o", "a.avi"), "expected a name that ends in .mp4"),
        (("-o", "no/such/a.mp4"), "in a directory that exists"),
        (("-o", "a.mp4", "--frames", "5"), "--frames: expected A:B"),
        (("-o", "a.mp4", "--frames", "9:9"), "--frames: expected A:B"),
        (("-o", "a.mp4", "--frames", "0:99"), "up to 30, got 0:99"),
        (("-o", "a.mp4", "--threshold", "0"), "--threshold: expected a number above 0"),
        (("-o", "a.mp4", "--threshold", "nan"), "--threshold: expected a number above 0"),
        (("-o", "a.mp4", "--video", "none.mp4"), "none.mp4: expected a video file, got no file"),
        (("-o", "a.mp4", "--labels", "none"), "none"),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_leaves_nothing(
    stepvad: Command,
    model: Path,
    poses: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = stepvad("overlay", model, poses, *words)
    assert run.code == 1
    assert message in run.err
    assert "hint: " in run.err
    assert list(tmp_path.iterdir()) == []


def test_a_video_of_other_length_or_size_is_refused(
    stepvad: Command, model: Path, poses: Path, tmp_path: Path
) -> None:
    short = write_video(tmp_path / "short.mp4", size=(428, 242), n_frames=20)
    small = write_video(tmp_path / "small.mp4", size=(64, 48), n_frames=N_FRAMES)
    for video, message in (
        (short, "expected the 30 frames that clip yard has, got 20"),
        (small, "expected a video that holds the joints of clip yard"),
    ):
        run = stepvad("overlay", model, poses, "-o", tmp_path / "a.mp4", "--video", video)
        assert run.code == 1
        assert message in run.err
    assert not (tmp_path / "a.mp4").exists()


def test_several_clips_nobody_and_labels_of_others_are_refused(
    stepvad: Command, model: Path, people: Path, poses: Path, tmp_path: Path
) -> None:
    clip = read_clip(poses)
    write_clips([clip, Clip("b", 10.0, 9, ())], tmp_path / "two.parquet")
    write_clip(Clip("nobody", 10.0, 9, ()), tmp_path / "nobody.parquet")
    np.save(tmp_path / "short.npy", np.zeros(5, np.uint8))
    output = ("-o", tmp_path / "a.mp4")
    for words, message in (
        ((tmp_path / "two.parquet", *output), "expected one clip, got 2"),
        ((tmp_path / "nobody.parquet", *output), "expected at least one track, got none"),
        ((poses, *output, "--labels", people), "expected labels of clip yard, got none"),
        ((poses, *output, "--labels", tmp_path / "short.npy"), "expected frames below 5"),
    ):
        run = stepvad("overlay", model, *words)
        assert run.code == 1
        assert message in run.err


def test_a_clip_too_short_for_scores_is_drawn_in_grey(
    stepvad: Command, model: Path, tmp_path: Path
) -> None:
    pose = {"keypoints": [float(5 * i) for i in range(51)], "scores": 1.0}
    (tmp_path / "short.json").write_text(json.dumps({"1": {"0": pose}}), encoding="utf-8")
    run = stepvad("overlay", model, tmp_path / "short.json", "-o", tmp_path / "a.mp4")
    assert run.code == 0, run.err
    made = probe(tmp_path / "a.mp4")
    assert (made["fps"], len(made["frames"])) == (25.0, 1)


def test_without_an_encoder_nothing_is_begun(
    stepvad: Command, model: Path, poses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "ENCODER", "libnothing")
    run = stepvad("overlay", model, poses, "-o", tmp_path / "a.mp4")
    assert run.code == 1
    assert "expected PyAV with the encoder libnothing" in run.err


def test_ctrl_c_leaves_no_half_video(model: Path, poses: Path, tmp_path: Path) -> None:
    clip = read_clip(poses)
    long = Clip("long", 10.0, 100_000, clip.tracks)
    write_clip(long, tmp_path / "long.parquet")
    (out := tmp_path / "out").mkdir()
    words = ("overlay", model, tmp_path / "long.parquet", "-o", out / "a.mp4")
    process = subprocess.Popen([sys.executable, "-m", "stepvad", *map(str, words)])
    deadline = time.monotonic() + 60
    while not any(out.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert any(out.iterdir())
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert not any(out.iterdir())
