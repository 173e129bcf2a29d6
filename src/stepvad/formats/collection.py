"""Read the clips of many pose files, with progress reports and a check for swapped axes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from stepvad.errors import DataError
from stepvad.formats import Format, clip_files, read_clips
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent

logger = logging.getLogger(__name__)

UPRIGHT = 0.85
"""Expected share of poses with the ankles below the nose; about 0.5 if x and y are swapped."""


def read_all(
    paths: Sequence[Path],
    *,
    format: Format = "auto",
    fps: float | None = None,
    distinct: bool = False,
    report: Report = silent,
) -> Iterator[Clip]:
    """Yield the clips of all given files and directories.

    An unreadable path raises immediately. `distinct` rejects two clips with the same name.
    """
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

    return checked_axes(clips())


def read_people(path: Path, *, format: Format = "auto", report: Report = silent) -> Clip:
    """The only clip of a file; it must contain at least one pose."""
    clips = list(read_all([path], format=format, report=report))
    if len(clips) != 1:
        raise DataError(
            f"{path}: expected one clip, got {len(clips)}",
            hint="write one file per clip with: stepvad convert",
        )
    if clips[0].n_poses == 0:
        raise DataError(
            f"{path}: expected at least one track, got none", hint="choose a clip with people in it"
        )
    return clips[0]


def checked_axes(clips: Iterable[Clip]) -> Iterator[Clip]:
    """Pass clips through, and log a warning after the last if most people are not upright."""
    n_poses = n_upright = 0
    for clip in clips:
        upright = clip.n_upright()
        if upright is not None:
            n_poses, n_upright = n_poses + clip.n_poses, n_upright + upright
        yield clip
    if n_upright < UPRIGHT * n_poses:
        logger.warning(
            "only %s of %s poses have their ankles below the nose; if people should stand upright, "
            "x and y may be swapped (--format poselift swaps them)",
            f"{n_upright:,}",
            f"{n_poses:,}",
        )
