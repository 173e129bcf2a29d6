"""Box tracks and human-related trajectories: clips, labels, splits, and refused archives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad import Config, Detector
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation.datasets import (
    Dataset,
    FrameSmoothing,
    corners,
    is_dataset,
    open_dataset,
    read_training,
    read_truth,
    recognise,
)
from stepvad.evaluation.protocol import evaluate
from stepvad.skeletons import BOX
from tests.evaluation.layouts import (
    Release,
    avenue,
    box_arrays,
    packed_arrays,
    shanghaitech,
    walk,
    with_person,
    write_boxes,
    write_csv,
    write_packed,
)


def test_a_box_becomes_four_corners_in_a_row() -> None:
    (points,) = corners(np.array([[[10, 20], [30, 80]]], dtype=np.float32))
    named = dict(zip(BOX.joints, points.tolist(), strict=True))
    assert named == {
        "top_left": [10, 20],
        "top_right": [30, 20],
        "bottom_right": [30, 80],
        "bottom_left": [10, 80],
    }
    sides = [np.abs(points[a] - points[b]).tolist() for a, b in BOX.bones]
    assert sides == [[20, 0], [0, 60], [20, 0], [0, 60]]


def test_clips_of_each_part_come_by_name_with_their_tracks(tmp_path: Path) -> None:
    dataset = open_dataset(write_boxes(tmp_path))
    assert recognise(tmp_path) == "boxes"
    assert dataset.name == f"{tmp_path.name}, box tracks"
    assert dataset.smoothing == FrameSmoothing(0, 13)
    train = list(dataset.train_clips())
    assert [clip.name for clip in train] == ["01_001", "01_002"]
    assert [[track.id for track in clip.tracks] for clip in train] == [[0, 3], [1]]
    assert train[0].tracks[1].frames.tolist() == [*range(5, 35)]
    assert train[0].n_frames == 40
    assert {clip.skeleton for clip in train} == {BOX}
    assert all((track.confidence == 1).all() for clip in train for track in clip.tracks)


def test_rows_may_stand_in_any_order(tmp_path: Path) -> None:
    write_boxes(tmp_path / "sorted")
    mixed = box_arrays()
    order = np.random.default_rng(0).permutation(len(mixed["clip"]))
    for name in ("clip", "track", "frame", "kpts"):
        mixed[name] = mixed[name][order]
    write_boxes(tmp_path / "mixed", mixed)
    one, other = (open_dataset(tmp_path / name).train_clips() for name in ("sorted", "mixed"))
    assert [clip.digest() for clip in one] == [clip.digest() for clip in other]


def test_test_clips_are_as_long_as_their_labels(tmp_path: Path) -> None:
    pairs = list(open_dataset(write_boxes(tmp_path)).test_clips())
    assert [clip.name for clip, _ in pairs] == ["01_0014", "01_0130"]
    assert [clip.n_frames for clip, _ in pairs] == [50, 45]
    assert [np.flatnonzero(labels.abnormal).tolist() for _, labels in pairs] == [
        [*range(20, 30)],
        [44],
    ]


def test_the_human_related_split_leaves_out_what_shanghaitech_leaves_out(tmp_path: Path) -> None:
    dataset = open_dataset(write_boxes(tmp_path), split="hr")
    assert [clip.name for clip, _ in dataset.test_clips()] == ["01_0014"]
    assert set(dataset.left_out) == {"01_0130"}
    with pytest.raises(ConfigError, match="split: expected full or hr for boxes, got 'ub'"):
        open_dataset(tmp_path, split="ub")


def test_box_tracks_have_no_validation_clips(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="box tracks: expected a data set with validation clips"):
        open_dataset(write_boxes(tmp_path)).validation_clips()


def test_boxes_have_four_numbers_a_frame_less_the_place(tmp_path: Path) -> None:
    dataset = open_dataset(write_boxes(tmp_path))
    with pytest.raises(DataError, match="K: expected at most 14, the rank of"):
        Detector.fit(dataset.train_clips(), Config(T=4, K=16, width=8, max_steps=1))
    detector = Detector.fit(dataset.train_clips(), Config(T=4, K=14, width=8, max_steps=1))
    assert evaluate(detector, dataset).n_clips == 2


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kpts", np.zeros((3, 2, 2), np.float32), r"kpts of shape \(\d+, 2, 2\)"),
        ("kpts", np.zeros((3, 4), np.float32), "kpts with 3 axes"),
        ("track", np.zeros(7, np.int32), "one box per clip, track and frame"),
        ("frame", np.zeros(3, np.float32), "frame with 1 axes, of kind i or u"),
        ("clip_split", np.zeros(1, np.int8), "a name and a split for every clip"),
        ("clip_names", np.array([1, 2, 3, 4]), "clip_names with 1 axes, of kind U"),
        (
            "clip_names",
            np.array([object()]),
            "clip_names: expected an NPY array of numbers, got: Object arrays",
        ),
    ],
)
def test_an_archive_of_other_arrays_is_refused(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    write_boxes(tmp_path, box_arrays() | {name: value})
    with pytest.raises(DataError, match=message):
        list(open_dataset(tmp_path).train_clips())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gt", np.zeros(94, np.int8)),
        ("gt", np.full(95, 2, np.int8)),
        ("gt_len", np.array([96, -1])),
        ("gt_len", np.array([95])),
        ("gt_clip", np.array(["01_0014", "01_0014"])),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, name: str, value: Any) -> None:
    write_boxes(tmp_path, box_arrays() | {name: value})
    with pytest.raises(DataError, match="expected gt_len frames of 0 or 1 in gt"):
        open_dataset(tmp_path)


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    found = box_arrays()
    del found["gt_len"]
    write_boxes(tmp_path, found)
    with pytest.raises(DataError, match="gt_len"):
        open_dataset(tmp_path)


def test_a_wrong_box_is_told_with_file_track_and_frame(tmp_path: Path) -> None:
    found = box_arrays()
    found["kpts"][2, 0, 0] = np.nan
    write_boxes(tmp_path, found)
    with pytest.raises(DataError, match=r"tracks\.npz, clip 01_002: track 1, frame 2, joint 0"):
        list(open_dataset(tmp_path).train_clips())


@pytest.mark.data
def test_shanghaitechs_box_tracks_have_the_published_counts(data_dir: Path) -> None:
    dataset = open_dataset(data_dir / "ShanghaiTech-boxes")
    train = list(dataset.train_clips())
    pairs = list(dataset.test_clips())
    test = [clip for clip, _ in pairs]
    assert (len(train), len(test)) == (330, 107)
    assert sum(clip.n_poses for clip in train) == 825_982
    assert sum(clip.n_poses for clip in test) == 137_965
    assert sum(len(clip.tracks) for clip in train) == 5_646
    assert sum(len(clip.tracks) for clip in test) == 1_190
    n_frames = sum(len(labels) for _, labels in pairs)
    assert n_frames == 40_791
    assert sum(int(labels.abnormal.sum()) for _, labels in pairs) / n_frames == pytest.approx(
        0.425, abs=5e-4
    )


@pytest.mark.data
def test_the_human_related_box_tracks_have_the_official_counts(data_dir: Path) -> None:
    labels = open_dataset(data_dir / "ShanghaiTech-boxes", split="hr").labels
    assert (len(labels), sum(map(len, labels.values()))) == (101, 38_697)


@pytest.mark.data
def test_box_tracks_carry_the_masks_of_shanghaitech(data_dir: Path) -> None:
    from stepvad.formats.labels import shanghaitech

    official = shanghaitech(data_dir / "ShanghaiTech")
    found = open_dataset(data_dir / "ShanghaiTech-boxes").labels
    assert [*found] == [*official]
    for name, labels in official.items():
        np.testing.assert_array_equal(found[name].abnormal, labels.abnormal)


@pytest.mark.data
def test_people_are_taller_than_wide(data_dir: Path) -> None:
    pairs = open_dataset(data_dir / "ShanghaiTech-boxes").test_clips()
    points = np.concatenate([track.keypoints for clip, _ in pairs for track in clip.tracks])
    left, top = points[:, BOX.joints.index("top_left")].T
    right, bottom = points[:, BOX.joints.index("bottom_right")].T
    assert (right > left).all()
    assert (bottom > top).all()
    assert np.median((bottom - top) / (right - left)) > 2


Written = Callable[[Release], Path]


@pytest.fixture(params=["csv", "packed"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    """Writes a release in either form."""
    if request.param == "csv":
        return lambda release: write_csv(release, tmp_path / "people")
    return lambda release: write_packed(packed_arrays(release), tmp_path / "people.npz")


def counted(dataset: Dataset) -> list[int]:
    return [int(labels.counted.sum()) for _, labels in dataset.test_clips()]


def test_avenue_is_known_by_its_clips(written: Written) -> None:
    root = written(avenue())
    dataset = open_dataset(root)
    assert (recognise(root), is_dataset(root), dataset.name) == ("hr-avenue", True, "people")
    assert dataset.smoothing == FrameSmoothing(0, 20)
    assert [clip.name for clip in dataset.train_clips()] == ["01", "02"]
    assert {clip.fps for clip, _ in dataset.test_clips()} == {25.0}


def test_shanghaitech_is_known_by_its_cameras(written: Written) -> None:
    root = written(shanghaitech())
    dataset = open_dataset(root)
    assert recognise(root) == "hr-shanghaitech"
    assert dataset.smoothing == FrameSmoothing(0, 13)
    assert {clip.fps for clip in dataset.train_clips()} == {24.0}


def test_people_are_where_they_walk(written: Written) -> None:
    first, _ = open_dataset(written(avenue())).train_clips()
    rows = avenue().train["01"]
    assert [track.id for track in first.tracks] == [1, 12]
    for track in first.tracks:
        np.testing.assert_array_equal(track.frames, rows[track.id][:, 0])
        np.testing.assert_allclose(track.keypoints.reshape(-1, 34), rows[track.id][:, 1:])
        assert (track.confidence == 1).all()


def test_both_forms_give_the_same_clips(tmp_path: Path) -> None:
    release = with_person(avenue(), odd_person())
    csv = open_dataset(write_csv(release, tmp_path / "csv"), split="hr")
    packed = open_dataset(write_packed(packed_arrays(release), tmp_path / "a.npz"), split="hr")
    for one, other in zip(csv.train_clips(), packed.train_clips(), strict=True):
        assert one.digest() == other.digest()
    for (one, truth), (other, same) in zip(csv.test_clips(), packed.test_clips(), strict=True):
        assert (one.digest(), one.n_frames) == (other.digest(), other.n_frames)
        np.testing.assert_array_equal(truth.abnormal, same.abnormal)
        np.testing.assert_array_equal(truth.counted, same.counted)


def odd_person() -> Any:
    """Frames 10 to 19; the third row is empty, the fifth goes back to 0, the seventh misses."""
    rows = walk(10, 10, seed=9)
    rows[2, 1:] = 0
    rows[4, 0] = 0
    rows[6, 1:5] = 0
    rows[8] = rows[7]
    return rows


def test_odd_rows_are_mended(written: Written) -> None:
    first, _ = open_dataset(written(with_person(avenue(), odd_person()))).train_clips()
    (odd,) = [track for track in first.tracks if track.id == 7]
    assert odd.frames.tolist() == [0, 10, 11, 13, 15, 16, 17, 19]
    assert odd.confidence.sum(axis=1).tolist() == [17, 17, 17, 17, 17, 15, 17, 17]
    assert (odd.keypoints[5, :2] == 0).all()


def test_the_human_related_split_drops_frames_of_avenue(written: Written) -> None:
    root = written(avenue())
    assert counted(open_dataset(root)) == [32, 30]
    assert counted(open_dataset(root, split="hr")) == [29, 30]
    with pytest.raises(ConfigError, match="split: expected full or hr for hr-avenue, got 'ub'"):
        open_dataset(root, split="ub")


def test_without_masks_there_is_no_human_related_split_of_avenue(tmp_path: Path) -> None:
    release = avenue()
    bare = Release(release.train, release.test, release.masks)
    with pytest.raises(DataError, match=r"hr_bool_masks.*expected 01\.npy, got no such file"):
        open_dataset(write_csv(bare, tmp_path / "csv"), split="hr")
    with pytest.raises(DataError, match="hr_keep"):
        open_dataset(write_packed(packed_arrays(bare), tmp_path / "a.npz"), split="hr")


def test_the_human_related_split_drops_clips_of_shanghaitech(written: Written) -> None:
    root = written(shanghaitech())
    assert [*open_dataset(root).labels] == ["01_0014", "12_0152"]
    dataset = open_dataset(root, split="hr")
    assert [clip.name for clip, _ in dataset.test_clips()] == ["01_0014"]
    assert [*dataset.left_out] == ["12_0152"]


def test_a_mask_of_a_clip_without_trajectories_does_not_count(written: Written) -> None:
    pairs = [*open_dataset(written(shanghaitech())).test_clips()]
    assert [clip.n_frames for clip, _ in pairs] == [32, 30]
    assert [np.flatnonzero(labels.abnormal).tolist() for _, labels in pairs] == [
        [*range(20, 32)],
        [*range(26, 30)],
    ]


def test_a_model_is_fitted_and_measured(written: Written) -> None:
    root = written(avenue())
    clips = [*read_training([root])]
    assert [clip.name for clip in clips] == ["01", "02"]
    detector = Detector.fit(clips, Config(T=4, K=8, width=8, max_steps=1))
    table = evaluate(detector, open_dataset(root, split="hr"))
    assert (table.n_clips, table.n_frames, table.n_counted) == (2, 62, 59)
    assert read_truth(root, clips[0]).tolist() == [False] * 20 + [True] * 12


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kpts_lo", np.zeros((34, 3), np.uint8), r"kpts_lo and kpts_hi of shape \(34, \d+\)"),
        ("kpts_hi", np.zeros((34, 135), np.uint16), "bytes kpts_lo and kpts_hi"),
        ("kpts_hi", np.zeros(34, np.uint8), "kpts_hi with 2 axes"),
        ("scale", np.array(0), "a scale above 0"),
        ("scale", np.array([8]), "scale with 0 axes"),
        ("track", np.zeros(7, np.int32), "as many clips as tracks and frames"),
        ("clip", np.full(135, 9), "a name and a split for every clip of a row"),
        ("clip_split", np.zeros(1, np.int8), "a name and a split for every clip"),
        ("gt_len", np.array([62, 1]), "expected gt_len frames of 0 or 1 in gt"),
        ("gt", np.full(62, 2), "expected gt_len frames of 0 or 1 in gt"),
        ("hr_keep", np.ones(61, np.int8), "expected gt_len frames of 0 or 1 in hr_keep"),
        ("frame", np.full(135, 70_000_000), "expected up to 10,000,[0-9]+ frames"),
    ],
)
def test_a_packed_file_of_other_arrays_is_refused(
    tmp_path: Path, name: str, value: Any, message: str
) -> None:
    path = write_packed(packed_arrays(avenue()) | {name: value}, tmp_path / "a.npz")
    with pytest.raises(DataError, match=message) as refusal:
        list(open_dataset(path, split="hr").train_clips())
    assert str(path) in refusal.value.problem


def test_another_archive_is_refused(tmp_path: Path) -> None:
    path = write_packed({"x": np.zeros(3)}, tmp_path / "a.npz")
    with pytest.raises(DataError, match="clip_names"):
        open_dataset(path)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "clips", "rows", "poses"),
    [
        ("HR-ShanghaiTech", (323, 101), (922_205, 151_674), (875_670, 141_746)),
        ("HR-Avenue", (16, 21), (88_648, 73_464), (79_948, 65_982)),
    ],
)
def test_the_packed_files_have_their_counts(
    data_dir: Path, name: str, clips: tuple[int, int], rows: tuple[int, int], poses: tuple[int, int]
) -> None:
    path = data_dir / "HR-trajectories" / f"{name}.npz"
    with np.load(path) as archive:
        of_row = archive["clip_split"][archive["clip"]]
    dataset = open_dataset(path)
    parts = [[*dataset.train_clips()], [clip for clip, _ in dataset.test_clips()]]
    assert tuple(np.bincount(of_row)) == rows
    assert tuple(map(len, parts)) == clips
    assert tuple(sum(clip.n_poses for clip in part) for part in parts) == poses


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "n_frames", "n_counted", "share"),
    [("HR-ShanghaiTech", 38_697, 38_697, 0.417), ("HR-Avenue", 15_324, 14_708, 0.218)],
)
def test_the_packed_files_have_their_labels(
    data_dir: Path, name: str, n_frames: int, n_counted: int, share: float
) -> None:
    labels = open_dataset(data_dir / "HR-trajectories" / f"{name}.npz", split="hr").labels
    assert sum(map(len, labels.values())) == n_frames
    assert sum(int(one.counted.sum()) for one in labels.values()) == n_counted
    abnormal = sum(int((one.abnormal & one.counted).sum()) for one in labels.values())
    assert abnormal / n_counted == pytest.approx(share, abs=5e-4)


@pytest.mark.data
def test_trajectories_carry_the_official_masks_of_shanghaitech(data_dir: Path) -> None:
    from stepvad.formats.labels import shanghaitech as official

    found = open_dataset(data_dir / "HR-trajectories" / "HR-ShanghaiTech.npz").labels
    expected = official(data_dir / "ShanghaiTech", split="hr")
    assert [*found] == [*expected]
    for name, labels in expected.items():
        np.testing.assert_array_equal(found[name].abnormal, labels.abnormal)
