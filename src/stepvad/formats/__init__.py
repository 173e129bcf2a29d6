"""Pose files become clips, clips become pose files: AlphaPose, PoseLift, COCO, our own tracks.

What a file may hold is told in the documentation, under Reference, File formats.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from stepvad.errors import ConfigError, DataError
from stepvad.formats import alphapose, coco, files, jsonfile, tracks
from stepvad.poses import Clip

Format = Literal["auto", "alphapose", "poselift", "coco", "tracks"]
"""`auto` goes by what a file is: Parquet holds tracks, a JSON list COCO, an object AlphaPose."""

__all__ = [
    "Format",
    "clip_files",
    "file_stem",
    "read_clip",
    "read_clips",
    "write_clip",
    "write_clips",
]


def read_clips(
    path: str | Path, *, format: Format = "auto", fps: float | None = None
) -> Iterator[Clip]:
    """The clips of a file or of all files in a directory, sorted by file name, one at a time.

    A path that cannot be read is reported at once, a file that breaks its format when its turn
    comes. Clip names must be distinct.

    Args:
        format: What the files hold, where `auto` would guess wrong.
        fps: The frame rate where the file does not tell it; wins where it does.

    Raises:
        DataError: With the file, the track and the frame, what was expected and what was found.
        MissingExtraError: For Parquet, where pyarrow is not installed.
    """
    return _distinct(
        clip for file in clip_files(path, format=format) for clip in _read_file(file, format, fps)
    )


def read_clip(path: str | Path, *, format: Format = "auto", fps: float | None = None) -> Clip:
    """The only clip of a file; arguments and errors are those of `read_clips`."""
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

    Tracks keep everything. AlphaPose has no room for name, rate, length and joint names: reading
    it back takes the name from the file and the length from the last pose.
    """
    path = Path(path)
    match path.suffix.lower():
        case ".parquet":
            tracks.write([clip], path)
        case ".json":
            alphapose.write(clip, path)
        case suffix:
            raise DataError(
                f"{path}: expected a name that ends in .parquet or .json, got {suffix or 'none'}",
                hint="choose the suffix of the format to write",
            )


def write_clips(clips: Iterable[Clip], path: str | Path) -> None:
    """Write many clips into one `.parquet` file, or one file each into a directory.

    Clips are taken as they come, so a generator need not fit in memory; each file appears whole
    or not at all. A directory is made if need be, and holds one `<clip>.parquet` for each clip.
    """
    path = Path(path)
    if path.suffix.lower() == ".parquet":
        tracks.write(clips, path)
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{path}: expected a .parquet file or a directory, got: {error.strerror}",
            hint="choose a path that is free",
        ) from error
    for clip in _distinct(clips):
        tracks.write([clip], path / f"{file_stem(clip.name)}.parquet")


def clip_files(path: str | Path, *, format: Format = "auto") -> list[Path]:
    """The files that `read_clips` would read, in its order: what a progress bar counts.

    Of a directory, these are its own files with a known suffix, without hidden ones.
    """
    path = Path(path)
    match format:
        case "auto":
            suffixes: tuple[str, ...] = (".json", ".parquet")
        case "alphapose" | "poselift" | "coco":
            suffixes = (".json",)
        case "tracks":
            suffixes = (".parquet",)
        case _:
            raise ConfigError(
                f"format: expected auto, alphapose, poselift, coco or tracks, got {format!r}"
            )
    try:
        is_directory = stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        raise files.unreadable(path, error) from error
    if not is_directory:
        return [path]
    found = files.children(path, suffixes=suffixes)
    if not found:
        raise DataError(
            f"{path}: expected files that end in {' or '.join(suffixes)}, got none",
            hint="give the directory that holds the pose files themselves",
        )
    return found


def _read_file(path: Path, format: Format, fps: float | None) -> Iterator[Clip]:
    """The clips of one file: of JSON always one, of Parquet any number."""
    if format == "tracks" or (format == "auto" and path.suffix.lower() == ".parquet"):
        yield from tracks.read(path, fps=fps)
        return
    if format == "auto" and path.suffix.lower() != ".json":
        raise DataError(
            f"{path}: expected a file that ends in .json or .parquet, got {path.suffix or 'none'}",
            hint="say which format it is",
        )
    document = jsonfile.load(path)
    try:
        match format:
            case "coco":
                yield coco.parse(document, path, fps=fps)
            case "auto" if isinstance(document, list):
                yield coco.parse(document, path, fps=fps)
            case "auto" | "alphapose" | "poselift":
                yield alphapose.parse(document, path, layout=format, fps=fps)
    except DataError as error:
        raise error.located(str(path)) from error


def _distinct(clips: Iterable[Clip]) -> Iterator[Clip]:
    """The same clips, up to the first whose name has been seen before."""
    seen: set[str] = set()
    for clip in clips:
        if clip.name in seen:
            raise DataError(
                f"clip {clip.name!r}: expected distinct clip names, got it twice",
                hint="rename one, or keep one of the two",
            )
        seen.add(clip.name)
        yield clip


def file_stem(clip_name: str) -> str:
    """A clip's name if it can name a file, wherever it came from."""
    if clip_name.strip(". ") == "" or any(mark in clip_name for mark in "/\\\0:"):
        raise DataError(
            f"clip {clip_name!r}: expected a name that can be a file name",
            hint="rename the clip, or write all clips into one file",
        )
    return clip_name
