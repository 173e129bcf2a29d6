"""Trajectories of the human-related benchmarks: ShanghaiTech and Avenue, as CSV files or packed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.packed import ROWS, Archive, Part
from stepvad.formats import labels as truth
from stepvad.formats import trajectories
from stepvad.formats.labels import SHANGHAITECH_NOT_HUMAN, FrameLabels
from stepvad.formats.reading import check_frames
from stepvad.poses import Clip, n_frames_of
from stepvad.skeletons import COCO17

HumanRelated = Literal["hr-shanghaitech", "hr-avenue"]

FPS: Mapping[HumanRelated, float] = {"hr-shanghaitech": 24.0, "hr-avenue": 25.0}
DIRECTORIES: Mapping[Part, Path] = {
    "train": Path("training", "trajectories"),
    "test": Path("testing", "trajectories"),
}
"""Directories of the clips, each a directory of `<person>.csv`."""
PACKED = ".npz"
"""Suffix of a file that holds the whole data set."""
_POSES = {**ROWS, "kpts_lo": ("u", 2), "kpts_hi": ("u", 2), "scale": ("iu", 0)}


def layout_of(root: Path) -> HumanRelated | None:
    """The data set in a directory or packed file, by the names of its test clips; or None.

    Avenue's clips are numbers, ShanghaiTech's are `SS_CCCC`, camera and clip.
    """
    if root.suffix == PACKED and root.is_file():
        names = _archive(root).clip_names("test")
    elif (root / DIRECTORIES["test"]).is_dir():
        names = trajectories.clip_names(root / DIRECTORIES["test"])
    else:
        return None
    avenue = names and all(re.fullmatch("[0-9]+", name) for name in names)
    return "hr-avenue" if avenue else "hr-shanghaitech"


def read(root: Path, layout: HumanRelated, *, part: Part) -> Iterator[Clip]:
    """Yield the clips of one part by name."""
    if root.is_file():
        return _unpacked(_archive(root), part, FPS[layout])
    return trajectories.read(root / DIRECTORIES[part], fps=FPS[layout])


def labels(
    root: Path, layout: HumanRelated, *, split: Literal["full", "hr"] = "full"
) -> dict[str, FrameLabels]:
    """Frame masks of the test clips.

    Split `hr` excludes six clips of ShanghaiTech, and those frames of Avenue in which the anomaly
    shows no person.
    """
    archive = _archive(root) if root.is_file() else None
    if archive is None:
        every = truth.trajectories(root, trajectories.clip_names(root / DIRECTORIES["test"]))
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


def _archive(path: Path) -> Archive:
    return Archive(path, hint="get the packed trajectories, or give the directory of CSV files")


def _unpacked(archive: Archive, part: Part, fps: float) -> Iterator[Clip]:
    found = archive.arrays(_POSES)
    positions = _positions(archive, found)
    scale = np.float32(found["scale"])
    for name, rows in archive.rows(found, part):
        pairs = positions[:, rows].T.reshape(-1, COCO17.V, 2)
        keypoints = pairs.astype(np.float32) / scale
        try:
            yield _clip(name, fps, found["track"][rows], found["frame"][rows], keypoints)
        except DataError as error:
            raise error.located(f"{archive.path}, clip {name}") from error


def _positions(archive: Archive, found: Mapping[str, NDArray[Any]]) -> NDArray[np.int16]:
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


def _clip(
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
