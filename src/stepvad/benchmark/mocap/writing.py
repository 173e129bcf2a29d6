"""The mocap data set on disk, in ShanghaiTech's layout, with a list of its events."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad import formats
from stepvad.benchmark.datasets import Dataset
from stepvad.benchmark.mocap.dataset import Mocap
from stepvad.benchmark.mocap.truth import stretches
from stepvad.poses import Clip

EVENTS_FILE = "events.csv"
"""Beside the masks: one line per event, its clip, first and last frame, and class."""


def write_dataset(mocap: Mocap, directory: Path) -> None:
    """Write `pose/train`, `pose/test` and `gt`, and the same of the validation clips below it.

    Poses are Parquet tracks. `DIR/validation` has no training clips of its own.
    """
    _write_test(mocap.dataset, mocap.classes, directory)
    _write_test(mocap.validation, mocap.classes, directory / "validation")
    formats.write_clips(mocap.dataset.train_clips(), directory / "pose" / "train")


def read_events(directory: Path) -> dict[str, list[tuple[int, int, str]]]:
    """First frame, last frame and class of every event, by clip; nothing without a list."""
    path = directory / "gt" / EVENTS_FILE
    events: dict[str, list[tuple[int, int, str]]] = {}
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                event = (int(row["first"]), int(row["last"]), row["class"])
                events.setdefault(row["clip"], []).append(event)
    return events


def _write_test(dataset: Dataset, classes: Mapping[str, NDArray[np.str_]], directory: Path) -> None:
    masks = directory / "gt" / "test_frame_mask"
    masks.mkdir(parents=True, exist_ok=True)
    clips: list[Clip] = []
    for clip, labels in dataset.test_clips():
        np.save(masks / f"{clip.name}.npy", labels.abnormal.astype(np.uint8))
        clips.append(clip)
    formats.write_clips(clips, directory / "pose" / "test")
    with (directory / "gt" / EVENTS_FILE).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("clip", "first", "last", "class"))
        for clip in clips:
            writer.writerows(_events(clip.name, classes[clip.name]))


def _events(name: str, classes: NDArray[np.str_]) -> Iterator[tuple[str, int, int, str]]:
    kinds = np.unique(classes[classes != ""]).tolist()
    found = [(first, end - 1, kind) for kind in kinds for first, end in stretches(classes == kind)]
    yield from ((name, *event) for event in sorted(found))
