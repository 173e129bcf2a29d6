"""Read and write pose files; `FORMATS` is the one table of their formats.

The formats are documented under Reference, File formats. Readers are imported when a file is read:
the commands import this package for the names of the formats alone.
"""

from __future__ import annotations

import logging
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from stepvad.errors import ConfigError, DataError, Progress, Report, os_reason, silent
from stepvad.formats.reading import FileFormat, PoseFile, children, unreadable

if TYPE_CHECKING:  # brings numpy, which `stepvad --help` does not need
    from stepvad.poses import Clip

logger = logging.getLogger(__name__)

UPRIGHT = 0.85
"""Expected share of poses with the ankles below the nose; about 0.5 if x and y are swapped."""

FORMATS = {
    "tracks": "stepvad.formats.tracks:TRACKS",
    "openpose": "stepvad.formats.json_poses:OPENPOSE",
    "ultralytics": "stepvad.formats.json_poses:ULTRALYTICS",
    "coco": "stepvad.formats.json_poses:COCO",
    "poselift": "stepvad.formats.json_poses:POSELIFT",
    "alphapose": "stepvad.formats.json_poses:ALPHAPOSE",
}
"""The `FileFormat` of each name, in the order in which `auto` tries them."""


def read_clips(
    path: str | Path, *, format: str = "auto", fps: float | None = None
) -> Iterator[Clip]:
    """Yield the clips of a file, or of all files in a directory sorted by file name.

    An unreadable path raises immediately, a malformed file when it is read. Clip names must be
    distinct.

    Args:
        format: Format of the files, for when `auto` would guess wrong.
        fps: Frame rate; overrides the rate stored in the file, if any.

    Raises:
        DataError: Names the file, track and frame, and what was expected and found there.
        MissingExtraError: For Parquet files if pyarrow is not installed.

    Examples:
        >>> write_clips([clip], "poses")
        >>> [one.name for one in read_clips("poses")] == [clip.name]
        True
    """
    return _distinct(
        clip for file in clip_files(path, format=format) for clip in _read_file(file, format, fps)
    )


def read_clip(path: str | Path, *, format: str = "auto", fps: float | None = None) -> Clip:
    """The only clip of a file; same arguments and errors as `read_clips`.

    Examples:
        >>> write_clip(clip, "lobby.json")
        >>> read_clip("lobby.json", fps=25).name
        'lobby'
    """
    clips = read_clips(path, format=format, fps=fps)
    first, second = next(clips, None), next(clips, None)
    if first is None or second is not None:
        raise DataError(
            f"{path}: expected one clip, got {'more' if first else 'none'}",
            hint="read many with read_clips",
        )
    return first


def write_clip(clip: Clip, path: str | Path) -> None:
    """Write a clip as tracks (`.parquet`) or in AlphaPose's layout (`.json`).

    Tracks keep everything. AlphaPose cannot store the name, rate, length or joint names: a reader
    takes the name from the file and the length from the last pose.

    Examples:
        >>> write_clip(clip, "lobby.parquet")
        >>> read_clip("lobby.parquet").n_frames == clip.n_frames
        True
    """
    path = Path(path)
    match path.suffix.lower():
        case ".parquet":
            write_clips([clip], path)
        case ".json":
            from stepvad.formats.json_poses import write_alphapose

            write_alphapose(clip, path)
        case suffix:
            raise DataError(
                f"{path}: expected a name that ends in .parquet or .json, got {suffix or 'none'}",
                hint="choose the suffix of the format to write",
            )


def write_clips(clips: Iterable[Clip], path: str | Path) -> None:
    """Write many clips into one `.parquet` file, or one file each into a directory.

    Clips are consumed one at a time, so a generator need not fit in memory. Each file is written
    atomically. A directory is created if missing and holds one `<clip>.parquet` per clip.

    Examples:
        >>> write_clips(clips, "training.parquet")
        >>> len(list(read_clips("training.parquet"))) == len(clips)
        True
    """
    from stepvad.formats import tracks

    path = Path(path)
    if path.suffix.lower() == ".parquet":
        tracks.write(clips, path)
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{path}: expected a .parquet file or a directory, got: {os_reason(error)}",
            hint="choose a path that is free",
        ) from error
    for clip in _distinct(clips):
        tracks.write([clip], path / f"{file_stem(clip.name)}.parquet")


def clip_files(path: str | Path, *, format: str = "auto") -> list[Path]:
    """The files that `read_clips` would read, in the same order; used for progress bars.

    For a directory, these are its direct files with a known suffix, hidden files excluded, and the
    directories in it that OpenPose wrote; one that OpenPose wrote is itself read as a file.
    """
    path = Path(path)
    rows = _rows(format)
    by_directory = [row for row in rows if row.is_directory]

    def is_clip(directory: Path) -> bool:
        return any(row.sniff(PoseFile(directory)) for row in by_directory)

    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        raise unreadable(path, error) from error
    if not is_directory or is_clip(path):
        return [path]
    # files by their suffix, and directories by what they hold
    suffixes = _file_suffixes(rows)
    found = sorted([*children(path, suffixes=suffixes), *filter(is_clip, path.iterdir())])
    if not found:
        ends = suffixes or by_directory[0].suffixes
        raise DataError(
            f"{path}: expected files that end in {' or '.join(ends)}, got none",
            hint="give the directory that holds the pose files themselves",
        )
    return found


def read_all(
    paths: Sequence[Path],
    *,
    format: str = "auto",
    fps: float | None = None,
    distinct: bool = False,
    report: Report = silent,
) -> Iterator[Clip]:
    """Yield the clips of all given files and directories.

    An unreadable path raises immediately. `distinct` rejects two clips with the same name.
    """
    files = [file for path in paths for file in clip_files(path, format=format)]

    def clips() -> Iterator[Clip]:
        for number, file in enumerate(files, start=1):
            yield from read_clips(file, format=format, fps=fps)
            report(Progress("reading", number, len(files), file.name))

    return warn_if_swapped(_distinct(clips()) if distinct else clips())


def read_people(path: Path, *, format: str = "auto", report: Report = silent) -> Clip:
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


def warn_if_swapped(clips: Iterable[Clip]) -> Iterator[Clip]:
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


def file_stem(clip_name: str) -> str:
    """The clip's name, checked to be a valid file name; names may come from untrusted files."""
    if clip_name.strip(". ") == "" or any(mark in clip_name for mark in "/\\\0:"):
        raise DataError(
            f"clip {clip_name!r}: expected a name that can be a file name",
            hint="rename the clip, or write all clips into one file",
        )
    return clip_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PoseSummary:
    """Counts of frames, people and tracks in a set of clips, and their confidence."""

    clips: int
    frames: int
    frames_with_people: int
    tracks: int
    poses: int
    nan_confidences: int
    longest_track: int
    skeletons: list[str]
    fps: list[float]
    """Distinct known frame rates."""
    mean_confidence: float

    @classmethod
    def from_clips(cls, clips: Iterable[Clip]) -> PoseSummary:
        """Summarise clips one at a time."""
        import numpy as np

        counts = Counter(clips=0, frames=0, frames_with_people=0, tracks=0, poses=0)
        missing = longest = 0
        skeletons: set[str] = set()
        rates: set[float] = set()
        sure = 0.0
        for clip in clips:
            counts.update(
                clips=1, frames=clip.n_frames, tracks=len(clip.tracks), poses=clip.n_poses
            )
            counts["frames_with_people"] += int((clip.persons_per_frame() > 0).sum())
            skeletons.add(clip.skeleton.name)
            rates |= set() if clip.fps is None else {clip.fps}
            for track in clip.tracks:
                longest = max(longest, len(track))
                missing += int(np.isnan(track.confidence).sum())
                # the mean confidence of each pose, a joint without one counting as 0
                sure += float(np.nan_to_num(track.confidence).mean(axis=1).sum())
        return cls(
            **counts,
            nan_confidences=missing,
            longest_track=longest,
            skeletons=sorted(skeletons),
            fps=sorted(rates),
            mean_confidence=sure / max(counts["poses"], 1),
        )


def _rows(format: str) -> list[FileFormat]:
    """The format of this name; all of them for `auto`."""
    if format != "auto" and format not in FORMATS:
        raise ConfigError(
            f"format: expected one of {', '.join(['auto', *FORMATS])}, got {format!r}"
        )
    names = FORMATS if format == "auto" else [format]
    return [resolve_name(FORMATS[name]) for name in names]


def _read_file(path: Path, format: str, fps: float | None) -> Iterator[Clip]:
    """Yield the clips of one file: exactly one from JSON, any number from Parquet."""
    file, rows = PoseFile(path), _rows(format)
    if format == "auto":
        is_directory = path.is_dir()
        for row in rows:
            # the suffix, then what the file holds
            fits = is_directory or path.suffix.lower() in row.suffixes
            if row.is_directory == is_directory and fits and row.sniff(file):
                yield from row.read(file, fps)
                return
        ends = " or ".join(_file_suffixes(rows))
        raise DataError(
            f"{path}: expected a file that ends in {ends}, got {path.suffix or 'none'}",
            hint="name the format",
        )
    yield from rows[0].read(file, fps)


def _file_suffixes(rows: Iterable[FileFormat]) -> tuple[str, ...]:
    """Suffixes of files that are clips by themselves, sorted."""
    return tuple(sorted({end for row in rows if not row.is_directory for end in row.suffixes}))


def _distinct(clips: Iterable[Clip]) -> Iterator[Clip]:
    """Pass clips through; raise at the first repeated name."""
    seen: set[str] = set()
    for clip in clips:
        if clip.name in seen:
            raise DataError(
                f"clip {clip.name!r}: expected distinct clip names, got it twice",
                hint="rename one, or keep one of the two",
            )
        seen.add(clip.name)
        yield clip
