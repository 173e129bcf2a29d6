"""Build a clip from keypoints in flat lists, three numbers for each of V joints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepvad import skeletons
from stepvad.errors import DataError
from stepvad.formats import limits
from stepvad.formats.jsonfile import shown
from stepvad.poses import Clip, Track, n_frames_of

Order = Literal["xyc", "yxc"]
"""Order of a joint's three numbers: x, y and confidence, or y, x and confidence."""


@dataclass(frozen=True, slots=True)
class PersonPoses:
    """Poses of one person as read from JSON, in any order and not yet validated."""

    track_id: int
    frames: list[int]
    keypoints: list[Any]


def clip_of(
    people: Sequence[PersonPoses], *, name: str, fps: float | None, order: Order = "xyc"
) -> Clip:
    """Build a clip of these people, sorted by track id, without those who have no pose.

    Every pose must have as many joints as the first. 17 and 18 joints have names, see
    `skeletons.of_size`. The clip ends with its last pose.
    """
    people = sorted((person for person in people if person.frames), key=lambda p: p.track_id)
    lists = (keypoints for person in people for keypoints in person.keypoints)
    n_values = next((len(keypoints) for keypoints in lists if isinstance(keypoints, list)), 0)
    limits.check_joints(n_values // 3)
    tracks = tuple(_track(person, n_values, order) for person in people)
    limits.check_frames(n_frames_of(tracks), sum(map(len, tracks)))
    skeleton = skeletons.of_size(n_values // 3) if tracks else skeletons.COCO17
    return Clip(name, fps, n_frames_of(tracks), tracks, skeleton)


def _track(person: PersonPoses, n_values: int, order: Order) -> Track:
    """Validate a person's poses and sort them by frame."""
    _check_keypoints(person, n_values)
    frames = np.array(person.frames, dtype=np.int64)
    in_order = np.argsort(frames, kind="stable")
    frames = frames[in_order]
    _check_distinct(person.track_id, frames)
    try:
        values = np.array(person.keypoints, dtype=np.float64)
    except OverflowError as error:
        raise _too_large(person) from error
    with np.errstate(over="ignore"):  # too large a number becomes infinite, which Track rejects
        poses = values.astype(np.float32).reshape(len(frames), -1, 3)[in_order]
    x, y = (0, 1) if order == "xyc" else (1, 0)
    return Track(person.track_id, frames, poses[..., [x, y]], poses[..., 2])


def _check_keypoints(person: PersonPoses, n_values: int) -> None:
    """Check all poses at once, and search for the invalid one only if that fails."""
    lists = person.keypoints
    if (
        set(map(type, lists)) == {list}
        and set(map(len, lists)) == {n_values}
        and n_values % 3 == 0
        and set(map(type, chain.from_iterable(lists))) <= {int, float}
        and n_values > 0
    ):
        return
    for frame, keypoints in zip(person.frames, lists, strict=True):
        problem = _problem(keypoints, n_values)
        if problem:
            raise DataError(
                f"track {person.track_id}, frame {frame}: {problem}",
                hint="give x, y and confidence of every joint in one flat list",
            )


def _problem(keypoints: object, n_values: int) -> str:
    """Describe the problem with the keypoints of one pose; empty if valid."""
    if not isinstance(keypoints, list):
        return f"expected keypoints as a list of numbers, got {shown(keypoints)}"
    if len(keypoints) == 0 or len(keypoints) % 3:
        return f"expected three numbers for each joint, got {len(keypoints)} numbers"
    if len(keypoints) != n_values:
        return f"expected {n_values} numbers, as in the first pose, got {len(keypoints)}"
    for at, value in enumerate(keypoints):
        if type(value) not in (int, float):
            return f"expected a number at place {at} of keypoints, got {shown(value)}"
    return ""


def _too_large(person: PersonPoses) -> DataError:
    """The error for an integer too large for a float."""
    frame = next(
        frame
        for frame, keypoints in zip(person.frames, person.keypoints, strict=True)
        if max(map(abs, keypoints)) > sys.float_info.max
    )
    return DataError(
        f"track {person.track_id}, frame {frame}: expected numbers in pixels, got one above 1e308",
        hint="the file may be damaged; write it again",
    )


def _check_distinct(track_id: int, frames: NDArray[np.int64]) -> None:
    """Reject two poses of one person in the same frame; `frames` are sorted."""
    repeated = np.flatnonzero(np.diff(frames) == 0)
    if len(repeated):
        frame = frames[repeated[0]]
        raise DataError(
            f"track {track_id}, frame {frame}: expected one pose per frame, got more",
            hint="keep one of them, or give the second person another track id",
        )
