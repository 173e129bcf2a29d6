from __future__ import annotations

import builtins
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import DataError, MissingExtraError
from stepvad.video.source import Frame, VideoFile, open_video
from tests.video.clips import (
    N_FRAMES,
    STEP,
    broken,
    unusable_files,
    write_two_sizes,
    write_video,
)

av = pytest.importorskip("av")


def brightness(frames: list[Frame]) -> list[float]:
    return [float(frame.image[:, :16].mean()) for frame in frames]


@pytest.mark.parametrize(
    ("codec", "name"), [("mpeg4", "a.mp4"), ("libx264", "a.mkv"), ("mpeg4", "a.avi")]
)
def test_every_frame_comes_in_order_with_its_time(tmp_path: Path, codec: str, name: str) -> None:
    video = open_video(write_video(tmp_path / name, codec=codec))
    frames = list(video)
    assert [frame.number for frame in frames] == list(range(N_FRAMES))
    assert np.allclose(brightness(frames), np.arange(N_FRAMES) * STEP, atol=4)
    assert np.allclose(np.diff([frame.pts or 0.0 for frame in frames]), 0.1, atol=1e-3)
    assert {frame.image.shape for frame in frames} == {(48, 64, 3)}
    assert {frame.image.dtype for frame in frames} == {np.dtype(np.uint8)}
    assert {(frame.camera, frame.epoch) for frame in frames} == {("a", 0)}
    assert video.fps == pytest.approx(10)
    assert video.n_frames in (N_FRAMES, None)
    assert video.duration_s == pytest.approx(3, abs=0.11)
    assert (video.counts.decoded, video.counts.skipped) == (N_FRAMES, 0)


def test_a_second_pass_is_another_epoch(tmp_path: Path) -> None:
    video = VideoFile(write_video(tmp_path / "a.mp4"), camera="door")
    next(iter(video))
    again = list(video)
    assert [frame.number for frame in again] == list(range(N_FRAMES))
    assert {(frame.camera, frame.epoch) for frame in again} == {("door", 1)}
    assert video.counts.decoded == N_FRAMES
    assert "a.mp4" in repr(video)


def test_the_age_of_a_frame_comes_from_the_monotonic_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.monotonic()
    frame = next(iter(open_video(write_video(tmp_path / "a.mp4"))))
    assert before <= frame.arrived <= time.monotonic()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert 0 <= frame.age_s < 60


def test_colours_are_red_green_blue(tmp_path: Path) -> None:
    path = tmp_path / "red.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 32, "bgr0"
        image = np.zeros((32, 32, 3), np.uint8)
        image[..., 0] = 200
        container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    (frame,) = open_video(path)
    assert frame.image[16, 16].tolist() == [200, 0, 0]


@pytest.mark.parametrize("degrees", [90, 180, -90])
def test_a_video_on_its_side_is_turned_upright(tmp_path: Path, degrees: int) -> None:
    path = tmp_path / "turned.mp4"
    image = np.zeros((48, 64, 3), np.uint8)
    image[:16, :16] = 255
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        if not hasattr(stream, "set_display_rotation"):
            pytest.skip("this PyAV cannot write a rotation")
        stream.set_display_rotation(degrees)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    (frame,) = open_video(path)
    upright = np.rot90(image, degrees // 90)
    assert frame.image.shape == upright.shape
    assert np.abs(frame.image.astype(int) - upright).mean() < 8


def test_a_video_of_one_pixel_decodes(tmp_path: Path) -> None:
    path = tmp_path / "pixel.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 1, 1, "bgr0"
        image = np.full((1, 1, 3), 77, np.uint8)
        container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())
    (frame,) = open_video(path)
    assert frame.image.tolist() == [[[77, 77, 77]]]


def test_a_change_of_resolution_is_counted(tmp_path: Path) -> None:
    video = open_video(write_two_sizes(tmp_path / "both.m2v"))
    shapes = [frame.image.shape for frame in video]
    assert set(shapes) == {(48, 64, 3), (96, 128, 3)}
    assert video.counts.resolution_changes == 1
    assert len(shapes) == video.counts.decoded


@pytest.mark.parametrize("how", ["cut", "noise", "flips"])
@pytest.mark.parametrize(
    ("codec", "suffix"), [("libx264", ".mkv"), ("mpeg4", ".avi"), ("libx264", ".ts")]
)
def test_damage_in_the_middle_is_skipped_or_ends_the_video(
    tmp_path: Path, how: str, codec: str, suffix: str
) -> None:
    whole = write_video(tmp_path / f"whole{suffix}", codec=codec)
    video = open_video(broken(whole, how, tmp_path))
    frames = list(video)
    assert 1 <= len(frames) <= N_FRAMES
    assert video.counts.decoded == len(frames)
    assert [frame.number for frame in frames] == list(range(len(frames)))


def test_errors_are_counted(tmp_path: Path) -> None:
    whole = write_video(tmp_path / "whole.avi")
    video = open_video(broken(whole, "noise", tmp_path))
    n_frames = len(list(video))
    assert n_frames < N_FRAMES
    assert video.counts.skipped > 0


@pytest.fixture
def unusable(tmp_path: Path) -> dict[str, Path]:
    return unusable_files(tmp_path)


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        ("cut", "got: "),
        ("image", "a still image"),
        ("sound", "got audio"),
        ("empty", "an empty file"),
        ("text", "got: "),
        ("playlist", "a playlist"),
        ("too long", "too long"),
        ("pipe", "a device"),
        ("directory", "a directory"),
        ("missing", "no file"),
    ],
)
def test_what_is_no_video_is_an_error_that_says_so(
    unusable: dict[str, Path], kind: str, got: str
) -> None:
    with pytest.raises(DataError, match=got) as caught:
        list(open_video(unusable[kind]))
    assert str(unusable[kind]) in caught.value.problem
    assert "expected" in caught.value.problem
    assert caught.value.hint


def test_a_video_without_frames_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "none.mkv"
    whole = write_video(tmp_path / "whole.mkv", codec="libx264")
    data = whole.read_bytes()
    path.write_bytes(data[: data.index(b"\x1f\x43\xb6\x75")])  # up to the first cluster
    with pytest.raises(DataError, match="expected"):
        list(open_video(path))


def test_without_pyav_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a.mp4")
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name.split(".")[0] == "av":
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"stepvad\[video\]"):
        open_video(path)
