from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.video.footage import footage_digest, open_footage
from stepvad.video.pictures import PictureFolder
from stepvad.video.source import VideoFile
from tests.video.clips import grey_jpeg, write_pictures, write_video

pytest.importorskip("av")
pytest.importorskip("cv2")

SHADES = np.arange(12, dtype=np.uint8)[:, None, None, None] * 20
PICTURES = np.broadcast_to(SHADES, (12, 16, 32, 3)).copy()
PICTURES[..., 0] = 200


def shades(folder: PictureFolder, first: int = 0) -> list[int]:
    return [round(float(frame.image[..., 1].mean()) / 20) for frame in folder.since(first)]


@pytest.mark.parametrize("name", ["frame_{}.png", "{}.jpg", "cam2 {} of 12.JPEG"])
def test_pictures_come_in_the_order_of_their_numbers(tmp_path: Path, name: str) -> None:
    folder = PictureFolder(write_pictures(tmp_path / "door", PICTURES, name=name), fps=5)
    frames = list(folder)
    assert [frame.number for frame in frames] == list(range(12))
    assert [frame.pts for frame in frames] == [number / 5 for number in range(12)]
    assert shades(folder) == list(range(12))
    assert abs(int(frames[3].image[8, 8, 0]) - 200) < 4  # red is first
    assert (folder.camera, folder.fps, folder.n_frames, folder.duration_s) == ("door", 5, 12, 2.4)
    assert (folder.counts.decoded, folder.counts.skipped) == (12, 0)
    assert {frame.epoch for frame in folder} == {2}
    assert "door" in repr(folder)


def test_pictures_before_the_first_that_is_wanted_are_not_read(tmp_path: Path) -> None:
    folder = PictureFolder(write_pictures(tmp_path, PICTURES))
    (tmp_path / "frame_1.png").write_bytes(b"")
    assert shades(folder, first=9) == [9, 10, 11]
    assert folder.counts.skipped == 0
    assert [frame.number for frame in folder.since(10)] == [10, 11]
    assert list(folder.since(12)) == []


@pytest.mark.parametrize("damage", ["cut", "empty", "other", "gone"])
def test_a_broken_picture_is_named_and_leaves_a_gap(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (4, 48, 64, 3), np.uint8)
    folder = PictureFolder(write_pictures(tmp_path, noise, name="{}.jpg"))
    file = tmp_path / "2.jpg"
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "empty":
            file.write_bytes(b"")
        case "other":
            file.write_bytes(b"GIF89a and nothing more")
        case _:
            file.unlink()
    with caplog.at_level(logging.WARNING, "stepvad.video"):
        assert [frame.number for frame in folder] == [0, 2, 3]
    assert f"{file}: expected a picture" in caplog.text
    assert (folder.counts.decoded, folder.counts.skipped) == (3, 1)


def test_a_folder_without_a_whole_picture_raises(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError, match="expected pictures, got 3 that are damaged"):
        list(PictureFolder(tmp_path))


def test_a_picture_that_is_too_large_is_not_decoded(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(grey_jpeg(16000, 16000))
    (tmp_path / "2.jpg").write_bytes(grey_jpeg(64, 48))
    folder = PictureFolder(tmp_path)
    assert [frame.image.shape for frame in folder] == [(48, 64, 3)]
    assert folder.counts.skipped == 1


@pytest.mark.parametrize(
    ("names", "got"),
    [
        ([], "got none and 0 other entries"),
        (["a.mp4"], "got none and 1 other entry"),
        ([".hidden_1.jpg"], "got none and 0 other"),
        (["1.jpg", "2.png"], r"got 2: #.jpg, #.png \(# is a number\)"),
        (["a_1.jpg", "b_1.jpg"], "got 2: a_#.jpg, b_#.jpg"),
        (
            ["anna.jpg", "bert.jpg", "carl.jpg", "dora.jpg"],
            "got 4: anna.jpg, bert.jpg, carl.jpg, …",
        ),
    ],
)
def test_a_folder_that_is_no_recording_is_refused(
    tmp_path: Path, names: list[str], got: str
) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=got):
        PictureFolder(tmp_path)


def test_other_files_beside_the_pictures_are_ignored(tmp_path: Path) -> None:
    write_pictures(tmp_path, PICTURES)
    (tmp_path / "labels.csv").touch()
    (tmp_path / "._frame_3.png").touch()
    (tmp_path / "frame_99.png").mkdir()
    assert PictureFolder(tmp_path).n_frames == 12


def test_footage_is_a_file_or_a_folder(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "frames.d", PICTURES)
    opened = open_footage(folder, picture_rate=7)
    assert isinstance(opened, PictureFolder)
    assert (opened.camera, opened.fps) == ("frames.d", 7)
    assert isinstance(open_footage(write_video(tmp_path / "a.avi"), picture_rate=7), VideoFile)
    with pytest.raises(DataError, match="got no file"):
        open_footage(tmp_path / "nothing")


def test_a_change_in_a_folder_changes_its_fingerprint(tmp_path: Path) -> None:
    write_pictures(tmp_path, PICTURES)
    digests = [footage_digest(tmp_path)]
    (tmp_path / "notes.txt").touch()
    assert footage_digest(tmp_path) == digests[0]
    file = tmp_path / "frame_12.png"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"x")
    digests.append(footage_digest(tmp_path))
    file.write_bytes(content + b"x")
    digests.append(footage_digest(tmp_path))
    (tmp_path / "frame_5.png").rename(tmp_path / "frame_13.png")
    digests.append(footage_digest(tmp_path))
    assert len(set(digests)) == 4
