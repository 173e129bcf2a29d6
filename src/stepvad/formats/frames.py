"""Files with people by frame, of OpenPose and ultralytics; people without ids are tracked.

OpenPose writes a directory with one `<video>_<frame>_keypoints.json` per frame. Results of
ultralytics are a list with `result.summary()` of each frame.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stepvad import interop
from stepvad.errors import DataError
from stepvad.formats import files, jsonfile, limits
from stepvad.interop import FramePoses
from stepvad.poses import Clip

OPENPOSE = "_keypoints.json"
"""How the names of OpenPose's files end."""


def is_openpose(path: Path) -> bool:
    """Whether a path is a directory that OpenPose wrote."""
    return path.is_dir() and any(path.glob(f"[!.]*{OPENPOSE}"))


def openpose_directories(path: Path) -> list[Path]:
    """The directories in a directory that OpenPose wrote."""
    try:
        return [child for child in path.iterdir() if is_openpose(child)]
    except OSError as error:
        raise files.unreadable(path, error) from error


def is_ultralytics(document: object) -> bool:
    """Whether parsed JSON is a list of frames, each a list of people."""
    return isinstance(document, list) and bool(document) and isinstance(document[0], list)


def read_openpose(directory: Path, *, fps: float | None) -> Clip:
    """The clip of a directory; it is named like the directory."""
    found: dict[int, FramePoses] = {}
    for path in files.children(directory, suffixes=(OPENPOSE,)):
        frame = _number(path)
        if frame in found:
            raise DataError(
                f"{path}: expected one file for frame {frame}, got another",
                hint="give each video its own directory",
            )
        limits.check_frames(frame + 1, len(found))
        found[frame] = _parsed(interop.from_openpose, jsonfile.load(path), str(path))
    frames = (found.get(n, _NOBODY) for n in range(max(found) + 1))
    return _clip(frames, directory.name, fps, str(directory))


def parse_ultralytics(document: object, path: Path, *, fps: float | None) -> Clip:
    """Build the clip from the parsed JSON of a file; the file name names it."""
    if not isinstance(document, list) or not all(isinstance(frame, list) for frame in document):
        raise DataError(
            f"expected a list with a list of people for each frame, got {jsonfile.shown(document)}",
            hint="write [result.summary() for result in results]",
        )
    frames = (
        _parsed(interop.from_ultralytics, frame, f"frame {number}")
        for number, frame in enumerate(document)
    )
    return _clip(frames, path.stem, fps, "")


_NOBODY = FramePoses.of([])


def _clip(frames: Iterable[FramePoses], name: str, fps: float | None, where: str) -> Clip:
    try:
        return interop.clip_from_frames(frames, name, fps=fps)
    except DataError as error:
        raise error.located(where) if where else error from error


def _parsed(read: Callable[[Any], FramePoses], document: object, where: str) -> FramePoses:
    """The people of one frame; errors name it."""
    try:
        people = read(document)
        limits.check_joints(people.skeleton.V)
    except DataError as error:
        raise error.located(where) from error
    return people


def _number(path: Path) -> int:
    """The frame that a file is of: 12 for `lobby_000000000012_keypoints.json`."""
    digits = re.findall("[0-9]+", path.name.removesuffix(OPENPOSE))
    number = jsonfile.whole_number(digits[-1]) if digits else None
    if number is None:
        raise DataError(
            f"{path}: expected a frame number before {OPENPOSE}, got none",
            hint="name the files as OpenPose does",
        )
    return number
