"""Unpack an archive of box tracks or of trajectories into a data set that every command reads.

    python -m studies unpack ShanghaiTech-boxes/tracks.npz boxes
    python -m studies unpack HR-trajectories/HR-Avenue.npz HR-Avenue

One `.npz` file holds all clips. Box tracks become poses of four
joints, the corners, in ShanghaiTech's layout; they have no poses, so their figures are never
compared with figures on poses. Trajectories become the CSV files of their release.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.evaluation.datasets import TRAJECTORIES, of_clips, write_dataset
from stepvad.poses import Clip, n_frames_of, tracks_of
from stepvad.skeletons import COCO17, Skeleton

Archive = Mapping[str, NDArray[Any]]
PARTS = {"train": 0, "test": 1}
"""Values of `clip_split`."""
BOX = Skeleton(
    "box",
    ("top_left", "top_right", "bottom_right", "bottom_left"),
    ((0, 1), (1, 2), (2, 3), (3, 0)),
)
"""A person's bounding box, by corners and sides."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive", type=Path, help="an .npz file")
    parser.add_argument("output", type=Path, help="the directory of the data set")
    given = parser.parse_args(arguments)
    archive = read(given.archive)
    (write_boxes if "kpts" in archive else write_trajectories)(archive, given.output)
    print(given.output)


def read(path: Path) -> Archive:
    """The arrays of an archive."""
    with np.load(path, allow_pickle=False) as found:
        archive = dict(found)
    if not {"clip", "track", "frame", "clip_names", "clip_split", "gt"} <= archive.keys():
        raise DataError(f"{path}: expected box tracks or trajectories, got {', '.join(archive)}")
    return archive


def boxes(archive: Archive, part: str) -> Iterator[Clip]:
    """Yield the clips of box tracks of one part by name, each box as four corners."""
    for name, rows in _rows(archive, part):
        left, top, right, bottom = archive["kpts"][rows].reshape(-1, 4).T
        xy = [left, top, right, top, right, bottom, left, bottom]
        corners = np.stack(xy, axis=1).reshape(-1, BOX.V, 2)
        sure = np.ones((len(rows), BOX.V), np.float32)
        tracks = tracks_of(archive["track"][rows], archive["frame"][rows], corners, sure)
        yield Clip(name, None, n_frames_of(tracks), tracks, BOX)


def write_boxes(archive: Archive, root: Path) -> None:
    """Write box tracks in ShanghaiTech's layout, each clip as Parquet."""
    masks = _masks(archive, "gt")
    test = ((clip.with_length(len(masks[clip.name])), masks[clip.name])
            for clip in boxes(archive, "test"))  # fmt: skip
    dataset = of_clips(root.name, train=lambda: boxes(archive, "train"), test=test)
    write_dataset(dataset, root)


def write_trajectories(archive: Archive, root: Path) -> None:
    """Write trajectories as they are released: a CSV file a person, and the masks."""
    # coordinates (34, n): high and low byte of differences to the row before, modulo 2^16
    steps = archive["kpts_hi"].astype(np.int16) << 8 | archive["kpts_lo"]
    positions = np.cumsum(steps, axis=1, dtype=np.int16) / np.float64(archive["scale"])
    lines = np.column_stack([archive["frame"], positions.T])
    formats = ["%d"] + ["%.3f"] * (2 * COCO17.V)
    for part in PARTS:
        for name, rows in _rows(archive, part):
            directory = root / TRAJECTORIES[part] / name
            directory.mkdir(parents=True)
            ends = np.flatnonzero(np.diff(archive["track"][rows])) + 1
            for own in np.split(rows, ends) if len(rows) else ():
                path = directory / f"{archive['track'][own[0]]:04}.csv"
                np.savetxt(path, lines[own], fmt=formats, delimiter=",")
    kept = {"hr_keep": root / "hr_bool_masks"} if "hr_keep" in archive else {}
    for key, where in ({"gt": root} | kept).items():
        masks = where / "testing" / "test_frame_mask"
        masks.mkdir(parents=True, exist_ok=True)
        for name, mask in _masks(archive, key).items():
            np.save(masks / f"{name}.npy", mask.astype(np.uint8))


def _rows(archive: Archive, part: str) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield name and rows of each clip of one part, by name; rows by track and frame."""
    names, clip = archive["clip_names"], archive["clip"]
    order = np.lexsort((archive["frame"], archive["track"], clip))
    edges = np.searchsorted(clip[order], np.arange(len(names) + 1))
    wanted = np.flatnonzero(archive["clip_split"] == PARTS[part])
    for number in wanted[np.argsort(names[wanted])].tolist():
        yield str(names[number]), order[edges[number] : edges[number + 1]]


def _masks(archive: Archive, name: str) -> dict[str, NDArray[np.bool_]]:
    """One array of 0 and 1 over the frames of all labelled clips, split by clip."""
    parts = np.split(archive[name].astype(np.bool_), np.cumsum(archive["gt_len"])[:-1])
    return dict(zip(map(str, archive["gt_clip"]), parts, strict=True))
