"""Files with people by frame: a directory of OpenPose, results of ultralytics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.formats import clip_files, read_clip, read_clips
from stepvad.skeletons import BODY25, COCO17
from tests.formats.examples import pose, write_json
from tests.test_interop import openpose, summary, walker


def write_openpose(directory: Path, n_frames: int = 20, **options: Any) -> Path:
    directory.mkdir()
    for frame in range(n_frames):
        name = f"{directory.name}_{frame:012}_keypoints.json"
        write_json(directory / name, openpose(frame, **options))
    return directory


def test_a_directory_of_openpose_is_one_clip_of_tracked_people(tmp_path: Path) -> None:
    folder = write_openpose(tmp_path / "lobby")
    (folder / "lobby_000000000007_keypoints.json").unlink()
    write_json(folder / "lobby_000000000008_keypoints.json", {"version": 1.3, "people": []})
    write_json(folder / ".hidden_000000000030_keypoints.json", {})
    clip = read_clip(folder, fps=25)
    assert (clip.name, clip.fps, clip.n_frames, clip.skeleton) == ("lobby", 25, 20, BODY25)
    (track,) = clip.tracks
    assert track.frames.tolist() == [*range(7), *range(9, 20)]
    assert track.keypoints[-1, 1].tolist() == [100 + 2 * 19 + 6, 59]
    assert clip_files(folder) == clip_files(folder, format="openpose") == [folder]


def test_directories_of_openpose_stand_beside_other_files(tmp_path: Path) -> None:
    write_openpose(tmp_path / "b")
    write_json(tmp_path / "a.json", {"1": {"0": pose()}})
    (tmp_path / "c").mkdir()
    assert [clip.name for clip in read_clips(tmp_path)] == ["a", "b"]
    assert [clip.name for clip in read_clips(tmp_path, format="openpose")] == ["b"]
    assert [clip.name for clip in read_clips(tmp_path, format="alphapose")] == ["a"]


def test_ids_of_openpose_are_kept(tmp_path: Path) -> None:
    folder = write_openpose(tmp_path / "lobby", 3, person_id=6)
    assert [track.id for track in read_clip(folder).tracks] == [6]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("other_000000000003_keypoints.json", "expected one file for frame 3, got another"),
        ("lobby_keypoints.json", "expected a frame number before _keypoints.json, got none"),
        ("lobby_999999999999_keypoints.json", "expected up to 10,000"),
    ],
)
def test_files_that_are_no_frames_of_one_video_are_refused(
    name: str, problem: str, tmp_path: Path
) -> None:
    folder = write_openpose(tmp_path / "lobby", 5)
    write_json(folder / name, openpose(3))
    with pytest.raises(DataError, match=problem):
        read_clip(folder)


def test_a_wrong_frame_of_openpose_is_named(tmp_path: Path) -> None:
    folder = write_openpose(tmp_path / "lobby", 2)
    write_json(folder / "lobby_000000000002_keypoints.json", {"people": [{}]})
    with pytest.raises(DataError, match=r"lobby_0+2_keypoints\.json: expected people, each with"):
        read_clip(folder)


def test_too_many_joints_of_openpose_are_refused(tmp_path: Path) -> None:
    folder = write_openpose(tmp_path / "lobby", 1, joints=1001)
    with pytest.raises(DataError, match="expected up to 1000 joints, got 1,001"):
        read_clip(folder)


def test_a_directory_without_files_of_openpose_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected files that end in _keypoints\.json, got none"):
        clip_files(tmp_path, format="openpose")
    file = write_json(tmp_path / "a.json", openpose(0))
    with pytest.raises(DataError, match="expected a directory"):
        read_clip(file, format="openpose")
    with pytest.raises(DataError, match="give the directory of OpenPose's files"):
        read_clip(file)


@pytest.mark.parametrize("track_id", [4, None])
def test_results_of_ultralytics_are_one_clip(track_id: int | None, tmp_path: Path) -> None:
    frames = [[summary(n, track_id=track_id)] for n in range(20)]
    frames[5] = []
    clip = read_clip(write_json(tmp_path / "door.json", frames), fps=30)
    assert (clip.name, clip.fps, clip.n_frames, clip.skeleton) == ("door", 30, 20, COCO17)
    (track,) = clip.tracks
    assert track.id == (track_id or 1)
    assert track.frames.tolist() == [n for n in range(20) if n != 5]
    np.testing.assert_allclose(track.keypoints[-1], walker(19), rtol=1e-6)
    again = read_clip(tmp_path / "door.json", fps=30, format="ultralytics")
    assert again.digest() == clip.digest()


def test_results_that_are_no_frames_are_refused(tmp_path: Path) -> None:
    one = write_json(tmp_path / "one.json", [summary(0)])
    with pytest.raises(DataError, match="expected a list with a list of people for each frame"):
        read_clip(one, format="ultralytics")
    two = write_json(tmp_path / "two.json", [[summary(0)], [{"name": "person"}]])
    with pytest.raises(DataError, match=r"two\.json: frame 1: expected people with keypoints"):
        read_clip(two)
    (tmp_path / "wide.json").write_text(json.dumps([[], [summary(0)], {}]))
    with pytest.raises(DataError, match=r"wide\.json: expected a list with a list of people"):
        read_clip(tmp_path / "wide.json")
