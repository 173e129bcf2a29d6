"""Takes: segments of the listed motions that a person in a scene can perform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stepvad.errors import DataError
from stepvad.model.scoring import true_runs
from studies.mocap import catalogue, truth
from studies.mocap.catalogue import KINDS, Half, MotionKind
from studies.mocap.motions import FPS, Archive, CapturedMotion, Float64s, unbroken
from studies.mocap.truth import Mask

MIN_NORMAL_S = 2.0
"""Shorter segments of normal motion are not used."""
MIN_ABNORMAL_S = 0.8
"""Shorter segments with an event are not used."""
LEAD_S = 3.0
"""Seconds of a motion kept before and after its event."""
MAX_TAKE_S = 14.0
"""A longer motion with an event is cut after this time."""


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """Motion of one person: joints `(n, 15, 3)` at `FPS`, and which frames are abnormal, `(n,)`."""

    name: str
    kind: MotionKind | None
    joints: Float64s
    abnormal: Mask

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.joints)


@dataclass(frozen=True, slots=True, eq=False)
class TakeSplit:
    """The takes of one half of the collection: normal ones, and abnormal ones by class."""

    normal: tuple[Take, ...]
    abnormal: Mapping[MotionKind, tuple[Take, ...]]

    def persons(self) -> set[str]:
        """All persons in the takes."""
        every = [*self.normal, *(take for takes in self.abnormal.values() for take in takes)]
        return {catalogue.person_of(take.name) for take in every}


def split_takes(archive: Archive, half: Half, *, abnormal: bool) -> TakeSplit:
    """The takes of a half, with or without `abnormal` ones."""
    normal = [
        take
        for name in catalogue.normal_names(half)
        if name in archive.first
        for take in normal_takes(archive.motion(name))
    ]
    if not normal:
        raise DataError(
            f"{archive.path}: expected normal motions of half {half}, got none",
            hint="get the archive with all of CMU's motions",
        )
    listed: dict[MotionKind, tuple[Take, ...]] = {}
    for kind in KINDS if abnormal else ():
        found = (n for n in catalogue.abnormal_names(half, kind) if n in archive.first)
        takes = tuple(take for n in found for take in abnormal_takes(archive.motion(n), kind))
        if takes:
            listed[kind] = takes
    return TakeSplit(tuple(normal), listed)


def normal_takes(motion: CapturedMotion) -> Iterator[Take]:
    """Yield the segments without joint jumps and without any sign of an anomaly."""
    for piece in unbroken(motion):
        if piece.stop - piece.start < MIN_NORMAL_S * FPS:
            continue
        joints = motion.joints[piece]
        for first, end in true_runs(truth.ordinary(joints)):
            if end - first >= MIN_NORMAL_S * FPS:
                part = joints[first:end]
                yield Take(motion.name, None, part, np.zeros(len(part), dtype=np.bool_))


def abnormal_takes(motion: CapturedMotion, kind: MotionKind) -> Iterator[Take]:
    """Yield the segments without joint jumps that contain an event, with some seconds around it."""
    for piece in unbroken(motion):
        if piece.stop - piece.start < MIN_ABNORMAL_S * FPS:
            continue
        joints = motion.joints[piece]
        mask = truth.abnormal(joints, kind)
        if not mask.any():
            continue
        posed = truth.signs(joints)["t_pose"] & ~mask
        frames = np.flatnonzero(mask)
        first, end = int(frames[0]), int(frames[-1]) + 1
        start = max(_after(posed[:first]), first - round(LEAD_S * FPS))
        stop = min(_before(posed, end), end + round(LEAD_S * FPS), start + round(MAX_TAKE_S * FPS))
        if stop - start >= MIN_ABNORMAL_S * FPS:
            yield Take(motion.name, kind, joints[start:stop], mask[start:stop])


def _after(posed: Mask) -> int:
    """The first frame after the last calibration pose."""
    return int(np.flatnonzero(posed)[-1]) + 1 if posed.any() else 0


def _before(posed: Mask, end: int) -> int:
    """The first frame from `end` on that shows a calibration pose, or the length."""
    later = np.flatnonzero(posed[end:])
    return end + int(later[0]) if len(later) else len(posed)
