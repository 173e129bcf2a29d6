"""The mocap data set: training, validation and test clips, in two splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from stepvad.errors import ConfigError, Progress, Report, silent
from stepvad.evaluation.datasets import Dataset, of_clips
from stepvad.poses import Clip
from studies.mocap import motions, takes
from studies.mocap.cameras import PinholeCamera, camera_of_scene
from studies.mocap.catalogue import Half, MotionKind
from studies.mocap.scenes import MocapScene, make_scene
from studies.mocap.takes import TakeSplit

MocapSplit = Literal[1, 2]
Part = Literal["train", "validation", "test"]

HALVES: Mapping[MocapSplit, Mapping[Part, Half]] = {
    1: {"train": "b", "validation": "validation", "test": "a"},
    2: {"train": "a", "validation": "validation", "test": "b"},
}
"""Half of the collection shown in each part of a split."""
CAMERAS = 12
"""Number of scenes; all parts of a data set share them, like the cameras of a real site."""
CALM = 8
"""One in this many test clips shows no anomaly."""
SECOND_EVENT = 0.25
"""Probability of a second event in a clip with an event."""


@dataclass(frozen=True, slots=True)
class Size:
    """Number of clips in each part, and their length."""

    train: int
    validation: int
    test: int
    seconds: float = 20.0


FULL = Size(train=340, validation=60, test=168)
SMALL = Size(train=12, validation=4, test=9, seconds=8.0)
SIZES: Mapping[str, Size] = {"full": FULL, "small": SMALL}


def make(
    *,
    split: MocapSplit,
    seed: int = 0,
    size: Size = FULL,
    archive: Path | None = None,
    report: Report = silent,
) -> Dataset:
    """Create the data set of a split, with validation clips; reproducible byte for byte.

    Test and validation clips are generated immediately and kept in memory, training clips each
    time they are read.
    """
    if split not in HALVES:
        raise ConfigError(f"split: expected 1 or 2, got {split!r}")
    opened = motions.open_archive(archive)
    casts = {
        part: takes.split_takes(opened, half, abnormal=part != "train")
        for part, half in HALVES[split].items()
    }
    scenes = partial(make_scenes, seed=seed, split=split, size=size, report=report)

    def train() -> Iterator[Clip]:
        return (scene.clip for scene in scenes(casts["train"], "train"))

    test, validation = (
        [(scene.clip, scene.labels) for scene in scenes(casts[part], part)]
        for part in ("test", "validation")
    )
    name = f"mocap split {split}"
    return of_clips(
        name,
        train=train,
        test=test,
        validation=of_clips(f"{name} validation", train=train, test=validation),
    )


def make_scenes(
    take_split: TakeSplit,
    part: Part,
    *,
    seed: int,
    split: MocapSplit,
    size: Size,
    report: Report = silent,
) -> Iterator[MocapScene]:
    """Yield the scenes of one part by name; a scene does not depend on the number of scenes."""
    n_scenes = {"train": size.train, "validation": size.validation, "test": size.test}[part]
    parts: tuple[Part, ...] = ("train", "validation", "test")
    by_name = sorted(range(n_scenes), key=lambda number: number % CAMERAS)
    for done, number in enumerate(by_name, start=1):
        camera = camera_of(seed, number % CAMERAS)
        rng = np.random.default_rng([seed, split, parts.index(part), number])
        name = f"{number % CAMERAS + 1:02d}_{1000 * parts.index(part) + number + 1:04d}"
        kinds = _kinds(rng, take_split, number)
        yield make_scene(rng, camera, take_split, kinds, name=name, seconds=size.seconds)
        report(Progress(f"{part} clips", done, n_scenes, name))


def camera_of(seed: int, scene: int) -> PinholeCamera:
    """The camera of a scene, the same in all parts and splits."""
    return camera_of_scene(np.random.default_rng([seed, scene]))


def _kinds(rng: np.random.Generator, take_split: TakeSplit, number: int) -> tuple[MotionKind, ...]:
    """Anomaly classes of a clip: each class in turn, sometimes with a second one."""
    listed = list(take_split.abnormal)
    if not listed or number % CALM == CALM - 1:
        return ()
    turn = listed[(number - number // CALM) % len(listed)]
    other = listed[rng.integers(len(listed))]
    return (turn, other) if rng.random() < SECOND_EVENT and other != turn else (turn,)
