"""Write data sets to disk in ShanghaiTech's layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stepvad import formats
from stepvad.evaluation.datasets import Dataset
from stepvad.formats.labels import write_classes
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent


def write_dataset(
    dataset: Dataset, directory: Path | str, *, suffix: str = ".parquet", report: Report = silent
) -> None:
    """Write `pose/train`, `pose/test` and `gt`, with the anomaly classes in `gt/classes.csv`.

    Validation clips become a nested data set `validation` without training clips. Each clip is a
    pose file `<clip><suffix>`, which ends in `.parquet` or `.json`.
    """
    directory = Path(directory)
    _write_test(dataset, directory, suffix, report)
    if dataset.validation is not None:
        _write_test(dataset.validation(), directory / "validation", suffix, report)
    _write_clips(dataset.train_clips(), directory / "pose" / "train", suffix, report)


def _write_test(dataset: Dataset, directory: Path, suffix: str, report: Report) -> None:
    clips = (clip for clip, _ in dataset.test_clips())
    _write_clips(clips, directory / "pose" / "test", suffix, report)
    masks = directory / "gt" / "test_frame_mask"
    masks.mkdir(parents=True, exist_ok=True)
    for name, labels in dataset.labels.items():
        np.save(masks / f"{name}.npy", labels.abnormal.astype(np.uint8))
    write_classes(dataset.labels, directory / "gt" / "classes.csv")


def _write_clips(clips: Iterator[Clip], directory: Path, suffix: str, report: Report) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, clip in enumerate(clips, start=1):
        formats.write_clip(clip, directory / f"{formats.file_stem(clip.name)}{suffix}")
        report(Progress("writing", number, 0, clip.name))
