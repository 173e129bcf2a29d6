"""Read pose files for the commands: options, a progress bar, and log messages on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepvad.cli.terminal import notes_of
from stepvad.progress import Report

if TYPE_CHECKING:
    from stepvad.poses import Clip

FormatName = Literal["auto", "alphapose", "poselift", "coco", "openpose", "ultralytics", "tracks"]
FormatOption = Annotated[FormatName, typer.Option("--format", help="Format of the pose files.")]
PosesArgument = Annotated[
    list[Path], typer.Argument(help="Pose files, or directories of pose files.")
]
PoseFile = Annotated[Path, typer.Argument(help="A pose file with one clip.")]
LabelsOption = Annotated[
    Path | None,
    typer.Option(help="Ground truth: a mask of the clip as .npy (1 = abnormal), or its data set."),
]
TrainingPoses = Annotated[
    list[Path],
    typer.Argument(
        help="Pose files, directories of them, or data sets, whose training clips are used."
    ),
]


def read_poses(
    paths: Sequence[Path],
    format: FormatName,
    report: Report,
    *,
    fps: float | None = None,
    distinct: bool = False,
) -> Iterator[Clip]:
    """Yield the clips of all given files and directories; `distinct` rejects duplicate names."""
    from stepvad.formats.collection import read_all

    return _noted(read_all(paths, format=format, fps=fps, distinct=distinct, report=report))


def read_clip(path: Path, format: FormatName, report: Report) -> Clip:
    """The only clip of a file; it must contain at least one pose."""
    from stepvad.formats.collection import read_people

    with notes_of("stepvad.formats", once=True):
        return read_people(path, format=format, report=report)


def read_training_poses(
    paths: Sequence[Path], format: FormatName, report: Report, *, fps: float | None = None
) -> Iterator[Clip]:
    """Yield the clips to fit on: the training clips of data sets, and all clips of other paths."""
    from stepvad.evaluation.footage import read_training

    clips = _noted(read_training(paths, format=format, report=report))
    return (clip.with_rate(fps) for clip in clips)


def _noted(clips: Iterator[Clip]) -> Iterator[Clip]:
    """Pass clips through; log messages of the readers go to stderr."""
    with notes_of("stepvad.formats", once=True), notes_of("stepvad.windows"):
        yield from clips
