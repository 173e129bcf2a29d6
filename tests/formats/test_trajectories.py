"""Trajectories in CSV files: one file per person, joints at (0, 0) not found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.formats import trajectories

POSE = [float(value) for value in range(1, 35)]


def write(path: Path, *lines: list[float]) -> Path:
    """A person's file; the directory of the clips."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(",".join(f"{value:g}" for value in line) + "\n" for line in lines))
    return path.parents[1]


def test_a_person_has_frames_and_pairs_of_x_and_y(tmp_path: Path) -> None:
    root = write(tmp_path / "01_0014" / "0007.csv", [3, *POSE], [4, *(2 * x for x in POSE)])
    (clip,) = trajectories.read(root, fps=24.0)
    (track,) = clip.tracks
    assert (clip.name, clip.fps, clip.n_frames, track.id) == ("01_0014", 24.0, 5, 7)
    assert track.frames.tolist() == [3, 4]
    assert track.keypoints[0].tolist() == np.reshape(POSE, (17, 2)).tolist()
    assert track.keypoints[1, 16].tolist() == [66, 68]
    assert (track.confidence == 1).all()


def test_clips_and_people_come_in_order(tmp_path: Path) -> None:
    for name, person in (("02", "10"), ("01", "2"), ("01", "10")):
        write(tmp_path / name / f"{person}.csv", [0, *POSE])
    clips = list(trajectories.read(tmp_path, fps=25.0))
    assert [clip.name for clip in clips] == ["01", "02"]
    assert [track.id for track in clips[0].tracks] == [2, 10]


def test_a_joint_at_the_origin_was_not_found(tmp_path: Path) -> None:
    half = [0.0, 0.0, 0.0, 9.0, *POSE[4:]]  # the second joint lies on the edge of the image
    root = write(tmp_path / "01" / "1.csv", [0, *half])
    (clip,) = trajectories.read(root, fps=25.0)
    assert clip.tracks[0].confidence[0].tolist() == [0, *[1] * 16]


def test_poses_without_a_joint_are_dropped(tmp_path: Path) -> None:
    nothing = [0.0] * 34
    write(tmp_path / "01" / "1.csv", [0, *nothing], [1, *POSE], [2, *nothing])
    root = write(tmp_path / "01" / "2.csv", [0, *nothing])
    (clip,) = trajectories.read(root, fps=25.0)
    assert [track.id for track in clip.tracks] == [1]
    assert clip.tracks[0].frames.tolist() == [1]
    assert clip.n_frames == 2


def test_a_track_may_go_back_in_time(tmp_path: Path) -> None:
    back = [[frame, frame + 1.0, *POSE[1:]] for frame in (5, 6, 0, 8)]
    root = write(tmp_path / "01" / "1.csv", *back)
    (clip,) = trajectories.read(root, fps=25.0)
    assert clip.tracks[0].frames.tolist() == [0, 5, 6, 8]
    assert clip.tracks[0].keypoints[:, 0, 0].tolist() == [1, 6, 7, 9]


def test_the_first_pose_of_a_frame_is_kept_if_it_has_joints(tmp_path: Path) -> None:
    root = write(
        tmp_path / "01" / "1.csv",
        [5, *[0.0] * 34],
        [5, *POSE],
        [5, *(2 * x for x in POSE)],
        [6, *POSE],
    )
    (clip,) = trajectories.read(root, fps=25.0)
    assert clip.tracks[0].frames.tolist() == [5, 6]
    assert clip.tracks[0].keypoints[0, 0].tolist() == [1, 2]


def test_a_pose_like_the_one_before_is_a_pose(tmp_path: Path) -> None:
    root = write(tmp_path / "01" / "1.csv", [0, *POSE], [1, *POSE], [2, *POSE])
    (clip,) = trajectories.read(root, fps=25.0)
    assert clip.tracks[0].frames.tolist() == [0, 1, 2]


def test_a_clip_without_people_and_hidden_directories(tmp_path: Path) -> None:
    (tmp_path / "01").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    write(tmp_path / "02" / "1.csv")
    first, second = trajectories.read(tmp_path, fps=25.0)
    assert (first.tracks, second.tracks) == ((), ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n", "expected lines of frame and x, y of 17 joints, got 3 numbers"),
        ("frame,x\n", "could not convert string 'frame'"),
        ("1,2\n1,2,3\n", "number of columns changed"),
        ("# x\n", "could not convert string '# x'"),
        ("1.5" + ",1" * 34, "frames must be whole numbers of 64 bits, got 1.5"),
        ("nan" + ",1" * 34, "frames must be whole numbers of 64 bits, got nan"),
        ("-1" + ",1" * 34, "expected frames from 0 to 100000000, got -1"),
        ("99999999" + ",1" * 34, "expected up to 10,000,100 frames with 1 poses"),
        ("1" + ",nan" * 34, "frame 1, joint 0: expected coordinates within"),
        ("1" + ",1e39" * 34, "frame 1, joint 0: expected coordinates within"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "01").mkdir()
    (tmp_path / "01" / "1.csv").write_text(text)
    with pytest.raises(DataError, match=message) as refusal:
        list(trajectories.read(tmp_path, fps=25.0))
    assert str(tmp_path / "01") in refusal.value.problem


def test_a_file_is_named_by_a_person(tmp_path: Path) -> None:
    root = write(tmp_path / "01" / "walker.csv", [0, *POSE])
    with pytest.raises(DataError, match="expected the number of a person as the file's name"):
        list(trajectories.read(root, fps=25.0))


def test_two_files_of_one_person_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "01" / "1.csv", [0, *POSE])
    root = write(tmp_path / "01" / "001.csv", [0, *POSE])
    with pytest.raises(DataError, match="track ids must be distinct, got 1 twice"):
        list(trajectories.read(root, fps=25.0))


def test_a_large_file_is_refused_unread(tmp_path: Path) -> None:
    root = write(tmp_path / "01" / "1.csv", [0, *POSE])
    with (tmp_path / "01" / "1.csv").open("r+b") as file:
        file.truncate(trajectories.MAX_BYTES + 1)
    with pytest.raises(DataError, match="expected a file of up to"):
        list(trajectories.read(root, fps=25.0))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        list(trajectories.read(tmp_path / "nowhere", fps=25.0))
