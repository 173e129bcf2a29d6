"""Data sets of trajectories, packed in one NPZ archive or as CSV files.

Human-related trajectories of ShanghaiTech and Avenue, and box tracks of ShanghaiTech: where each
person is, without their pose. The four corners of a box serve as joints. Figures on boxes are not
comparable with figures on poses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.files import read_arrays
from stepvad.formats import labels as truth
from stepvad.formats import trajectories
from stepvad.formats.labels import SHANGHAITECH_NOT_HUMAN, FrameLabels
from stepvad.formats.reading import check_frames, read_bytes
from stepvad.poses import Clip, Track, n_frames_of
from stepvad.skeletons import BOX, COCO17

HumanRelated = Literal["hr-shanghaitech", "hr-avenue"]
TRAJECTORY_FPS: Mapping[HumanRelated, float] = {"hr-shanghaitech": 24.0, "hr-avenue": 25.0}
TRAJECTORY_DIRECTORIES: Mapping[Part, Path] = {
    "train": Path("training", "trajectories"),
    "test": Path("testing", "trajectories"),
}
"""Directories of the clips, each a directory of `<person>.csv`."""
PACKED_SUFFIX = ".npz"
"""Suffix of a file that holds the whole data set."""

BOX_FILE = "tracks.npz"
"""All boxes and labels of the data set, in its directory."""

Part = Literal["train", "test"]
Kinds = Mapping[str, tuple[str, int]]
"""Kinds of dtype and number of axes, by the name of an array."""
MAX_BYTES = 1 << 30
PARTS: Mapping[Part, int] = {"train": 0, "test": 1}
"""Values of `clip_split` for training and test clips."""
CLIP_ARRAYS: Kinds = {"clip_names": ("U", 1), "clip_split": ("iu", 1)}
ROW_ARRAYS: Kinds = {"clip": ("iu", 1), "track": ("iu", 1), "frame": ("iu", 1), **CLIP_ARRAYS}
_POSE_ARRAYS = {**ROW_ARRAYS, "kpts_lo": ("u", 2), "kpts_hi": ("u", 2), "scale": ("iu", 0)}
_LABEL_ARRAYS: Kinds = {"gt": ("biu", 1), "gt_clip": ("U", 1), "gt_len": ("iu", 1)}


def trajectory_layout(root: Path) -> HumanRelated | None:
    """The data set in a directory or packed file, by the names of its test clips; or None.

    Avenue's clips are numbers, ShanghaiTech's are `SS_CCCC`, camera and clip.
    """
    if root.suffix == PACKED_SUFFIX and root.is_file():
        names = _trajectory_archive(root).clip_names("test")
    elif (root / TRAJECTORY_DIRECTORIES["test"]).is_dir():
        names = trajectories.clip_names(root / TRAJECTORY_DIRECTORIES["test"])
    else:
        return None
    avenue = names and all(re.fullmatch("[0-9]+", name) for name in names)
    return "hr-avenue" if avenue else "hr-shanghaitech"


def read_trajectories(root: Path, layout: HumanRelated, *, part: Part) -> Iterator[Clip]:
    """Yield the clips of one part by name."""
    if root.is_file():
        return _unpacked(_trajectory_archive(root), part, TRAJECTORY_FPS[layout])
    return trajectories.read(root / TRAJECTORY_DIRECTORIES[part], fps=TRAJECTORY_FPS[layout])


def trajectory_labels(
    root: Path, layout: HumanRelated, *, split: Literal["full", "hr"] = "full"
) -> dict[str, FrameLabels]:
    """Frame masks of the test clips.

    Split `hr` excludes six clips of ShanghaiTech, and those frames of Avenue in which the anomaly
    shows no person.
    """
    archive = _trajectory_archive(root) if root.is_file() else None
    if archive is None:
        every = truth.trajectories(
            root, trajectories.clip_names(root / TRAJECTORY_DIRECTORIES["test"])
        )
    else:
        names = set(archive.clip_names("test"))
        every = {name: label for name, label in archive.labels().items() if name in names}
    if split == "full":
        return every
    if layout == "hr-shanghaitech":
        return {name: every[name] for name in every if name not in SHANGHAITECH_NOT_HUMAN}
    if archive is None:
        return truth.human_related_frames(root, every)
    counted = archive.masks("hr_keep")
    return {name: replace(label, counted=counted[name]) for name, label in every.items()}


def read_boxes(path: Path, *, part: Part) -> Iterator[Clip]:
    """Yield the clips of one part by name, each box as four corners with confidence 1."""
    archive = _box_archive(path)
    found = archive.arrays({**ROW_ARRAYS, "kpts": ("f", 3)})
    clip, track, frame, boxes = (found[name] for name in ("clip", "track", "frame", "kpts"))
    if boxes.shape != (len(clip), 2, 2) or not len(clip) == len(track) == len(frame):
        raise archive.unlike(
            f"kpts of shape ({len(clip)}, 2, 2), one box per clip, track and frame"
        )
    for name, rows in archive.rows(found, part):
        try:
            yield _box_clip(name, track[rows], frame[rows], boxes[rows])
        except DataError as error:
            raise error.located(f"{path}, clip {name}") from error


def box_labels(path: Path, *, split: Literal["full", "hr"] = "full") -> dict[str, FrameLabels]:
    """The official frame masks; the human-related split excludes six clips."""
    left_out = SHANGHAITECH_NOT_HUMAN if split == "hr" else ()
    every = _box_archive(path).labels()
    return {name: every[name] for name in every if name not in left_out}


def corners(boxes: NDArray[np.float32]) -> NDArray[np.float32]:
    """Corners `(n, 4, 2)` in the order of `BOX`, from upper left and lower right `(n, 2, 2)`."""
    left, top, right, bottom = boxes.reshape(-1, 4).T
    xy = [left, top, right, top, right, bottom, left, bottom]
    return np.stack(xy, axis=1).reshape(-1, BOX.V, 2)


@dataclass(frozen=True, slots=True)
class PackedArchive:
    """An archive on disk; nothing is read before it is asked for."""

    path: Path
    hint: str
    """What to do if it is damaged or holds something else."""

    def arrays(self, kinds: Kinds) -> dict[str, NDArray[Any]]:
        """The named arrays, checked for dtype kind and number of axes."""
        try:
            found = read_arrays(read_bytes(self.path, most=MAX_BYTES), kinds)
        except DataError as error:
            raise error.located(str(self.path)) from error
        for name, (kind, ndim) in kinds.items():
            if found[name].dtype.kind not in kind or found[name].ndim != ndim:
                raise self.unlike(f"{name} with {ndim} axes, of kind {' or '.join(kind)}")
        return found

    def clip_names(self, part: Part) -> list[str]:
        """Names of the clips of one part."""
        found = self.arrays(CLIP_ARRAYS)
        if len(found["clip_names"]) != len(found["clip_split"]):
            raise self.unlike("a name and a split for every clip")
        return [str(name) for name in found["clip_names"][found["clip_split"] == PARTS[part]]]

    def rows(
        self, found: Mapping[str, NDArray[Any]], part: Part
    ) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield name and rows of each clip of one part, by name; rows by track and frame.

        `found` holds the arrays of `ROWS`.
        """
        clip, track, frame = (found[name] for name in ("clip", "track", "frame"))
        names, parts = found["clip_names"], found["clip_split"]
        if not len(clip) == len(track) == len(frame):
            raise self.unlike("as many clips as tracks and frames")
        if len(parts) != len(names) or not np.isin(clip, np.arange(len(names))).all():
            raise self.unlike("a name and a split for every clip of a row")
        order = np.lexsort((frame, track, clip))
        edges = np.searchsorted(clip[order], np.arange(len(names) + 1))
        wanted = np.flatnonzero(parts == PARTS[part])
        for number in wanted[np.argsort(names[wanted])].tolist():
            yield str(names[number]), order[edges[number] : edges[number + 1]]

    def labels(self) -> dict[str, FrameLabels]:
        """Frame masks by clip name, sorted, in which every frame counts."""
        return {name: FrameLabels.all_counted(mask) for name, mask in self.masks("gt").items()}

    def masks(self, name: str) -> dict[str, NDArray[np.bool_]]:
        """One array of 0 and 1 over the frames of all labelled clips, split by clip and sorted."""
        found = self.arrays({**_LABEL_ARRAYS, name: _LABEL_ARRAYS["gt"]})
        values, names, lengths = (found[key] for key in (name, "gt_clip", "gt_len"))
        fits = len(names) == len(lengths) and (lengths >= 0).all() and lengths.sum() == len(values)
        if not fits or not np.isin(values, (0, 1)).all() or len(np.unique(names)) != len(names):
            raise self.unlike(f"gt_len frames of 0 or 1 in {name} for every clip of gt_clip")
        parts = np.split(values.astype(np.bool_), np.cumsum(lengths)[:-1])
        return dict(sorted(zip(map(str, names), parts, strict=True)))

    def unlike(self, expected: str) -> DataError:
        """The error for arrays that do not fit together."""
        return DataError(f"{self.path}: expected {expected}, got something else", hint=self.hint)


def _trajectory_archive(path: Path) -> PackedArchive:
    return PackedArchive(
        path, hint="get the packed trajectories, or give the directory of CSV files"
    )


def _unpacked(archive: PackedArchive, part: Part, fps: float) -> Iterator[Clip]:
    found = archive.arrays(_POSE_ARRAYS)
    positions = _positions(archive, found)
    scale = np.float32(found["scale"])
    for name, rows in archive.rows(found, part):
        pairs = positions[:, rows].T.reshape(-1, COCO17.V, 2)
        keypoints = pairs.astype(np.float32) / scale
        try:
            yield _trajectory_clip(name, fps, found["track"][rows], found["frame"][rows], keypoints)
        except DataError as error:
            raise error.located(f"{archive.path}, clip {name}") from error


def _positions(archive: PackedArchive, found: Mapping[str, NDArray[Any]]) -> NDArray[np.int16]:
    """Coordinates times `scale`, `(34, n)`.

    They are stored as differences to the row before, modulo 2^16, high and low byte apart.
    """
    high, low, shape = found["kpts_hi"], found["kpts_lo"], (2 * COCO17.V, len(found["clip"]))
    bytes_each = high.dtype == low.dtype == np.uint8
    if high.shape != shape or low.shape != shape or not bytes_each or found["scale"] <= 0:
        raise archive.unlike(f"bytes kpts_lo and kpts_hi of shape {shape}, and a scale above 0")
    positions = high.astype(np.int16)
    positions <<= 8
    positions |= low
    return np.cumsum(positions, axis=1, dtype=np.int16, out=positions)


def _trajectory_clip(
    name: str,
    fps: float,
    track: NDArray[np.integer],
    frame: NDArray[np.integer],
    keypoints: NDArray[np.float32],
) -> Clip:
    """A clip of rows sorted by track and frame."""
    groups = np.split(np.arange(len(track)), np.flatnonzero(np.diff(track)) + 1)
    people = [
        trajectories.track_of(int(track[rows[0]]), frame[rows], keypoints[rows])
        for rows in groups
        if len(rows)
    ]
    tracks = tuple(person for person in people if len(person))
    check_frames(n_frames_of(tracks), sum(map(len, tracks)))
    return Clip(name, fps, n_frames_of(tracks), tracks, COCO17)


def _box_clip(
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


def _box_archive(path: Path) -> PackedArchive:
    return PackedArchive(path, hint="get the archive of ShanghaiTech's box tracks")
