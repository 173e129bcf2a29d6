"""COCO keypoint results with track ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepvad.errors import DataError
from stepvad.formats import read_clip
from tests.formats.examples import result, write_json


def error_of(tmp_path: Path, document: object) -> str:
    path = write_json(tmp_path / "clip.json", document)
    with pytest.raises(DataError) as caught:
        read_clip(path, format="coco")
    assert caught.value.problem.startswith(str(path))
    assert caught.value.hint
    return caught.value.problem


def test_results_become_tracks(tmp_path: Path) -> None:
    document = [result(9, 4, first=9), result(3, 4, first=3), result(3, 1)]
    found = read_clip(write_json(tmp_path / "lobby.json", document))
    assert (found.name, found.fps, found.n_frames) == ("lobby", None, 10)
    assert [track.id for track in found.tracks] == [1, 4]
    assert found.tracks[1].frames.tolist() == [3, 9]
    assert found.tracks[1].keypoints[:, 0].tolist() == [[3, 4], [9, 10]]
    assert found.tracks[1].confidence[:, 0].tolist() == [5, 11]


@pytest.mark.parametrize(
    ("image_id", "frame"),
    [(12, 12), (12.0, 12), ("12", 12), ("000012.jpg", 12), ("cam3/4_frame_0012.png", 12)],
)
def test_a_frame_is_a_number_or_in_a_file_name(
    tmp_path: Path, image_id: object, frame: int
) -> None:
    found = read_clip(write_json(tmp_path / "clip.json", [result(image_id, 0)]))
    assert found.tracks[0].frames.tolist() == [frame]


@pytest.mark.parametrize("key", ["track_id", "idx", "id"])
def test_a_track_id_has_three_names(tmp_path: Path, key: str) -> None:
    document = result(0, None) | {key: 7}
    assert read_clip(write_json(tmp_path / "clip.json", [document])).tracks[0].id == 7


def test_the_track_id_wins_over_other_ids(tmp_path: Path) -> None:
    document = result(0, 7) | {"idx": 8, "id": 9}
    assert read_clip(write_json(tmp_path / "clip.json", [document])).tracks[0].id == 7


def test_a_list_without_results_is_an_empty_clip(tmp_path: Path) -> None:
    assert read_clip(write_json(tmp_path / "clip.json", [])).tracks == ()


def test_without_track_ids_the_remedy_is_to_track(tmp_path: Path) -> None:
    document = result(0, 1)
    del document["track_id"]
    path = write_json(tmp_path / "clip.json", [document])
    with pytest.raises(DataError, match="run a tracker over the poses first"):
        read_clip(path)


@pytest.mark.parametrize("track_id", [-1, 1.5, True, "a", [1], 10**30])
def test_track_ids_are_whole_numbers(tmp_path: Path, track_id: object) -> None:
    said = error_of(tmp_path, [result(0, 1), result(0, track_id)])
    assert "result 1: expected a whole number, 0 or more, as track_id, got " in said


@pytest.mark.parametrize("image_id", [None, -1, 0.5, False, "picture.jpg", 10**9, "1" * 30, {}])
def test_image_ids_are_frames(tmp_path: Path, image_id: object) -> None:
    said = error_of(tmp_path, [result(image_id, 5)])
    assert "track 5, result 0: expected image_id as a frame number from 0 to 100000000" in said


def test_other_things_are_refused(tmp_path: Path) -> None:
    assert "expected a list of keypoint results, got an object" in error_of(tmp_path, {})
    assert "result 0: expected an object with keypoints, got null" in error_of(tmp_path, [None])
    (tmp_path / "twice.json").write_text('[{"id": 1, "id": 2}]')
    with pytest.raises(DataError, match=r"result 0: expected an object.*got 'id' twice"):
        read_clip(tmp_path / "twice.json")


def test_poses_are_checked_as_alphapose_poses_are(tmp_path: Path) -> None:
    assert "track 5, frame 3: expected three numbers for each joint, got 0 numbers" in error_of(
        tmp_path, [result(3, 5) | {"keypoints": []}]
    )
    assert "track 5, frame 3: expected keypoints as a list of numbers, got null" in error_of(
        tmp_path, [result(3, 5) | {"keypoints": None}]
    )
    assert "track 5, frame 3: expected one pose per frame, got more" in error_of(
        tmp_path, [result(3, 5), result("003.jpg", 5)]
    )
