"""AlphaPose tracked-person JSON, the format of ShanghaiTech, UBnormal and PoseLift (Sec. 4.1).

`{person: {frame: {"keypoints": [x, y, confidence] * V, "scores": number}}}`; a person may also be
a list of these frame tables. PoseLift stores (y, x, confidence) and a null score.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepvad.errors import DataError
from stepvad.files.atomic import replacing
from stepvad.formats.jsonfile import Repeated, shown, whole_number
from stepvad.formats.triplets import Order, PersonPoses, clip_of
from stepvad.poses import MAX_FRAME, Clip, Track

AlphaPoseLayout = Literal["auto", "alphapose", "poselift"]
SUFFIX = "_alphapose_tracked_person"
"""Suffix that the public releases put between a clip's name and `.json`."""

_log = logging.getLogger(__name__)


def clip_name(path: Path) -> str:
    """The name of a file's clip, following the naming of the public releases.

    >>> clip_name(Path("01_0014_alphapose_tracked_person.json"))
    '01_0014'
    """
    return path.stem.removesuffix(SUFFIX)


def parse(
    document: object, path: Path, *, layout: AlphaPoseLayout = "auto", fps: float | None
) -> Clip:
    """Build the clip from the parsed JSON of a file.

    Under `auto`, a file in which every score is null is read as PoseLift, and this is logged.
    Scores are the detector's and not bounded by 1, so they are never used as confidences.
    """
    people = list(_people(document))
    order: Order = "xyc"
    if layout == "poselift":
        order = "yxc"
    elif layout == "auto" and _all_scores_null(document):
        _log.info(
            "%s: every score is null, so joints are read as PoseLift gives them, (y, x, "
            "confidence); choose format 'alphapose' if they are (x, y, confidence)",
            path,
        )
        order = "yxc"
    return clip_of(people, name=clip_name(path), fps=fps, order=order)


def write(clip: Clip, path: Path) -> None:
    """Write a clip in AlphaPose's layout, which cannot store fps, length or joint names.

    Clips do not keep the detection score; the mean confidence of the pose replaces it.
    """
    with replacing(path, DataError) as temporary, temporary.open("w", encoding="utf-8") as out:
        # Not json.dump: it writes the same text ten times more slowly, without C.
        out.write(json.dumps({_key(track): _frames(track) for track in clip.tracks}))


def _people(document: object) -> Iterator[PersonPoses]:
    """Yield the persons of a file with their poses, not yet validated."""
    if not isinstance(document, dict):
        got = f"{document.key!r} twice" if isinstance(document, Repeated) else shown(document)
        raise DataError(
            f"expected an object of tracked persons, each with its own id, got {got}",
            hint="give AlphaPose's tracked-person JSON, or name the format",
        )
    for key, value in document.items():
        track_id = whole_number(key)
        if track_id is None:
            raise DataError(
                f"expected whole numbers as track ids, got {shown(key)}",
                hint="give AlphaPose's tracked-person JSON, name the format, or give the directory "
                "of OpenPose's files",
            )
        yield _person(track_id, value if isinstance(value, list) else [value])


def _person(track_id: int, tables: Iterable[object]) -> PersonPoses:
    """Build one person from one or more tables of frames."""
    frames: list[int] = []
    poses: list[Any] = []
    for table in tables:
        if not isinstance(table, dict):
            raise _not_frames(track_id, table)
        frames += [_frame(track_id, key) for key in table]
        poses += table.values()
    try:
        keypoints = [pose["keypoints"] for pose in poses]
    except (KeyError, TypeError) as error:
        raise _not_a_pose(track_id, frames, poses) from error
    return PersonPoses(track_id, frames, keypoints)


def _frame(track_id: int, key: str) -> int:
    frame = whole_number(key)
    if frame is None:
        raise DataError(
            f"track {track_id}, frame {shown(key)}: expected a frame number from 0 to {MAX_FRAME}",
            hint="number the frames from the start of the clip",
        )
    return frame


def _not_frames(track_id: int, table: object) -> DataError:
    """The error for a person whose value is not a table of frames."""
    if isinstance(table, Repeated):
        return DataError(
            f"track {track_id}, frame {table.key}: expected one pose per frame, got more",
            hint="keep one of them, or give the second person another track id",
        )
    return DataError(
        f"track {track_id}: expected an object of frames, got {shown(table)}",
        hint="give each person its poses by frame number",
    )


def _not_a_pose(track_id: int, frames: list[int], poses: list[Any]) -> DataError:
    """The error for the first pose without keypoints."""
    frame, pose = next(
        (frame, pose)
        for frame, pose in zip(frames, poses, strict=True)
        if not (isinstance(pose, dict) and "keypoints" in pose)
    )
    got = f"{pose.key!r} twice" if isinstance(pose, Repeated) else shown(pose)
    return DataError(
        f"track {track_id}, frame {frame}: expected an object with keypoints, got {got}",
        hint="give keypoints as x, y and confidence of every joint in one flat list",
    )


def _all_scores_null(document: Any) -> bool:
    """Whether there are poses and every score is null; `_people` has validated the document."""
    tables = [
        table
        for value in document.values()
        for table in (value if isinstance(value, list) else [value])
    ]
    scores = {type(pose.get("scores", 0)) for table in tables for pose in table.values()}
    return scores == {type(None)}


def _key(track: Track) -> str:
    """The person's key; readers accept only non-negative integers."""
    if track.id < 0:
        raise DataError(
            f"track {track.id}: expected a track id of at least 0, got {track.id}",
            hint="renumber the tracks, or write Parquet",
        )
    return str(track.id)


def _frames(track: Track) -> dict[str, dict[str, object]]:
    """The person's table of frames, as float64 so that every float32 is written exactly."""
    joined = np.concatenate([track.keypoints, track.confidence[..., None]], axis=2)
    keypoints = joined.reshape(len(track), -1).astype(np.float64).tolist()
    scores = np.clip(np.nan_to_num(track.confidence), 0, 1).mean(axis=1).tolist()
    return {
        f"{frame:04d}": {"keypoints": values, "scores": score}
        for frame, values, score in zip(track.frames.tolist(), keypoints, scores, strict=True)
    }
