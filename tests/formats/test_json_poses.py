"""Poses in the JSON of AlphaPose, PoseLift, COCO, OpenPose and ultralytics."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad.errors import DataError
from stepvad.formats import clip_files, read_clip, read_clips, write_clip
from stepvad.poses import Clip
from stepvad.skeletons import BODY25, COCO17
from tests.formats.examples import clip, empty_clip, joints, pose, result, same, track, write_json
from tests.test_interop import openpose, summary, walker

SHANGHAITECH = "01_0014_alphapose_tracked_person.json"
UBNORMAL = "abnormal_scene_1_scenario_1_alphapose_tracked_person.json"


def read(tmp_path: Path, document: object, format: str = "auto") -> Clip:
    return read_clip(write_json(tmp_path / SHANGHAITECH, document), format=format)


def error_of(tmp_path: Path, document: object) -> str:
    """What the reader says of a document; every message names the file and a remedy."""
    path = write_json(tmp_path / SHANGHAITECH, document)
    return error_of_file(path)


def error_of_file(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_clip(path)
    assert caught.value.problem.startswith(str(path))
    assert caught.value.hint
    return caught.value.problem.removeprefix(str(path))


def test_keypoints_are_x_y_and_confidence(tmp_path: Path) -> None:
    [person] = read(tmp_path, {"5": {"0003": pose()}}).tracks
    assert person.id == 5
    assert person.frames.tolist() == [3]
    assert person.keypoints[0, :2].tolist() == [[0, 1], [3, 4]]
    assert person.confidence[0, :2].tolist() == [2, 5]


def test_clips_are_named_as_shanghaitech_and_ubnormal_name_them(tmp_path: Path) -> None:
    for name in (SHANGHAITECH, UBNORMAL, "plain.json"):
        write_json(tmp_path / name, {"1": {"0": pose()}})
    names = [clip.name for clip in read_clips(tmp_path)]
    assert names == ["01_0014", "abnormal_scene_1_scenario_1", "plain"]


def test_frames_are_sorted_as_numbers_and_people_by_id(tmp_path: Path) -> None:
    document = {"12": {"10": pose(first=10), "9": pose(first=9)}, "3": {"0100": pose()}}
    found = read(tmp_path, document)
    assert [track.id for track in found.tracks] == [3, 12]
    assert found.tracks[1].frames.tolist() == [9, 10]
    assert found.tracks[1].keypoints[:, 0, 0].tolist() == [9, 10]
    assert found.n_frames == 101


def test_a_person_given_as_a_list_of_tables_is_merged(tmp_path: Path) -> None:
    found = read(tmp_path, {"1": [{"4": pose()}, {"2": pose()}, {}]})
    assert found.tracks[0].frames.tolist() == [2, 4]


def test_any_number_of_joints_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, {"1": {"0": pose(V=4)}}).skeleton.V == 4
    assert read(tmp_path, {"1": {"0": pose(V=18)}}).skeleton.name == "step18"


def test_a_file_without_poses_is_an_empty_clip(tmp_path: Path) -> None:
    documents: list[object] = [{}, {"1": {}}, {"1": []}]
    for document in documents:
        found = read(tmp_path, document)
        assert (found.tracks, found.n_frames, found.skeleton) == ((), 0, COCO17)


def test_confidences_may_be_nan_or_above_one(tmp_path: Path) -> None:
    keypoints = joints(V=3)
    keypoints[2], keypoints[5] = float("nan"), 1.034
    [person] = read(tmp_path, {"1": {"0": {"keypoints": keypoints, "scores": 1}}}).tracks
    assert np.isnan(person.confidence[0, 0])
    assert person.confidence[0, 1] == np.float32(1.034)


def test_all_scores_null_means_poselift_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document = {"1": {"0": pose(score=None)}, "2": {"1": pose(score=None)}}
    with caplog.at_level(logging.INFO, logger="stepvad"):
        found = read(tmp_path, document)
    assert found.tracks[0].keypoints[0, 0].tolist() == [1, 0]
    assert "PoseLift" in caplog.text
    assert "'alphapose'" in caplog.text


def test_one_score_means_alphapose(tmp_path: Path) -> None:
    found = read(tmp_path, {"1": {"0": pose(score=None), "1": pose(score=0.0)}})
    assert found.tracks[0].keypoints[0, 0].tolist() == [0, 1]
    found = read(tmp_path, {"1": {"0": {"keypoints": joints()}}})
    assert found.tracks[0].keypoints[0, 0].tolist() == [0, 1]


def test_a_format_that_is_named_wins_over_the_guess(tmp_path: Path) -> None:
    null, scored = {"1": {"0": pose(score=None)}}, {"1": {"0": pose()}}
    assert read(tmp_path, null, "alphapose").tracks[0].keypoints[0, 0].tolist() == [0, 1]
    assert read(tmp_path, scored, "poselift").tracks[0].keypoints[0, 0].tolist() == [1, 0]


@pytest.mark.parametrize("V", [1, 4, 17, 18])
def test_writing_and_reading_gives_the_same_clip(tmp_path: Path, V: int) -> None:
    written = clip("01_0014", V=V)
    path = tmp_path / SHANGHAITECH
    write_clip(written, path)
    assert same(read_clip(path), written)
    before = path.read_bytes()
    write_clip(written, path)
    assert path.read_bytes() == before


def test_odd_confidences_survive_writing(tmp_path: Path) -> None:
    written = clip()
    written.tracks[0].confidence[0, :4] = [np.nan, np.inf, -np.inf, 1.5]
    written.tracks[0].confidence[1] = np.nan
    write_clip(written, tmp_path / "01_0014.json")
    assert same(read_clip(tmp_path / "01_0014.json"), written)


def test_an_empty_clip_is_written(tmp_path: Path) -> None:
    write_clip(empty_clip("x"), tmp_path / "x.json")
    assert read_clip(tmp_path / "x.json").tracks == ()


def test_a_negative_track_id_is_not_written(tmp_path: Path) -> None:
    bad = Clip("x", None, 9, (track(-1, [0]),))
    with pytest.raises(DataError, match="track -1: expected a track id of at least 0"):
        write_clip(bad, tmp_path / "x.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keypoints", "said"),
    [
        (joints()[:-1], "track 1, frame 7: expected three numbers for each joint, got 50"),
        ([], "track 1, frame 7: expected three numbers for each joint, got 0"),
        (None, "track 1, frame 7: expected keypoints as a list of numbers, got null"),
        ("abc", "track 1, frame 7: expected keypoints as a list of numbers, got text"),
        ([0, 0, True], "track 1, frame 7: expected a number at place 2 of keypoints, got true"),
        (["1", 0, 0], "track 1, frame 7: expected a number at place 0 of keypoints, got text"),
        ([0, None, 0], "track 1, frame 7: expected a number at place 1 of keypoints, got null"),
        ([[0, 1, 1]] * 3, "track 1, frame 7: expected a number at place 0 of keypoints, got a li"),
        ([float("nan"), 0, 0], "track 1, frame 7, joint 0: expected coordinates within ±1e+07"),
        ([0, float("inf"), 0], "track 1, frame 7, joint 0: expected coordinates within ±1e+07"),
        ([0, 1e300, 0], "track 1, frame 7, joint 0: expected coordinates within ±1e+07, got inf"),
        ([0, 10**400, 0], "track 1, frame 7: expected numbers in pixels, got one above 1e308"),
    ],
)
def test_keypoints_that_are_not_are_refused(tmp_path: Path, keypoints: object, said: str) -> None:
    assert said in error_of(tmp_path, {"1": {"7": {"keypoints": keypoints, "scores": 1}}})


def test_the_number_of_joints_is_the_same_throughout(tmp_path: Path) -> None:
    said = error_of(tmp_path, {"1": {"0": pose()}, "2": {"5": pose(), "6": pose(V=16)}})
    assert "track 2, frame 6: expected 51 numbers, as in the first pose, got 48" in said


@pytest.mark.parametrize(
    "frame",
    ["-1", "7.5", "abc", "", " 7", "+7", "1_0", "\N{ARABIC-INDIC DIGIT SEVEN}", str(10**30)],
)
def test_frames_are_whole_numbers(tmp_path: Path, frame: str) -> None:
    said = error_of(tmp_path, {"4": {frame: pose()}})
    assert "track 4, frame " in said
    assert "expected a frame number from 0 to 100000000" in said


@pytest.mark.parametrize("person", ["-1", "a", "", "1.0", str(10**30), "images"])
def test_people_have_whole_numbers(tmp_path: Path, person: str) -> None:
    assert "expected whole numbers as track ids, got text" in error_of(tmp_path, {person: {}})


@pytest.mark.parametrize(
    "text",
    [
        '{"1": {"7": POSE, "8": POSE, "007": POSE}}',
        '{"1": {"7": POSE, "8": POSE, "7": POSE}}',
        '{"1": [{"7": POSE}, {"8": POSE, "7": POSE}]}',
    ],
)
def test_a_repeated_frame_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / SHANGHAITECH
    path.write_text(text.replace("POSE", json.dumps(pose())))
    assert "track 1, frame 7: expected one pose per frame, got more" in error_of_file(path)


def test_a_repeated_person_is_refused(tmp_path: Path) -> None:
    assert "got 1 twice" in error_of(tmp_path, {"1": {"0": pose()}, "01": {"0": pose()}})
    path = tmp_path / SHANGHAITECH
    path.write_text('{"1": {}, "2": {}, "1": {}}')
    assert "each with its own id, got '1' twice" in error_of_file(path)


def test_a_repeated_key_in_a_pose_is_refused(tmp_path: Path) -> None:
    path = tmp_path / SHANGHAITECH
    path.write_text('{"1": {"7": {"keypoints": [1, 2, 3], "keypoints": [1, 2, 3]}}}')
    assert "track 1, frame 7: expected an object with keypoints, got 'keypoints' twice" in (
        error_of_file(path)
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (None, "expected an object of tracked persons, each with its own id, got null"),
        (3, "each with its own id, got 3"),
        ("text", "each with its own id, got text"),
        ({"1": None}, "track 1: expected an object of frames, got null"),
        ({"1": [[]]}, "track 1: expected an object of frames, got a list of 0"),
        ({"1": {"2": pose(), "7": None}}, "track 1, frame 7: expected an object with keypoints"),
        ({"1": {"7": [1]}}, "track 1, frame 7: expected an object with keypoints, got a list of 1"),
        ({"1": {"7": {}}}, "track 1, frame 7: expected an object with keypoints, got an object"),
    ],
)
def test_another_structure_is_refused(tmp_path: Path, document: object, said: str) -> None:
    assert said in error_of(tmp_path, document)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"1": {"0": {"keypoi', "expected JSON, got: Unterminated string"),
        (b"", "expected JSON, got: Expecting value"),
        (b'{"1": \xff}', "expected JSON in UTF-8, got byte 0xff at 6"),
        (b"[" * 100_000, "expected JSON of a normal size, got: "),
        (b'{"1": ' + b"9" * 5000 + b"}", "expected JSON of a normal size, got: "),
    ],
)
def test_what_is_not_json_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / SHANGHAITECH
    path.write_bytes(content)
    assert said in error_of_file(path)


@pytest.mark.data
def test_poselift_is_read_whole(data_dir: Path) -> None:
    counts = {"train": (104, 566, 79_632), "test": (47, 78, 4_620)}
    for part, expected in counts.items():
        clips = list(read_clips(data_dir / "PoseLift" / "pose" / part, fps=15))
        n_tracks = sum(len(clip.tracks) for clip in clips)
        assert (len(clips), n_tracks, sum(clip.n_poses for clip in clips)) == expected
        highest = np.array([t.keypoints.max(axis=(0, 1)) for c in clips for t in c.tracks])
        assert highest[:, 0].max() > 1080  # wider than the picture is high: x stands first
        assert highest[:, 1].max() <= 1080


def coco_error(tmp_path: Path, document: object) -> str:
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
    said = coco_error(tmp_path, [result(0, 1), result(0, track_id)])
    assert "result 1: expected a whole number, 0 or more, as track_id, got " in said


@pytest.mark.parametrize("image_id", [None, -1, 0.5, False, "picture.jpg", 10**9, "1" * 30, {}])
def test_image_ids_are_frames(tmp_path: Path, image_id: object) -> None:
    said = coco_error(tmp_path, [result(image_id, 5)])
    assert "track 5, result 0: expected image_id as a frame number from 0 to 100000000" in said


def test_other_things_are_refused(tmp_path: Path) -> None:
    assert "expected a list of keypoint results, got an object" in coco_error(tmp_path, {})
    assert "result 0: expected an object with keypoints, got null" in coco_error(tmp_path, [None])
    (tmp_path / "twice.json").write_text('[{"id": 1, "id": 2}]')
    with pytest.raises(DataError, match=r"result 0: expected an object.*got 'id' twice"):
        read_clip(tmp_path / "twice.json")


def test_poses_are_checked_as_alphapose_poses_are(tmp_path: Path) -> None:
    assert "track 5, frame 3: expected three numbers for each joint, got 0 numbers" in coco_error(
        tmp_path, [result(3, 5) | {"keypoints": []}]
    )
    assert "track 5, frame 3: expected keypoints as a list of numbers, got null" in coco_error(
        tmp_path, [result(3, 5) | {"keypoints": None}]
    )
    assert "track 5, frame 3: expected one pose per frame, got more" in coco_error(
        tmp_path, [result(3, 5), result("003.jpg", 5)]
    )


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


@pytest.mark.parametrize("layout", ["alphapose", "coco", "ultralytics"])
def test_a_frame_with_more_people_than_a_picture_shows_is_refused(
    layout: str, tmp_path: Path
) -> None:
    flat, numbers = [1] * 51, range(1001)
    box = {"x1": 0, "y1": 0, "x2": 9, "y2": 9}
    one = {"keypoints": {"x": [1] * 17, "y": [2] * 17}, "box": box, "confidence": 1}
    document: object = {
        "alphapose": {number: {7: {"keypoints": flat}} for number in numbers},
        "coco": [{"image_id": 7, "id": number, "keypoints": flat} for number in numbers],
        "ultralytics": [[one for _ in numbers]],
    }[layout]
    path = write_json(tmp_path / "crowd.json", document)
    with pytest.raises(DataError, match="expected up to 1,000 people in a frame, got 1,001"):
        read_clip(path, fps=25)
