"""COCO keypoint results with track ids, as written by trackers on top of pose estimators.

`[{"image_id": 7 or "000007.jpg", "category_id": 1, "keypoints": [x, y, confidence] * V, "score":
number, "track_id": 3}, …]`; the track id may also be called `idx` or `id`.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from stepvad.errors import DataError
from stepvad.formats.jsonfile import Repeated, shown, whole_number
from stepvad.formats.triplets import PersonPoses, clip_of
from stepvad.poses import MAX_FRAME, Clip

TRACK_KEYS = ("track_id", "idx", "id")
"""Keys that may hold the track id, in order of preference."""


def parse(document: object, path: Path, *, fps: float | None) -> Clip:
    """Build the clip from the parsed JSON of a file; the file name names it.

    The category and score of a result are ignored.
    """
    if not isinstance(document, list):
        raise DataError(
            f"expected a list of keypoint results, got {shown(document)}",
            hint="give COCO keypoint results, or name the format",
        )
    people: dict[int, PersonPoses] = {}
    for at, result in enumerate(document):
        track_id, frame, keypoints = _pose(at, result)
        person = people.setdefault(track_id, PersonPoses(track_id, [], []))
        person.frames.append(frame)
        person.keypoints.append(keypoints)
    return clip_of(list(people.values()), name=path.stem, fps=fps)


def _pose(at: int, result: object) -> tuple[int, int, object]:
    """Track id, frame and keypoints of the result at index `at`."""
    if not isinstance(result, dict):
        got = f"{result.key!r} twice" if isinstance(result, Repeated) else shown(result)
        raise DataError(
            f"result {at}: expected an object with keypoints, got {got}",
            hint="give one object per person and frame",
        )
    key = next((key for key in TRACK_KEYS if result.get(key) is not None), None)
    if key is None:
        raise DataError(
            f"result {at}: expected a track id under {', '.join(TRACK_KEYS)}, got none",
            hint="run a tracker over the poses first",
        )
    track_id = whole_number(result[key])
    if track_id is None:
        raise DataError(
            f"result {at}: expected a whole number, 0 or more, as {key}, got {shown(result[key])}",
            hint="leave out poses that the tracker did not assign",
        )
    frame = _frame(result.get("image_id"))
    if frame is None or frame > MAX_FRAME:
        raise DataError(
            f"track {track_id}, result {at}: expected image_id as a frame number from 0 to "
            f"{MAX_FRAME} or a file name with one, got {shown(result.get('image_id'))}",
            hint="name the images by frame number",
        )
    return track_id, frame, result.get("keypoints")


def _frame(image_id: object) -> int | None:
    """A frame number, or the last number in a file name: 12 for `cam3/frame_0012.jpg`."""
    if not isinstance(image_id, str):
        return whole_number(image_id)
    numbers = re.findall("[0-9]+", PurePosixPath(image_id).stem)
    return whole_number(numbers[-1]) if numbers else None
