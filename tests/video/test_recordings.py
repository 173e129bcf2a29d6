"""The names of videos, before anything is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.errors import StepvadError
from stepvad.video.extract import FrameRange
from stepvad.video.recordings import open_sources


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        (FrameRange(), "lobby"),
        (FrameRange(0, 500), "lobby-0-500"),
        (FrameRange(500), "lobby-500-end"),
    ],
)
def test_a_part_of_a_video_is_named_so(frames: FrameRange, name: str) -> None:
    (source,) = open_sources(["lobby.mp4"], frames)
    assert source.name == name


def test_two_videos_of_one_name_are_refused() -> None:
    with pytest.raises(StepvadError, match="x: expected videos of distinct names"):
        open_sources(["a/x.mp4", "b/x.mp4"], FrameRange())


def test_a_folder_has_a_name_too(tmp_path: Path) -> None:
    (tmp_path / "frames.v2").mkdir()
    (folder,) = open_sources([str(tmp_path / "frames.v2")], FrameRange(), picture_rate=7)
    assert (folder.name, folder.picture_rate) == ("frames.v2", 7)
