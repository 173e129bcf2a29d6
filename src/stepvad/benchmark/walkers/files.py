"""Walkers as a data set on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepvad.benchmark.walkers.scenes import make_clips
from stepvad.formats import alphapose, classes
from stepvad.formats.labels import FrameLabels
from stepvad.progress import Progress, Report, silent


def write_dataset(
    directory: Path | str,
    *,
    seed: int,
    train_clips: int,
    test_clips: int,
    seconds: float = 12.0,
    people: int = 4,
    report: Report = silent,
) -> None:
    """A data set in ShanghaiTech's layout: `pose/train`, `pose/test` and `gt/test_frame_mask`.

    `gt/classes.csv` says which anomaly is which.
    """
    root = Path(directory)
    masks = root / "gt" / "test_frame_mask"
    for folder in (root / "pose" / "train", root / "pose" / "test", masks):
        folder.mkdir(parents=True, exist_ok=True)
    labels: dict[str, FrameLabels] = {}
    for split, n_clips in (("train", train_clips), ("test", test_clips)):
        clips = make_clips(
            n_clips, seed=seed, seconds=seconds, people=people, anomalies=split == "test"
        )
        for number, (clip, truth) in enumerate(clips, start=1):
            file = root / "pose" / split / f"{clip.name}_alphapose_tracked_person.json"
            alphapose.write(clip, file)
            if split == "test":
                np.save(masks / f"{clip.name}.npy", truth.abnormal.astype(np.uint8))
                labels[clip.name] = truth
            report(Progress(f"{split} clips", number, n_clips, clip.name))
    classes.write(labels, root / "gt" / "classes.csv")
