"""Archives become data sets with the same clips and labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.datasets import open_dataset
from stepvad.formats.labels import shanghaitech as official
from studies import unpack
from studies.unpack import BOX
from tests.evaluation.layouts import SCALE, Release, Rows, avenue, write_csv

TRACKS = ((2, 0, 0, 40), (2, 3, 5, 30), (0, 1, 0, 30), (3, 2, 4, 40), (1, 0, 2, 40))
"""Clip, track, first frame and number of boxes."""


def box_arrays() -> dict[str, NDArray[Any]]:
    """Two training and two test clips, not sorted by name; boxes that move and breathe."""
    rng = np.random.default_rng(0)
    columns: dict[str, list[NDArray[Any]]] = {"clip": [], "track": [], "frame": [], "kpts": []}
    for clip, track, first, n_boxes in sorted(TRACKS):
        start = rng.uniform(100, 300, 2) + rng.normal(0, 3, (n_boxes, 2)).cumsum(axis=0)
        size = np.array([40.0, 90.0]) + rng.normal(0, 2, (n_boxes, 2))
        columns["clip"].append(np.full(n_boxes, clip, np.int16))
        columns["track"].append(np.full(n_boxes, track, np.int32))
        columns["frame"].append(np.arange(first, first + n_boxes, dtype=np.int32))
        columns["kpts"].append(np.stack([start, start + size], axis=1).astype(np.float32))
    abnormal = np.zeros(95, np.int8)
    abnormal[[*range(20, 30), 94]] = 1
    return {name: np.concatenate(parts) for name, parts in columns.items()} | {
        "clip_names": np.array(["01_002", "01_0130", "01_001", "01_0014"]),
        "clip_split": np.array([0, 1, 0, 1], np.int8),
        "gt": abnormal,
        "gt_clip": np.array(["01_0014", "01_0130"]),
        "gt_len": np.array([50, 45], np.int32),
    }


def packed_arrays(release: Release) -> dict[str, NDArray[Any]]:
    """The arrays of the packed file."""
    clips = [*release.train.items(), *release.test.items()]
    columns: list[tuple[int, int, Rows]] = [
        (clip, number, rows)
        for clip, (_, people) in enumerate(clips)
        for number, rows in people.items()
    ]
    lengths = [len(rows) for _, _, rows in columns]
    every = np.concatenate([rows for _, _, rows in columns])
    eighths = np.round(SCALE * every[:, 1:].T).astype(np.int64)  # (34, n)
    steps = np.diff(eighths, axis=1, prepend=0) % 2**16
    found: dict[str, NDArray[Any]] = {
        "clip": np.repeat([clip for clip, _, _ in columns], lengths).astype(np.uint16),
        "track": np.repeat([number for _, number, _ in columns], lengths).astype(np.uint16),
        "frame": every[:, 0].astype(np.uint16),
        "kpts_lo": (steps % 256).astype(np.uint8),
        "kpts_hi": (steps // 256).astype(np.uint8),
        "scale": np.array(SCALE, np.int16),
        "clip_names": np.array([name for name, _ in clips]),
        "clip_split": np.repeat([0, 1], [len(release.train), len(release.test)]).astype(np.uint8),
        "gt": np.concatenate([*release.masks.values()]).astype(np.uint8),
        "gt_clip": np.array([*release.masks]),
        "gt_len": np.array([len(mask) for mask in release.masks.values()], np.int32),
    }
    if release.kept is not None:
        found["hr_keep"] = np.concatenate([*release.kept.values()]).astype(np.uint8)
    return found


def write_packed(found: dict[str, NDArray[Any]], path: Path) -> Path:
    """The packed file."""
    named: dict[str, Any] = {**found}
    np.savez_compressed(path, **named)
    return path


def test_box_tracks_become_clips_of_corners_with_masks(tmp_path: Path) -> None:
    archive = write_packed(box_arrays(), tmp_path / "tracks.npz")
    unpack.main([str(archive), str(tmp_path / "boxes")])
    dataset = open_dataset(tmp_path / "boxes")
    train = list(dataset.train_clips())
    assert [clip.name for clip in train] == ["01_001", "01_002"]
    assert [[track.id for track in clip.tracks] for clip in train] == [[0, 3], [1]]
    assert train[0].tracks[1].frames.tolist() == [*range(5, 35)]
    assert {clip.skeleton for clip in train} == {BOX}
    joints, rows = train[1].tracks[0].keypoints, box_arrays()["clip"] == 0
    np.testing.assert_array_equal(joints[:, [0, 2]], box_arrays()["kpts"][rows])
    sides = [np.abs(joints[0, a] - joints[0, b]) > 0 for a, b in BOX.bones]
    assert [side.tolist() for side in sides] == [[True, False], [False, True]] * 2
    pairs = list(dataset.test_clips())
    assert [clip.n_frames for clip, _ in pairs] == [50, 45]
    assert [np.flatnonzero(truth.abnormal).tolist() for _, truth in pairs] == [
        [*range(20, 30)],
        [44],
    ]
    human = open_dataset(tmp_path / "boxes", split="hr")
    assert [clip.name for clip, _ in human.test_clips()] == ["01_0014"]


def test_trajectories_become_the_files_of_their_release(tmp_path: Path) -> None:
    archive = write_packed(packed_arrays(avenue()), tmp_path / "a.npz")
    unpack.main([str(archive), str(tmp_path / "unpacked")])
    released = open_dataset(write_csv(avenue(), tmp_path / "csv"), split="hr")
    found = open_dataset(tmp_path / "unpacked", split="hr")
    for one, other in zip(released.train_clips(), found.train_clips(), strict=True):
        assert one.digest() == other.digest()
    for (one, truth), (other, same) in zip(released.test_clips(), found.test_clips(), strict=True):
        assert (one.digest(), one.n_frames) == (other.digest(), other.n_frames)
        np.testing.assert_array_equal(truth.abnormal, same.abnormal)
        np.testing.assert_array_equal(truth.counted, same.counted)


def test_another_archive_is_refused(tmp_path: Path) -> None:
    path = write_packed({"x": np.zeros(3)}, tmp_path / "a.npz")
    with pytest.raises(DataError, match="expected box tracks or trajectories, got x"):
        unpack.main([str(path), str(tmp_path / "out")])


@pytest.mark.data
def test_box_tracks_of_shanghaitech_have_the_published_counts(
    data_dir: Path, tmp_path: Path
) -> None:
    unpack.main([str(data_dir / "ShanghaiTech-boxes" / "tracks.npz"), str(tmp_path / "boxes")])
    dataset = open_dataset(tmp_path / "boxes")
    train = list(dataset.train_clips())
    test = [clip for clip, _ in dataset.test_clips()]
    assert (len(train), len(test)) == (330, 107)
    assert sum(clip.n_poses for clip in train) == 825_982
    assert sum(clip.n_poses for clip in test) == 137_965
    expected = official(data_dir / "ShanghaiTech")
    assert [*dataset.labels] == [*expected]
    for name, labels in expected.items():
        np.testing.assert_array_equal(dataset.labels[name].abnormal, labels.abnormal)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "clips", "poses", "frames"),
    [
        ("HR-ShanghaiTech", (323, 101), (875_670, 141_746), (38_697, 38_697)),
        ("HR-Avenue", (16, 21), (79_948, 65_982), (15_324, 14_708)),
    ],
)
def test_trajectories_have_the_published_counts(
    data_dir: Path,
    tmp_path: Path,
    name: str,
    clips: tuple[int, int],
    poses: tuple[int, int],
    frames: tuple[int, int],
) -> None:
    unpack.main([str(data_dir / "HR-trajectories" / f"{name}.npz"), str(tmp_path / name)])
    dataset = open_dataset(tmp_path / name, split="hr")
    parts = [[*dataset.train_clips()], [clip for clip, _ in dataset.test_clips()]]
    assert tuple(map(len, parts)) == clips
    assert tuple(sum(clip.n_poses for clip in part) for part in parts) == poses
    counted = sum(int(one.counted.sum()) for one in dataset.labels.values())
    assert (sum(map(len, dataset.labels.values())), counted) == frames
