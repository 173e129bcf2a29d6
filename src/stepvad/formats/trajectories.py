"""Trajectories of people: a directory per clip, a CSV file per person, a line per pose.

A line holds the frame and x, y of COCO's 17 joints in pixels, without confidence. A joint that was
not found is at (0, 0).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.formats.reading import check_frames, children, located, read_bytes, unreadable
from stepvad.poses import Clip, Track, n_frames_of
from stepvad.skeletons import COCO17

MAX_BYTES = 1 << 25
"""Size of a person's file: about an hour of poses."""


def read(directory: Path, *, fps: float) -> Iterator[Clip]:
    """Yield the clips `<directory>/<clip>/<person>.csv`, sorted by name."""
    for name in clip_names(directory):
        yield read_clip(directory / name, fps=fps)


def clip_names(directory: Path) -> list[str]:
    """Names of the clips in a directory, sorted."""
    try:
        names = sorted(entry.name for entry in directory.iterdir() if entry.is_dir())
    except OSError as error:
        raise unreadable(directory, error) from error
    return [name for name in names if not name.startswith(".")]


def read_clip(directory: Path, *, fps: float) -> Clip:
    """One clip; it ends with its last pose."""
    people = [_person(path) for path in children(directory, suffixes=(".csv",))]
    tracks = sorted((track for track in people if len(track)), key=lambda track: track.id)
    with located(str(directory)):
        check_frames(n_frames_of(tracks), sum(map(len, tracks)))
        return Clip(directory.name, fps, n_frames_of(tracks), tuple(tracks), COCO17)


def track_of(track_id: int, frames: NDArray[Any], keypoints: NDArray[np.float32]) -> Track:
    """A person's poses `(n, 17, 2)`, sorted by frame.

    A joint at (0, 0) has confidence 0, any other 1. Poses without any joint are dropped; of several
    poses in a frame the first is kept.
    """
    # joints that were found, (n, 17), then the first pose of each frame that has any
    found = (keypoints != 0).any(axis=-1)  # NaN is not 0, and Track refuses it
    seen = np.flatnonzero(found.any(axis=1))
    rows = seen[np.unique(frames[seen], return_index=True)[1]]
    confidence = found[rows].astype(np.float32)
    return Track(track_id, frames[rows], keypoints[rows], confidence)


def _person(path: Path) -> Track:
    if not (path.stem.isascii() and path.stem.isdecimal()):
        raise DataError(
            f"{path}: expected the number of a person as the file's name, got {path.stem!r}",
            hint="name the file <person>.csv, such as 0007.csv",
        )
    # frame numbers (n,) and joints (n, 17, 2)
    lines = _lines(path)
    keypoints = lines[:, 1:].reshape(-1, COCO17.V, 2)
    with located(str(path)), np.errstate(over="ignore"):  # infinity is refused by Track
        return track_of(int(path.stem), lines[:, 0], keypoints.astype(np.float32))


def _lines(path: Path) -> NDArray[np.float64]:
    """The numbers of a file, `(n, 35)`."""
    n_columns = 1 + 2 * COCO17.V
    text = read_bytes(path, most=MAX_BYTES).decode("ascii", errors="replace")
    if not text.strip():
        return np.empty((0, n_columns))
    try:
        lines = np.loadtxt(io.StringIO(text), delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        raise _unlike(path, str(error)) from error
    if lines.shape[1] != n_columns:
        raise _unlike(path, f"{lines.shape[1]} numbers")
    return lines


def _unlike(path: Path, got: str) -> DataError:
    return DataError(
        f"{path}: expected lines of frame and x, y of {COCO17.V} joints, got {got}",
        hint="write a line of 35 numbers per pose, separated by commas",
    )
