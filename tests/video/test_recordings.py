"""The names and limits of videos and cameras, before anything is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.errors import StepvadError
from stepvad.video.camera import Device
from stepvad.video.extract import FrameRange
from stepvad.video.recordings import CameraSource, FileSource, open_sources

WHOLE = FrameRange()


def test_every_video_and_camera_has_a_name_of_its_own() -> None:
    words = ["lobby.mp4", "door=rtsp://10.0.0.5/live", "rtsp://10.0.0.6/cam/1"]
    lobby, door, other = open_sources(words, None, frames=WHOLE, duration_s=None)
    assert isinstance(lobby, FileSource)
    assert isinstance(door, CameraSource)
    assert [one.name for one in (lobby, door, other)] == ["lobby", "door", "10.0.0.6-cam-1"]
    assert door.origin() == {"camera": "door"}


@pytest.mark.parametrize(
    ("frames", "name"), [(FrameRange(0, 500), "lobby-0-500"), (FrameRange(500), "lobby-500-end")]
)
def test_a_part_of_a_video_is_named_so(frames: FrameRange, name: str) -> None:
    (source,) = open_sources(["lobby.mp4"], None, frames=frames, duration_s=None)
    assert source.name == name


@pytest.mark.parametrize(
    ("words", "frames", "duration_s", "credentials", "said"),
    [
        (["a/x.mp4", "b/x.mp4"], WHOLE, None, None, "x: expected videos of distinct names"),
        (["rtsp://h/a"], FrameRange(0, 5), None, None, "frames: expected video files only"),
        (["a.mp4"], WHOLE, 5.0, None, "expected a camera, got video files only"),
        (["a.mp4"], WHOLE, None, Path("login"), "expected a camera, got video files only"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: list[str],
    frames: FrameRange,
    duration_s: float | None,
    credentials: Path | None,
    said: str,
) -> None:
    with pytest.raises(StepvadError, match=said):
        open_sources(words, credentials, frames=frames, duration_s=duration_s)


def test_attached_cameras_and_folders_have_names_too(tmp_path: Path) -> None:
    (tmp_path / "frames.v2").mkdir()
    words = ["desk=/dev/video0?rate=15", "/dev/video1", str(tmp_path / "frames.v2")]
    desk, other, folder = open_sources(words, None, frames=WHOLE, duration_s=5.0, picture_rate=7)
    assert isinstance(desk, CameraSource)
    assert desk.url == Device("v4l2", "/dev/video0", None, "15")
    assert isinstance(folder, FileSource)
    assert [one.name for one in (desk, other, folder)] == ["desk", "video1", "frames.v2"]
    assert folder.picture_rate == 7
