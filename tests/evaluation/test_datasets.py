"""Data sets of every layout, made in the official naming, open and pair poses with labels."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.datasets import (
    DatasetLayout,
    FrameSmoothing,
    Split,
    is_dataset,
    open_dataset,
    recognise,
)
from stepvad.formats import write_clips
from stepvad.poses import Clip, Track
from stepvad.skeletons import Skeleton

N_FRAMES = 6


def write_poses(root: Path, split: str, names: Iterable[str], *, score: float | None = 2.5) -> None:
    """One person at x = 10, y = 20 in frames 1 and 2 of each clip."""
    folder = root / "pose" / split
    folder.mkdir(parents=True, exist_ok=True)
    person = {
        f"{frame:03d}": {"keypoints": [10, 20, 0.5] * 17, "scores": score} for frame in (1, 2)
    }
    for name in names:
        file = folder / f"{name}_alphapose_tracked_person.json"
        file.write_text(json.dumps({"4": person}))


def write_masks(root: Path, names: Iterable[str], *, n_frames: int = N_FRAMES) -> None:
    """Masks in which the last frame is abnormal; clips named normal have none."""
    folder = root / "gt" / "test_frame_mask"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        mask = np.zeros(n_frames, dtype=np.uint8)
        mask[-1] = "normal" not in name
        np.save(folder / f"{name}.npy", mask)


def write_ubnormal(root: Path, names: Iterable[str]) -> None:
    """UBnormal's arrays with a .txt name, 1 = normal, and an interval file of a training clip."""
    (root / "gt").mkdir(parents=True, exist_ok=True)
    for name in names:
        normal = np.ones(N_FRAMES)
        normal[-1] = 0
        with (root / "gt" / f"{name}_tracks.txt").open("wb") as file:
            np.save(file, normal)
    (root / "gt" / "abnormal_scene_9_scenario_9_tracks.txt").write_text("1,0,3\n")


@pytest.fixture
def shanghaitech(tmp_path: Path) -> Path:
    """Two clips, one of which the human-related split leaves out."""
    write_masks(tmp_path, ["01_0014", "01_0130"])
    write_poses(tmp_path, "test", ["01_0014", "01_0130"])
    write_poses(tmp_path, "train", ["01_001", "01_002", "02_001"])
    return tmp_path


def test_shanghaitech_opens_by_its_masks(shanghaitech: Path) -> None:
    dataset = open_dataset(shanghaitech)
    assert recognise(shanghaitech) == "shanghaitech"
    assert dataset.name == shanghaitech.name
    assert dataset.smoothing == FrameSmoothing(0, 13)
    assert [clip.name for clip in dataset.train_clips()] == ["01_001", "01_002", "02_001"]
    pairs = list(dataset.test_clips())
    assert [clip.name for clip, _ in pairs] == ["01_0014", "01_0130"]
    for clip, labels in pairs:
        assert clip.n_frames == len(labels) == N_FRAMES
        assert labels.abnormal.tolist() == [False] * 5 + [True]
        np.testing.assert_array_equal(clip.tracks[0].keypoints[0, 0], [10, 20])


def test_the_human_related_split_of_shanghaitech_leaves_clips_out(shanghaitech: Path) -> None:
    dataset = open_dataset(shanghaitech, split="hr")
    assert [clip.name for clip, _ in dataset.test_clips()] == ["01_0014"]
    assert set(dataset.left_out) == {"01_0130"}


def test_footage_of_ones_own_may_have_any_names_and_come_as_tracks(tmp_path: Path) -> None:
    corners = Skeleton("corners", ("top", "bottom"))
    ones = np.ones((2, 2, 2), dtype=np.float32)
    track = Track(3, np.arange(2), ones, ones[..., 0])
    clips = [Clip(name, 30.0, 2, (track,), corners) for name in ("door", "yard")]
    (tmp_path / "pose" / "test").mkdir(parents=True)
    write_clips(clips, tmp_path / "pose" / "test" / "all.parquet")
    write_masks(tmp_path, ["door", "gate", "yard"])
    door, yard, gate = (clip for clip, _ in open_dataset(tmp_path).test_clips())
    assert (door.name, yard.name, gate.name) == ("door", "yard", "gate")
    assert gate.skeleton.joints == corners.joints
    assert gate.fps == 30.0


def test_poselift_opens_by_its_null_scores_and_is_read_as_y_x(tmp_path: Path) -> None:
    write_masks(tmp_path, ["01_0222"])
    write_poses(tmp_path, "test", ["01_222"], score=None)
    write_poses(tmp_path, "train", ["01_097"], score=None)
    dataset = open_dataset(tmp_path)
    assert recognise(tmp_path) == "poselift"
    assert dataset.smoothing == FrameSmoothing(0, 13, "scored")
    ((clip, labels),) = dataset.test_clips()
    assert clip.name == "01_222"  # leading zeros do not matter
    assert clip.n_frames == len(labels) == N_FRAMES
    np.testing.assert_array_equal(clip.tracks[0].keypoints[0, 0], [20, 10])
    np.testing.assert_array_equal(next(dataset.train_clips()).tracks[0].keypoints[0, 0], [20, 10])


def test_ubnormal_opens_by_its_track_files(tmp_path: Path) -> None:
    names = ["abnormal_scene_1_scenario_1", "abnormal_scene_1_scenario_1_fog"]
    write_ubnormal(tmp_path, names)
    write_poses(tmp_path, "test", names)
    dataset = open_dataset(tmp_path)
    assert recognise(tmp_path) == "ubnormal"
    assert dataset.smoothing == FrameSmoothing(1, 21)
    pairs = list(dataset.test_clips())
    assert [clip.name for clip, _ in pairs] == names
    assert pairs[0][1].abnormal.tolist() == [False] * 5 + [True]


def test_the_human_related_split_of_ubnormal_drops_frames(tmp_path: Path) -> None:
    write_ubnormal(tmp_path, ["abnormal_scene_1_scenario_1"])
    write_poses(tmp_path, "test", ["abnormal_scene_1_scenario_1"])
    masks = tmp_path / "hr_bool_masks" / "testing" / "test_frame_mask"
    masks.mkdir(parents=True)
    np.save(masks / "001_0100.npy", np.array([1, 1, 0, 1, 1, 1], dtype=np.bool_))
    ((clip, labels),) = open_dataset(tmp_path, split="hr").test_clips()
    assert clip.n_frames == N_FRAMES
    assert labels.counted.tolist() == [True, True, False, True, True, True]


VALIDATION = ["abnormal_scene_2_scenario_2", "normal_scene_2_scenario_2"]


def write_ubnormal_with_validation(root: Path, folder: str) -> None:
    """One test clip, and two validation clips of which the abnormal one has two intervals."""
    write_ubnormal(root, ["abnormal_scene_1_scenario_1"])
    write_poses(root, "test", ["abnormal_scene_1_scenario_1"])
    write_poses(root, "train", ["normal_scene_1_scenario_1"])
    write_poses(root, folder, VALIDATION)
    (root / "gt" / f"{VALIDATION[0]}_tracks.txt").write_text("1,1,1\n2,3,4\n")


@pytest.mark.parametrize("folder", ["validation", "val"])
@pytest.mark.parametrize("split", ["full", "hr"])
def test_ubnormal_has_validation_clips_labelled_by_intervals(
    tmp_path: Path, folder: str, split: Split
) -> None:
    write_ubnormal_with_validation(tmp_path, folder)
    masks = tmp_path / "hr_bool_masks" / "testing" / "test_frame_mask"
    masks.mkdir(parents=True)
    np.save(masks / "001_0100.npy", np.zeros(N_FRAMES, dtype=np.bool_))
    dataset = open_dataset(tmp_path, split=split)
    pairs = list(dataset.validation_set().test_clips())
    assert [clip.name for clip, _ in pairs] == VALIDATION
    (abnormal, labels), (_, calm) = pairs
    assert abnormal.n_frames == 5  # poses end at frame 2, the last interval at 4
    assert abnormal.n_poses == 2
    assert labels.abnormal.tolist() == [False, True, False, True, True]
    assert labels.counted.all()
    assert calm.abnormal.tolist() == [False] * 3
    assert [clip.name for clip, _ in dataset.test_clips()] == ["abnormal_scene_1_scenario_1"]


def test_validation_is_measured_as_the_test_is(tmp_path: Path) -> None:
    write_ubnormal_with_validation(tmp_path, "validation")
    inner = open_dataset(tmp_path, split="validation")
    assert [clip.name for clip, _ in inner.test_clips()] == [
        clip.name for clip, _ in open_dataset(tmp_path).validation_set().test_clips()
    ]
    assert inner.name == f"{tmp_path.name} validation"
    assert inner.smoothing == FrameSmoothing(1, 21)
    assert inner.left_out == {}
    assert inner.validation is None
    assert [clip.name for clip in inner.train_clips()] == ["normal_scene_1_scenario_1"]


def test_a_validation_clip_without_intervals_is_an_error(tmp_path: Path) -> None:
    write_ubnormal_with_validation(tmp_path, "validation")
    write_poses(tmp_path, "validation", ["abnormal_scene_3_scenario_3"])
    dataset = open_dataset(tmp_path)
    with pytest.raises(DataError, match=r"scene_3_scenario_3_tracks.txt: expected a readable file"):
        dataset.validation_set().test_clips()


def test_a_directory_validation_is_laid_out_as_the_data_set_itself(shanghaitech: Path) -> None:
    inner = shanghaitech / "validation"
    write_masks(inner, ["01_0130", "01_0777"])
    write_poses(inner, "test", ["01_0130", "01_0777"])
    dataset = open_dataset(shanghaitech, split="hr")
    names = [clip.name for clip, _ in dataset.validation_set().test_clips()]
    assert names == ["01_0130", "01_0777"]  # the split is the test's


def test_validation_poses_are_stored_as_the_others_are(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "validation"):
        write_masks(root, ["01_0222"])
        write_poses(root, "test", ["01_0222"])
    ((clip, _),) = open_dataset(tmp_path, layout="poselift").validation_set().test_clips()
    np.testing.assert_array_equal(clip.tracks[0].keypoints[0, 0], [20, 10])


def test_a_data_set_without_validation_clips_says_so(shanghaitech: Path) -> None:
    dataset = open_dataset(shanghaitech)
    assert dataset.validation is None
    with pytest.raises(DataError, match="expected a data set with validation clips, got one with"):
        dataset.validation_set().test_clips()


def test_poses_alone_are_no_data_set(shanghaitech: Path) -> None:
    assert is_dataset(shanghaitech)
    assert not is_dataset(shanghaitech / "pose" / "train")
    assert not is_dataset(shanghaitech / "gt" / "test_frame_mask" / "01_0014.npy")
    assert not is_dataset(shanghaitech / "nowhere")


@pytest.mark.parametrize(
    ("split", "names", "abnormal"),
    [
        ("full", ["Fighting_3", "Fire_1", "MSAD_normal_testing_7"], 2),
        ("st", ["Fighting_3", "MSAD_normal_testing_7"], 1),
        ("ub", ["Fighting_3", "Fire_1", "MSAD_normal_testing_7"], 1),
    ],
)
def test_msad_opens_by_its_categories(
    tmp_path: Path, split: Split, names: list[str], abnormal: int
) -> None:
    every = ["Fighting_3", "Fire_1", "MSAD_normal_testing_7"]
    write_masks(tmp_path, every)
    write_poses(tmp_path, "test", every)
    dataset = open_dataset(tmp_path, split=split)
    assert recognise(tmp_path) == "msad"
    assert dataset.smoothing == FrameSmoothing(0, 0)
    pairs = list(dataset.test_clips())
    assert [clip.name for clip, _ in pairs] == names
    assert sum(int(labels.abnormal.sum()) for _, labels in pairs) == abnormal


def test_a_labelled_clip_without_poses_is_one_in_which_nobody_was_found(
    shanghaitech: Path,
) -> None:
    write_masks(shanghaitech, ["09_0001"], n_frames=4)
    *_, (clip, labels) = open_dataset(shanghaitech).test_clips()
    assert (clip.name, clip.n_frames, clip.tracks) == ("09_0001", 4, ())
    assert len(labels) == 4


def test_poses_without_labels_are_an_error(shanghaitech: Path) -> None:
    write_poses(shanghaitech, "test", ["01_0999"])
    with pytest.raises(DataError, match="clip 01_0999: expected frame labels for every test clip"):
        list(open_dataset(shanghaitech).test_clips())


def test_two_pose_files_of_one_clip_are_an_error(shanghaitech: Path) -> None:
    write_poses(shanghaitech, "test", ["01_014"])
    with pytest.raises(DataError, match="expected one pose file for each clip, got two"):
        list(open_dataset(shanghaitech).test_clips())


def test_poses_beyond_the_labels_are_an_error(tmp_path: Path) -> None:
    write_masks(tmp_path, ["01_0001"], n_frames=2)
    write_poses(tmp_path, "test", ["01_0001"])
    with pytest.raises(DataError, match="expected frames below 2, got 2"):
        list(open_dataset(tmp_path).test_clips())


def test_a_directory_that_is_no_data_set_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        open_dataset(tmp_path)
    for looked_for in (
        str(tmp_path),
        "gt/test_frame_mask/<clip>.npy",
        "gt/<clip>_tracks.txt",
    ):
        assert looked_for in error.value.problem
    assert "gt and pose" in error.value.hint


def test_labels_without_poses_say_where_poses_belong(tmp_path: Path) -> None:
    write_masks(tmp_path, ["01_0001"])
    with pytest.raises(DataError, match=r"expected poses of the test clips in .*test, got no such"):
        open_dataset(tmp_path)


@pytest.mark.parametrize(
    ("layout", "split", "expected"),
    [
        ("shanghaitech", "st", "full or hr"),
        ("ubnormal", "ub", "full or hr"),
        ("msad", "hr", "full, st or ub"),
        ("poselift", "hr", "full"),
    ],
)
def test_a_split_that_a_data_set_does_not_have_is_an_error(
    shanghaitech: Path, layout: DatasetLayout, split: Split, expected: str
) -> None:
    with pytest.raises(
        ConfigError, match=f"split: expected {expected} for {layout}, got '{split}'"
    ):
        open_dataset(shanghaitech, split=split, layout=layout)


def test_an_unknown_layout_is_an_error(shanghaitech: Path) -> None:
    with pytest.raises(ConfigError, match="layout: expected auto, shanghaitech, ubnormal"):
        open_dataset(shanghaitech, layout="avenue")  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.data
def test_poselift_itself_opens(data_dir: Path) -> None:
    dataset = open_dataset(data_dir / "PoseLift")
    pairs = list(dataset.test_clips())
    assert len(pairs) == 47
    assert sum(len(labels) for _, labels in pairs) == 4846
    assert sum(int(labels.abnormal.sum()) for _, labels in pairs) == 1534
    assert sum(clip.n_poses for clip, _ in pairs) == 4620
    assert all(clip.tracks for clip, _ in pairs)
    assert sum(1 for _ in dataset.train_clips()) == 104


@pytest.mark.data
def test_poselift_is_recognised_and_people_stand_upright(data_dir: Path) -> None:
    assert recognise(data_dir / "PoseLift") == "poselift"
    heights = [
        np.ptp(track.keypoints[..., 1], axis=1) - np.ptp(track.keypoints[..., 0], axis=1)
        for clip, _ in open_dataset(data_dir / "PoseLift").test_clips()
        for track in clip.tracks
    ]
    assert np.mean(np.concatenate(heights) > 0) > 0.8
