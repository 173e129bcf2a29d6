"""Poses that a camera saw, kept as files that `fit` and `calibrate` read."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.atomic import remove_leftovers
from stepvad.errors import StepvadError
from stepvad.formats import write_clip
from stepvad.poses import Clip, Pose, tracks_of
from stepvad.skeletons import COCO17, Skeleton

logger = logging.getLogger(__name__)

PART_S = 120.0
"""Footage of one file, which is what a crash may cost."""
DAY_S = 86400.0

Row = tuple[int, int, NDArray[np.float32], NDArray[np.float32]]


class Recorder:
    """The footage of one camera, file by file; people are not followed from one to the next."""

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
        """One more slot; a clip when enough came together."""
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
        """What came so far, if anybody was seen."""
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
        """Write a clip; on a full disk the oldest file goes, and it is tried once more."""
        try:
            self._write(clip)
        except StepvadError:
            if drop_oldest([self._directory]) is None:
                raise
            self._write(clip)

    def _write(self, clip: Clip) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._directory / f"{clip.name}.parquet"
        write_clip(clip, path)
        path.chmod(0o600)


@dataclass(frozen=True, slots=True, eq=False)
class WriteRecording:
    """The task that writes one recorded clip."""

    recorder: Recorder
    clip: Clip
    kind: Literal["recording"] = "recording"

    def run(self) -> None:
        """Write it."""
        self.recorder.write(self.clip)


def retain(directory: Path, *, days: float, most_mb: float, now: float) -> int:
    """Delete recorded files that are too old, and the oldest beyond the limit; how many."""
    files = _files(directory.glob("*/"))
    kept = [file for file in files if file[0] >= now - days * DAY_S]
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


def drop_oldest(directories: Iterable[Path]) -> Path | None:
    """Make room: delete the oldest recorded file."""
    files = _files(directories)
    if not files:
        return None
    files[0][2].unlink(missing_ok=True)
    logger.warning("recorded poses %s deleted to make room", files[0][2].name)
    return files[0][2]


def _files(directories: Iterable[Path]) -> list[tuple[float, int, Path]]:
    """Time, size and path of recorded files, the oldest first."""
    found = []
    for directory in directories:
        for path in directory.glob("*.parquet"):
            with suppress(OSError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
    return sorted(found)
