"""Training clips and ground truth, from data sets or plain files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.datasets import is_dataset, open_dataset
from stepvad.formats import Format, checked_axes, labels, read_all
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent


def read_training(
    paths: Sequence[Path], *, format: Format = "auto", report: Report = silent
) -> Iterator[Clip]:
    """Yield the clips to fit on: the training clips of data sets, and all clips of other paths."""
    roots = [path for path in paths if format == "auto" and is_dataset(path)]
    datasets = [open_dataset(root) for root in roots]
    clips = (clip for dataset in datasets for clip in dataset.train_clips())
    for number, clip in enumerate(checked_axes(clips), start=1):
        yield clip
        report(Progress("reading", number, 0, clip.name))
    others = [path for path in paths if path not in roots]
    yield from read_all(others, format=format, report=report)


def read_truth(path: Path, clip: Clip) -> NDArray[np.bool_]:
    """Which frames of a clip are abnormal; `path` is its mask or its data set."""
    if path.is_file() and not is_dataset(path):
        return labels.of_file(path).abnormal
    found = labels.find(open_dataset(path).labels, clip.name)
    if found is None:
        raise DataError(
            f"{path}: expected labels of clip {clip.name}, got none",
            hint="give the data set of the clip, or its mask as .npy",
        )
    return found.abnormal
