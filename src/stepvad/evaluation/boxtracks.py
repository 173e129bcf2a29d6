"""Box tracks of ShanghaiTech's videos: where each person is, without their pose.

The four corners serve as joints. Figures on boxes are not comparable with figures on poses.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.packed import ROWS, Archive, Part
from stepvad.formats.labels import SHANGHAITECH_NOT_HUMAN, FrameLabels
from stepvad.poses import Clip, Track, n_frames_of
from stepvad.skeletons import BOX

FILE = "tracks.npz"
"""All boxes and labels of the data set, in its directory."""


def read(path: Path, *, part: Part) -> Iterator[Clip]:
    """Yield the clips of one part by name, each box as four corners with confidence 1."""
    archive = _archive(path)
    found = archive.arrays({**ROWS, "kpts": ("f", 3)})
    clip, track, frame, boxes = (found[name] for name in ("clip", "track", "frame", "kpts"))
    if boxes.shape != (len(clip), 2, 2) or not len(clip) == len(track) == len(frame):
        raise archive.unlike(
            f"kpts of shape ({len(clip)}, 2, 2), one box per clip, track and frame"
        )
    for name, rows in archive.rows(found, part):
        try:
            yield _clip(name, track[rows], frame[rows], boxes[rows])
        except DataError as error:
            raise error.located(f"{path}, clip {name}") from error


def labels(path: Path, *, split: Literal["full", "hr"] = "full") -> dict[str, FrameLabels]:
    """The official frame masks; the human-related split excludes six clips."""
    left_out = SHANGHAITECH_NOT_HUMAN if split == "hr" else ()
    every = _archive(path).labels()
    return {name: every[name] for name in every if name not in left_out}


def corners(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Corners `(n, 4, 2)` in the order of `BOX`, from upper left and lower right `(n, 2, 2)`."""
    left, top, right, bottom = boxes.reshape(-1, 4).T
    xy = [left, top, right, top, right, bottom, left, bottom]
    return np.stack(xy, axis=1).reshape(-1, BOX.V, 2)


def _clip(
    name: str, track: NDArray[np.int64], frame: NDArray[np.int64], boxes: NDArray[np.float32]
) -> Clip:
    """The boxes of one clip, sorted by track and frame."""
    edges = [0, *(np.flatnonzero(np.diff(track)) + 1).tolist(), len(track)]
    confidence = np.ones((len(track), BOX.V), dtype=np.float32)
    points = corners(boxes)
    tracks = [
        Track(int(track[first]), frame[first:end], points[first:end], confidence[first:end])
        for first, end in pairwise(edges)
        if first < end
    ]
    return Clip(name, None, n_frames_of(tracks), tuple(tracks), BOX)


def _archive(path: Path) -> Archive:
    return Archive(path, hint="get the archive of ShanghaiTech's box tracks")
