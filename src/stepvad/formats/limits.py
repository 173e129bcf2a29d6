"""How much a file may claim to hold, so that reading it costs no more than it is worth.

Real footage stays far below; a reader checks claims before it makes room for them. The numbers are
told in the documentation, under Reference, File formats.
"""

from __future__ import annotations

import reprlib

from stepvad.errors import DataError

MAX_JOINTS = 1000
"""Joints of a pose: whole bodies with hands and faces have some hundred."""
MAX_NAME = 1000
"""Characters in the name of a clip, a joint or a skeleton."""
MAX_EMPTY_FRAMES = 10_000_000
"""Frames without anybody in a file: 4 days at 30 frames a second."""
FRAMES_PER_POSE = 100
"""Further frames for every pose."""
MAX_JSON_BYTES = 1 << 30
"""Of a file with poses in JSON."""
MAX_LABEL_BYTES = 1 << 27
"""Of a file with labels, of a table of classes and of a file of events."""


def check_frames(n_frames: int, n_poses: int) -> None:
    """Refuse clips that are longer than their poses make likely."""
    most = MAX_EMPTY_FRAMES + FRAMES_PER_POSE * n_poses
    if n_frames > most:
        raise DataError(
            f"expected up to {most:,} frames with {n_poses:,} poses, got {n_frames:,}",
            hint="count frames from the start of the clip; split a recording of many days",
        )


def check_joints(n_joints: int) -> None:
    """Refuse poses of more joints than anything has."""
    if n_joints > MAX_JOINTS:
        raise DataError(
            f"expected up to {MAX_JOINTS} joints, got {n_joints:,}",
            hint="give the joints of a skeleton, not the points of a surface",
        )


def check_name(name: str) -> None:
    """Refuse names that nobody could read."""
    if len(name) > MAX_NAME:
        raise DataError(
            f"expected names of up to {MAX_NAME} characters, got {reprlib.repr(name)} "
            f"with {len(name):,}",
            hint="shorten the name",
        )
