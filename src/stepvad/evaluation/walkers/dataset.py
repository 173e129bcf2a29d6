"""Walkers as a data set, in memory or on disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from stepvad.evaluation import writing
from stepvad.evaluation.datasets import Dataset, of_clips
from stepvad.evaluation.walkers.scenes import make_clips
from stepvad.poses import Clip
from stepvad.progress import Report, silent

SUFFIX = "_alphapose_tracked_person.json"
"""Suffix of ShanghaiTech's pose files after the name of the clip."""


def make(
    *, seed: int, train_clips: int, test_clips: int, seconds: float = 12.0, people: int = 4
) -> Dataset:
    """Create a data set of walkers; reproducible byte for byte.

    Test clips are generated immediately and kept in memory, training clips each time they are
    read.
    """
    clips = partial(make_clips, seed=seed, seconds=seconds, people=people)
    return of_clips(
        f"walkers of seed {seed}",
        train=lambda: sorted((clip for clip, _ in clips(train_clips)), key=_name),
        test=clips(test_clips, anomalies=True),
    )


def write_dataset(
    directory: Path | str,
    *,
    seed: int,
    train_clips: int,
    test_clips: int,
    seconds: float = 12.0,
    report: Report = silent,
) -> None:
    """Write the data set of `make` in ShanghaiTech's layout, with poses in AlphaPose's format."""
    dataset = make(seed=seed, train_clips=train_clips, test_clips=test_clips, seconds=seconds)
    writing.write_dataset(dataset, directory, suffix=SUFFIX, report=report)


def _name(clip: Clip) -> str:
    return clip.name
