"""Box tracks: corners in their places, splits, labels, and an archive that is not one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepvad import Config, Detector
from stepvad.errors import ConfigError, DataError
from stepvad.evaluation import boxtracks
from stepvad.evaluation.datasets import open_dataset, recognise
from stepvad.evaluation.protocol import evaluate
from stepvad.skeletons import BOX
from tests.evaluation.boxes import arrays, write_archive


def test_a_box_becomes_four_corners_in_a_row() -> None:
    (points,) = boxtracks.corners(np.array([[[10, 20], [30, 80]]], dtype=np.float32))
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
    dataset = open_dataset(write_archive(tmp_path))
    assert recognise(tmp_path) == "boxes"
    assert dataset.name == f"{tmp_path.name}, box tracks"
    assert (dataset.person_sigma, dataset.frame_sigma, dataset.smoothing) == (0, 13, "filled")
    train = list(dataset.train_clips())
    assert [clip.name for clip in train] == ["01_001", "01_002"]
    assert [[track.id for track in clip.tracks] for clip in train] == [[0, 3], [1]]
    assert train[0].tracks[1].frames.tolist() == [*range(5, 35)]
    assert train[0].n_frames == 40
    assert {clip.skeleton for clip in train} == {BOX}
    assert all((track.confidence == 1).all() for clip in train for track in clip.tracks)


def test_rows_may_stand_in_any_order(tmp_path: Path) -> None:
    write_archive(tmp_path / "sorted")
    mixed = arrays()
    order = np.random.default_rng(0).permutation(len(mixed["clip"]))
    for name in ("clip", "track", "frame", "kpts"):
        mixed[name] = mixed[name][order]
    write_archive(tmp_path / "mixed", mixed)
    one, other = (open_dataset(tmp_path / name).train_clips() for name in ("sorted", "mixed"))
    assert [clip.digest() for clip in one] == [clip.digest() for clip in other]


def test_test_clips_are_as_long_as_their_labels(tmp_path: Path) -> None:
    pairs = list(open_dataset(write_archive(tmp_path)).test_clips())
    assert [clip.name for clip, _ in pairs] == ["01_0014", "01_0130"]
    assert [clip.n_frames for clip, _ in pairs] == [50, 45]
    assert [np.flatnonzero(labels.abnormal).tolist() for _, labels in pairs] == [
        [*range(20, 30)],
        [44],
    ]


def test_the_human_related_split_leaves_out_what_shanghaitech_leaves_out(tmp_path: Path) -> None:
    dataset = open_dataset(write_archive(tmp_path), split="hr")
    assert [clip.name for clip, _ in dataset.test_clips()] == ["01_0014"]
    assert set(dataset.left_out) == {"01_0130"}
    with pytest.raises(ConfigError, match="split: expected full or hr for boxes, got 'ub'"):
        open_dataset(tmp_path, split="ub")


def test_box_tracks_have_no_validation_clips(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="box tracks: expected a data set with validation clips"):
        open_dataset(write_archive(tmp_path)).validation_clips()


def test_boxes_have_four_numbers_a_frame_less_the_place(tmp_path: Path) -> None:
    dataset = open_dataset(write_archive(tmp_path))
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
    write_archive(tmp_path, arrays() | {name: value})
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
    write_archive(tmp_path, arrays() | {name: value})
    with pytest.raises(DataError, match="expected gt_len frames of 0 or 1 in gt"):
        open_dataset(tmp_path)


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    found = arrays()
    del found["gt_len"]
    write_archive(tmp_path, found)
    with pytest.raises(DataError, match="gt_len"):
        open_dataset(tmp_path)


def test_a_wrong_box_is_told_with_file_track_and_frame(tmp_path: Path) -> None:
    found = arrays()
    found["kpts"][2, 0, 0] = np.nan
    write_archive(tmp_path, found)
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
