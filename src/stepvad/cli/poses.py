"""Pose files as the verbs read them: a bar, the notes of the readers, a look at the axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepvad.cli.terminal import notes_of, say
from stepvad.errors import DataError
from stepvad.progress import Progress, Report

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stepvad.poses import Clip

FormatName = Literal["auto", "alphapose", "poselift", "coco", "tracks"]
Format = Annotated[FormatName, typer.Option("--format", help="Layout of the pose files.")]
Poses = Annotated[list[Path], typer.Argument(help="Pose files, or directories of them.")]
PoseFile = Annotated[Path, typer.Argument(help="A pose file with one clip.")]
Labels = Annotated[
    Path | None,
    typer.Option(help="The truth: a mask of the clip as .npy (1 = abnormal), or its data set."),
]
TrainingPoses = Annotated[
    list[Path],
    typer.Argument(help="Pose files, directories of them, or data sets for their training clips."),
]

UPRIGHT = 0.85
"""Share of poses with the ankles below the nose that footage of people has; swapped, it is 0.5."""


def read_poses(
    paths: Sequence[Path],
    format: FormatName,
    report: Report,
    *,
    fps: float | None = None,
    distinct: bool = False,
) -> Iterator[Clip]:
    """The clips of all files and directories given, with a bar over the files.

    `distinct` refuses two clips of one name.
    """
    from stepvad.formats import clip_files, read_clips

    files = [file for path in paths for file in clip_files(path, format=format)]

    def clips() -> Iterator[Clip]:
        names: set[str] = set()
        for number, file in enumerate(files, start=1):
            for clip in read_clips(file, format=format, fps=fps):
                if distinct and clip.name in names:
                    raise DataError(
                        f"{file}: expected distinct clips, got {clip.name} twice",
                        hint="rename one, or give one of the two",
                    )
                names.add(clip.name)
                yield clip
            report(Progress("reading", number, len(files), file.name))

    return _looked_at(clips())


def read_clip(path: Path, format: FormatName, report: Report) -> Clip:
    """The one clip of a file, with somebody in it."""
    clips = list(read_poses([path], format, report))
    if len(clips) != 1:
        raise DataError(
            f"{path}: expected one clip, got {len(clips)}",
            hint="write each into a file of its own with: stepvad convert",
        )
    if clips[0].n_poses == 0:
        raise DataError(
            f"{path}: expected at least one track, got none", hint="choose a clip with people in it"
        )
    return clips[0]


def read_truth(path: Path, clip: Clip) -> NDArray[np.bool_]:
    """Which frames of a clip are abnormal."""
    from stepvad.benchmark.datasets import open_dataset
    from stepvad.formats import labels

    if path.is_file():
        return labels.of_file(path).abnormal
    found = labels.find(open_dataset(path).labels, clip.name)
    if found is None:
        raise DataError(
            f"{path}: expected labels of clip {clip.name}, got none",
            hint="give the data set of the clip, or its mask as .npy",
        )
    return found.abnormal


def read_training_poses(
    paths: Sequence[Path], format: FormatName, report: Report
) -> Iterator[Clip]:
    """The clips to fit on: the training clips of data sets, and all clips of other paths."""
    from stepvad.benchmark.datasets import is_dataset, open_dataset

    roots = [path for path in paths if format == "auto" and is_dataset(path)]
    datasets = [open_dataset(root) for root in roots]
    clips = (clip for dataset in datasets for clip in dataset.train_clips())
    for number, clip in enumerate(_looked_at(clips), start=1):
        yield clip
        report(Progress("reading", number, 0, clip.name))
    yield from read_poses([path for path in paths if path not in roots], format, report)


def _looked_at(clips: Iterator[Clip]) -> Iterator[Clip]:
    """The same clips, with the readers' notes and a warning if people do not stand upright."""
    n_poses = n_upright = 0
    with notes_of("stepvad.formats", once=True):
        for clip in clips:
            upright = clip.n_upright()
            if upright is not None:
                n_poses, n_upright = n_poses + clip.n_poses, n_upright + upright
            yield clip
    if n_upright < UPRIGHT * n_poses:
        say(
            f"warning: only {n_upright:,} of {n_poses:,} poses have their ankles below the nose; "
            "if people should stand upright, x and y may be swapped (--format poselift swaps them)"
        )
