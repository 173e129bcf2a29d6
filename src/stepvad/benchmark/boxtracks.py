"""Box tracks of ShanghaiTech's videos: where each person is, without their pose.

The four corners serve as joints. Figures on boxes are not comparable with figures on poses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.files import npyfile
from stepvad.formats import files
from stepvad.formats.labels import SHANGHAITECH_NOT_HUMAN, FrameLabels
from stepvad.poses import Clip, Track, n_frames_of
from stepvad.skeletons import BOX

FILE = "tracks.npz"
"""All boxes and labels of the data set, in its directory."""
MAX_BYTES = 1 << 30
PARTS: Mapping[str, int] = {"train": 0, "test": 1}
"""Values of `clip_split` for training and test clips."""

_BOXES = {
    "clip": ("iu", 1),
    "track": ("iu", 1),
    "frame": ("iu", 1),
    "kpts": ("f", 3),
    "clip_names": ("U", 1),
    "clip_split": ("iu", 1),
}
_TRUTH = {"gt": ("biu", 1), "gt_clip": ("U", 1), "gt_len": ("iu", 1)}


def read(path: Path, *, part: Literal["train", "test"]) -> Iterator[Clip]:
    """Yield the clips of one part by name, each box as four corners with confidence 1."""
    found = _arrays(path, _BOXES)
    clip, track, frame, boxes = (found[name] for name in ("clip", "track", "frame", "kpts"))
    names, parts = found["clip_names"], found["clip_split"]
    if boxes.shape != (len(clip), 2, 2) or not len(clip) == len(track) == len(frame):
        raise _unlike(path, f"kpts of shape ({len(clip)}, 2, 2), one box per clip, track and frame")
    if len(parts) != len(names) or not np.isin(clip, np.arange(len(names))).all():
        raise _unlike(path, "a name and a split for every clip of a box")
    order = np.lexsort((frame, track, clip))
    edges = np.searchsorted(clip[order], np.arange(len(names) + 1))
    wanted = np.flatnonzero(parts == PARTS[part])
    for number in wanted[np.argsort(names[wanted])].tolist():
        rows, name = order[edges[number] : edges[number + 1]], str(names[number])
        try:
            yield _clip(name, track[rows], frame[rows], boxes[rows])
        except DataError as error:
            raise error.located(f"{path}, clip {name}") from error


def labels(path: Path, *, split: Literal["full", "hr"] = "full") -> dict[str, FrameLabels]:
    """The official frame masks; the human-related split excludes six clips."""
    found = _arrays(path, _TRUTH)
    abnormal, names, lengths = (found[name] for name in ("gt", "gt_clip", "gt_len"))
    fits = len(names) == len(lengths) and (lengths >= 0).all() and lengths.sum() == len(abnormal)
    if not fits or not np.isin(abnormal, (0, 1)).all() or len(np.unique(names)) != len(names):
        raise _unlike(path, "gt_len frames of 0 or 1 in gt for every clip of gt_clip")
    masks = np.split(abnormal.astype(np.bool_), np.cumsum(lengths)[:-1])
    every = dict(zip(map(str, names), map(FrameLabels.all_counted, masks), strict=True))
    left_out = SHANGHAITECH_NOT_HUMAN if split == "hr" else ()
    return {name: every[name] for name in sorted(every) if name not in left_out}


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


def _arrays(path: Path, kinds: Mapping[str, tuple[str, int]]) -> dict[str, NDArray[Any]]:
    """The named arrays of an archive, checked for dtype kind and number of axes."""
    try:
        found = npyfile.arrays(files.read_bytes(path, most=MAX_BYTES), kinds)
    except DataError as error:
        raise error.located(str(path)) from error
    for name, (kind, ndim) in kinds.items():
        if found[name].dtype.kind not in kind or found[name].ndim != ndim:
            raise _unlike(path, f"{name} with {ndim} axes, of kind {' or '.join(kind)}")
    return found


def _unlike(path: Path, expected: str) -> DataError:
    return DataError(
        f"{path}: expected {expected}, got something else",
        hint="get the archive of ShanghaiTech's box tracks",
    )
