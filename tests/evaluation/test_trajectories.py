"""Human-related trajectories: clips, labels and splits."""

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
    is_dataset,
    open_dataset,
    read_training,
    read_truth,
    recognise,
)
from stepvad.evaluation.protocol import evaluate
from tests.evaluation.layouts import (
    Release,
    avenue,
    shanghaitech,
    walk,
    with_person,
    write_csv,
)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Release], Path]:
    """Writes a release."""
    return lambda release: write_csv(release, tmp_path / "people")


Written = Callable[[Release], Path]


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
