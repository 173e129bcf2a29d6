"""Record the poses of cameras as files for `fit` and `calibrate`."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import StepvadError, os_reason
from stepvad.files.atomic import remove_leftovers
from stepvad.formats import write_clip
from stepvad.poses import Clip, Pose, tracks_of
from stepvad.skeletons import COCO17, Skeleton

logger = logging.getLogger(__name__)

RECORDINGS = "poses"
"""Directory of recorded poses in the data directory, with one subdirectory per camera."""
PART_S = 120.0
"""Seconds of footage per file, the most that a crash loses."""
FIRST_PART_S = 15.0
"""Seconds per file of a camera without a model, which waits for its first footage."""
FREE_MB = 8.0
"""Free space below which recordings are deleted: room for the store's log and some poses."""
MOST_FILES = 10
"""Maximum number of files deleted per call."""
DAY_S = 86400.0

_File = tuple[float, int, Path]
"""Modification time, size and path."""
Row = tuple[int, int, NDArray[np.float32], NDArray[np.float32]]


class Recorder:
    """Collects the poses of one camera into files; tracks do not continue across files."""

    def __init__(
        self,
        directory: Path,
        camera: str,
        rate: float,
        skeleton: Skeleton = COCO17,
        *,
        part_s: float = PART_S,
    ) -> None:
        self._directory = directory / camera
        self._camera, self._rate, self._skeleton = camera, rate, skeleton
        self._part = round(part_s * rate)
        self._rows: list[Row] = []
        self._first: tuple[int, float] | None = None
        self._last = 0

    def add(self, slot: int, wall: float, poses: Sequence[Pose]) -> Clip | None:
        """Add a slot; return a clip when one is complete."""
        done = None
        if self._first is not None and not 0 <= slot - self._first[0] < self._part:
            done = self.finish()
        if self._first is None:
            self._first = slot, wall
        at = slot - self._first[0]
        self._last = at
        self._rows += [(pose.track_id, at, pose.keypoints, pose.confidence) for pose in poses]
        return done

    def finish(self) -> Clip | None:
        """The poses so far as a clip; None if no person was seen."""
        rows, first = self._rows, self._first
        self._rows, self._first = [], None
        if first is None or not rows:
            return None
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        tracks = tracks_of(columns[0], columns[1], columns[2], columns[3])
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(first[1]))
        name = f"{self._camera}-{stamp}-{int(first[1] % 1 * 1000):03}"
        return Clip(name, self._rate, self._last + 1, tracks, self._skeleton)

    def write(self, clip: Clip) -> None:
        """Write a clip; if the disk is full, delete the oldest files and retry once."""
        try:
            self._write(clip)
        except (StepvadError, OSError) as error:
            if not ran_out_of_space(error) or not make_room(self._directory.parent.glob("*/")):
                raise
            self._write(clip)

    def _write(self, clip: Clip) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._directory / f"{clip.name}.parquet"
        write_clip(clip, path)


def retain(
    directory: Path, *, days: float, most_mb: float, now: float, stamp: float | None = None
) -> int:
    """Delete expired files, then the oldest until the size limit is met; return how many.

    `now` is the wall-clock time, by which files are stamped, and `stamp` the store's. Files with
    the stamp of a clock that is slow, or was ahead, are as old as this moment.
    """
    time = now if stamp is None else stamp
    for written, _, path in _files(directory.glob("*/")):
        if written > time + DAY_S or (now < time - DAY_S and abs(written - now) <= DAY_S):
            with suppress(OSError):
                os.utime(path, (time, time))
    files = _files(directory.glob("*/"))
    kept = [file for file in files if file[0] >= time - days * DAY_S]
    total = sum(size for _, size, _ in kept)
    gone = files[: len(files) - len(kept)]
    while kept and total > most_mb * 1e6:
        gone.append(kept.pop(0))
        total -= gone[-1][1]
    for _, _, path in gone:
        with suppress(OSError):
            path.unlink()
    for place in directory.glob("*/"):
        remove_leftovers(place)
    return len(gone)


def make_room(
    directories: Iterable[Path], free_mb: float = FREE_MB, *, most: int = MOST_FILES
) -> list[Path]:
    """Delete the oldest recorded files until `free_mb` is free, at most `most` per call.

    Nothing is deleted while that much can be written next to the files, whatever error the caller
    saw. Disk errors never raise. Returns the deleted files.
    """
    deleted: list[Path] = []
    for _, _, path in _files(directories)[:most]:
        if not is_short(path.parent, free_mb):
            break
        try:
            path.unlink()
        except OSError as error:
            logger.warning("recorded poses %s cannot be deleted: %s", path.name, os_reason(error))
            continue
        logger.warning("disk full: recorded poses %s deleted to make room", path.name)
        deleted.append(path)
    return deleted


def is_short(directory: Path, free_mb: float) -> bool:
    """Whether the disk or a quota leaves less than `free_mb` in a directory."""
    size = int(free_mb * 1e6)
    try:
        if shutil.disk_usage(directory).free < size:
            return True
        with tempfile.TemporaryFile(dir=directory) as file:
            os.posix_fallocate(file.fileno(), 0, size)  # quotas are enforced only on allocation
    except OSError as error:
        return ran_out_of_space(error)
    return False


def ran_out_of_space(error: BaseException) -> bool:
    """Whether an error was caused by a full disk or a quota."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        cause = cause.__cause__
    return False


def _files(directories: Iterable[Path]) -> list[_File]:
    """Time, size and path of recorded files, oldest first."""
    found = []
    for directory in directories:
        for path in directory.glob("*.parquet"):
            with suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
    return sorted(found)
