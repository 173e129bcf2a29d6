"""Limits on the sizes that a file may declare, to bound the cost of reading it.

Real footage stays far below them. Readers check declared sizes before they allocate memory. The
limits are documented under Reference, File formats.
"""

from __future__ import annotations

import reprlib

from stepvad.errors import DataError

MAX_JOINTS = 1000
"""Joints of a pose; whole bodies with hands and faces have a few hundred."""
MAX_NAME = 1000
"""Characters in the name of a clip, a joint or a skeleton."""
MAX_EMPTY_FRAMES = 10_000_000
"""Frames without people in a file: 4 days at 30 frames per second."""
FRAMES_PER_POSE = 100
"""Additional frames allowed per pose."""
MAX_JSON_BYTES = 1 << 30
"""Size of a JSON pose file."""
MAX_LABEL_BYTES = 1 << 27
"""Size of a label file, a class table or an event file."""


def check_frames(n_frames: int, n_poses: int) -> None:
    """Reject clips with implausibly many frames for their poses."""
    most = MAX_EMPTY_FRAMES + FRAMES_PER_POSE * n_poses
    if n_frames > most:
        raise DataError(
            f"expected up to {most:,} frames with {n_poses:,} poses, got {n_frames:,}",
            hint="count frames from the start of the clip; split a recording of many days",
        )


def check_joints(n_joints: int) -> None:
    """Reject poses with more than `MAX_JOINTS` joints."""
    if n_joints > MAX_JOINTS:
        raise DataError(
            f"expected up to {MAX_JOINTS} joints, got {n_joints:,}",
            hint="give the joints of a skeleton, not the points of a surface",
        )


def check_name(name: str) -> None:
    """Reject names longer than `MAX_NAME` characters."""
    if len(name) > MAX_NAME:
        raise DataError(
            f"expected names of up to {MAX_NAME} characters, got {reprlib.repr(name)} "
            f"with {len(name):,}",
            hint="shorten the name",
        )
