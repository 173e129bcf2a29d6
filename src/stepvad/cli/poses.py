"""Pose files as the verbs read them: a bar, the notes of the readers, a look at the axes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from stepvad.cli.terminal import say
from stepvad.errors import DataError
from stepvad.progress import Progress, Report

if TYPE_CHECKING:
    from stepvad.poses import Clip

FormatName = Literal["auto", "alphapose", "poselift", "coco", "tracks"]
Format = Annotated[FormatName, typer.Option("--format", help="Layout of the pose files.")]
Poses = Annotated[list[Path], typer.Argument(help="Pose files, or directories of them.")]

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
    names: set[str] = set()
    n_poses = n_upright = 0
    with _readers_notes():
        for number, file in enumerate(files, start=1):
            for clip in read_clips(file, format=format, fps=fps):
                if distinct and clip.name in names:
                    raise DataError(
                        f"{file}: expected distinct clips, got {clip.name} twice",
                        hint="rename one, or give one of the two",
                    )
                names.add(clip.name)
                upright = clip.n_upright()
                if upright is not None:
                    n_poses, n_upright = n_poses + clip.n_poses, n_upright + upright
                yield clip
            report(Progress("reading", number, len(files), file.name))
    if n_upright < UPRIGHT * n_poses:
        say(
            f"warning: only {n_upright:,} of {n_poses:,} poses have their ankles below the nose; "
            "if people should stand upright, x and y may be swapped (--format poselift swaps them)"
        )


@contextmanager
def _readers_notes() -> Iterator[None]:
    """What the readers notice goes to stderr, each thing once."""
    logger = logging.getLogger("stepvad.formats")
    handler = logging.StreamHandler()
    handler.addFilter(_Once())
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Once(logging.Filter):
    """Lets each kind of message through once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this message's wording is new."""
        new = str(record.msg) not in self._seen
        self._seen.add(str(record.msg))
        return new
