"""The mocap data set on disk, in ShanghaiTech's layout, with a list of its events."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepvad import formats
from stepvad.benchmark.datasets import Dataset
from stepvad.benchmark.mocap.dataset import Mocap
from stepvad.formats import classes


def write_dataset(mocap: Mocap, directory: Path) -> None:
    """Write `pose/train`, `pose/test` and `gt`, and the same of the validation clips below it.

    Poses are Parquet tracks. `DIR/validation` has no training clips of its own.
    """
    _write_test(mocap.dataset, directory)
    _write_test(mocap.validation, directory / "validation")
    formats.write_clips(mocap.dataset.train_clips(), directory / "pose" / "train")


def _write_test(dataset: Dataset, directory: Path) -> None:
    masks = directory / "gt" / "test_frame_mask"
    masks.mkdir(parents=True, exist_ok=True)
    for name, labels in dataset.labels.items():
        np.save(masks / f"{name}.npy", labels.abnormal.astype(np.uint8))
    classes.write(dataset.labels, directory / "gt" / "classes.csv")
    formats.write_clips((clip for clip, _ in dataset.test_clips()), directory / "pose" / "test")
