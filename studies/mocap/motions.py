"""Motion capture as 3-D joints in metres above a floor, read from one archive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.files import read_arrays
from stepvad.formats.reading import read_bytes
from studies.mocap import catalogue

Float64s = NDArray[np.float64]

MAX_BYTES = 1 << 30
FPS = 30.0
"""Frame rate of the archive, and of every motion here."""
METRES = 0.05644
"""One unit of CMU's skeletons, 1 / 0.45 inches, in metres."""
ANKLE_M = 0.08
"""Height of the ankle above the floor when the foot is flat."""
FLOOR_QUANTILE = 0.02
"""Quantile of the lowest joint's height that defines the floor; a few frames may err lower."""
MAX_STEP_M = 0.45
"""A joint that moves further in one frame (13.5 m/s) was lost by the capture."""
DOUBLE_SPEED = ("75", "87", "88")
"""Subjects stored at half the rate: in the air they fall with at least four times gravity."""
JOINTS = (
    "Head", "Neck1", "LeftArm", "RightArm", "LeftForeArm", "RightForeArm", "LeftHand", "RightHand",
    "LeftUpLeg", "RightUpLeg", "LeftLeg", "RightLeg", "LeftFoot", "RightFoot", "Hips",
)  # fmt: skip
"""Joints of the archive: arm is shoulder, forearm elbow, hand wrist, up-leg hip, foot ankle."""
HEAD, NECK, HIPS = (JOINTS.index(name) for name in ("Head", "Neck1", "Hips"))
SHOULDERS, ELBOWS, WRISTS, HIP_JOINTS, KNEES, ANKLES = (
    [JOINTS.index(f"Left{part}"), JOINTS.index(f"Right{part}")]
    for part in ("Arm", "ForeArm", "Hand", "UpLeg", "Leg", "Foot")
)


@dataclass(frozen=True, slots=True, eq=False)
class CapturedMotion:
    """One captured motion: joints `(n, 15, 3)` in metres, z up, the floor at z = 0."""

    name: str
    joints: Float64s

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.joints)


@dataclass(frozen=True, slots=True, eq=False)
class Archive:
    """All motions of one file, as it stores them: y up, in units of CMU's skeletons."""

    path: Path
    xyz: NDArray[np.float16]
    first: dict[str, int]
    length: dict[str, int]

    def motion(self, name: str) -> CapturedMotion:
        """One motion in metres above its own floor, at `FPS`."""
        if name not in self.first:
            raise DataError(
                f"{self.path}: expected motion {name}, got none of that name",
                hint="get the archive with all of CMU's motions",
            )
        stored = self.xyz[self.first[name] :][: self.length[name]].astype(np.float64) * METRES
        joints = np.stack([stored[..., 0], -stored[..., 2], stored[..., 1]], axis=-1)
        if catalogue.person_of(name) in DOUBLE_SPEED:
            joints = resample(joints, np.arange(0, len(joints) - 1 + 1e-9, 0.5))
        joints[..., 2] -= np.quantile(joints[..., 2].min(axis=1), FLOOR_QUANTILE) - ANKLE_M
        return CapturedMotion(name, joints)


def find_archive() -> Path:
    """The archive below the directory in STEPVAD_DATA, or beside the project."""
    root = Path(os.environ.get("STEPVAD_DATA", Path("..") / "shared" / "data"))
    return root / "CMU-mocap" / "mocap_30fps_15j.npz"


def open_archive(path: Path | None = None) -> Archive:
    """Read the archive of motions, by default from `find_archive`."""
    path = find_archive() if path is None else path
    try:
        arrays = read_arrays(
            read_bytes(path, most=MAX_BYTES), ("xyz", "lengths", "names", "joints")
        )
    except DataError as error:
        raise DataError(
            f"{path}: {error.problem}",
            hint="name the directory that holds CMU-mocap in STEPVAD_DATA",
        ) from error
    _check(arrays, path)
    ends = np.cumsum(arrays["lengths"])
    found = [str(name) for name in arrays["names"]]
    lengths = dict(zip(found, arrays["lengths"].tolist(), strict=True))
    first = dict(zip(found, (ends - arrays["lengths"]).tolist(), strict=True))
    return Archive(path, arrays["xyz"], first, lengths)


def _check(arrays: dict[str, NDArray[Any]], path: Path) -> None:
    """Reject archives with other joints or inconsistent lengths."""
    xyz, lengths, names = (arrays[name] for name in ("xyz", "lengths", "names"))
    shapes = (xyz.shape[1:], lengths.ndim, names.shape)
    kinds = xyz.dtype.kind + lengths.dtype.kind + names.dtype.kind
    fits = shapes == ((len(JOINTS), 3), 1, lengths.shape) and kinds in ("fiU", "fuU")
    is_ours = fits and tuple(arrays["joints"].ravel().tolist()) == JOINTS
    if not is_ours or (lengths < 1).any() or sum(lengths.tolist()) != len(xyz):
        raise DataError(
            f"{path}: expected frames of the joints {', '.join(JOINTS)}, got others",
            hint="get the archive with 15 joints at 30 frames a second",
        )


def unbroken(motion: CapturedMotion) -> Iterator[slice]:
    """Yield the intervals of a motion in which no joint jumps."""
    step = np.linalg.norm(np.diff(motion.joints, axis=0), axis=2).max(axis=1, initial=0.0)
    edges = [0, *(np.flatnonzero(step > MAX_STEP_M) + 1).tolist(), len(motion)]
    yield from (slice(a, b) for a, b in pairwise(edges))


def resample(values: Float64s, at: Float64s) -> Float64s:
    """Interpolate values `(n, …)` linearly at fractional frames `at`."""
    before = np.clip(np.floor(at).astype(np.int64), 0, max(len(values) - 2, 0))
    after = np.minimum(before + 1, len(values) - 1)
    share = (at - before).reshape(-1, *[1] * (values.ndim - 1))
    return values[before] * (1 - share) + values[after] * share
