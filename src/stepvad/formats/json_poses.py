"""Poses in JSON: AlphaPose and PoseLift, COCO results, OpenPose and ultralytics (Sec. 4.1).

AlphaPose's tracked persons, the format of ShanghaiTech, UBnormal and PoseLift, are
`{person: {frame: {"keypoints": [x, y, confidence] * V, "scores": number}}}`; a person may also be
a list of these frame tables. PoseLift stores (y, x, confidence) and a null score.

COCO keypoint results with track ids, as trackers write them, are `[{"image_id": 7 or "000007.jpg",
"category_id": 1, "keypoints": [x, y, confidence] * V, "score": number, "track_id": 3}, …]`; the
track id may also be called `idx` or `id`.

OpenPose writes a directory with one `<video>_<frame>_keypoints.json` per frame. Results of
ultralytics are a list with `result.summary()` of each frame. People without ids are tracked.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from stepvad import skeletons
from stepvad.errors import DataError
from stepvad.files import replacing
from stepvad.formats import reading
from stepvad.formats.reading import FileFormat, PoseFile, Repeated, described, whole_number
from stepvad.poses import MAX_FRAME, Clip, Track, n_frames_of
from stepvad.tracker import FramePoses, clip_from_frames

logger = logging.getLogger(__name__)

TRACK_KEYS = ("track_id", "idx", "id")
"""Keys that may hold the track id of a COCO result, in order of preference."""
KEYPOINTS = "_keypoints.json"
"""Suffix of OpenPose's files."""

Order = Literal["xyc", "yxc"]
"""Order of a joint's three numbers: x, y and confidence, or y, x and confidence."""


def read_alphapose(file: PoseFile, fps: float | None, *, order: Order = "xyc") -> list[Clip]:
    """The clip of AlphaPose's tracked persons.

    Scores are the detector's and not bounded by 1, so they are never used as confidences.
    """
    document = file.document
    with reading.located(str(file.path)):
        people = [*_people(document)]
        return [clip_from_people(people, name=clip_name(file.path), fps=fps, order=order)]


def write_alphapose(clip: Clip, path: Path) -> None:
    """Write a clip in AlphaPose's layout, which cannot store fps, length or joint names.

    Clips do not keep the detection score; the mean confidence of the pose replaces it.
    """
    with replacing(path, DataError) as temporary, temporary.open("w", encoding="utf-8") as out:
        # Not json.dump: it writes the same text ten times more slowly, without C.
        out.write(json.dumps({_key(track): _frames(track) for track in clip.tracks}))


def is_poselift(file: PoseFile) -> bool:
    """Recognise PoseLift: tracked persons whose every score is null; logs it."""
    document = file.document
    if not isinstance(document, dict):
        return False
    values = document.values()
    tables = [table for one in values for table in (one if isinstance(one, list) else [one])]
    poses = [pose for table in tables if isinstance(table, dict) for pose in table.values()]
    scores = [pose.get("scores", 0) if isinstance(pose, dict) else 0 for pose in poses]
    if not scores or any(score is not None for score in scores):
        return False
    logger.info(
        "%s: every score is null, so joints are read as PoseLift gives them, (y, x, "
        "confidence); choose format 'alphapose' if they are (x, y, confidence)",
        file.path,
    )
    return True


def clip_name(path: Path) -> str:
    """The name of a file's clip, following the naming of the public releases.

    >>> clip_name(Path("01_0014_alphapose_tracked_person.json"))
    '01_0014'
    """
    return path.stem.removesuffix("_alphapose_tracked_person")


ALPHAPOSE = FileFormat((".json",), lambda file: True, read_alphapose)
POSELIFT = FileFormat((".json",), is_poselift, partial(read_alphapose, order="yxc"))


def read_coco(file: PoseFile, fps: float | None) -> list[Clip]:
    """The clip of COCO keypoint results; their category and score are ignored."""
    document = file.document
    with reading.located(str(file.path)):
        if not isinstance(document, list):
            raise DataError(
                f"expected a list of keypoint results, got {described(document)}",
                hint="give COCO keypoint results, or name the format",
            )
        people: dict[int, PersonPoses] = {}
        for at, result in enumerate(document):
            track_id, frame, keypoints = _pose(at, result)
            person = people.setdefault(track_id, PersonPoses(track_id, [], []))
            person.frames.append(frame)
            person.keypoints.append(keypoints)
        return [clip_from_people(list(people.values()), name=file.path.stem, fps=fps)]


# tried after ultralytics, whose lists hold a list for each frame
COCO = FileFormat((".json",), lambda file: isinstance(file.document, list), read_coco)


def read_ultralytics(file: PoseFile, fps: float | None) -> list[Clip]:
    """The clip of a list with the people of each frame, as ultralytics gives them."""
    document = file.document
    with reading.located(str(file.path)):
        if not isinstance(document, list) or not all(isinstance(one, list) for one in document):
            raise DataError(
                f"expected a list with a list of people for each frame, got {described(document)}",
                hint="write [result.summary() for result in results]",
            )
        frames = (
            _people_of_frame(from_summary, frame, f"frame {number}")
            for number, frame in enumerate(document)
        )
        return [clip_from_frames(frames, file.path.stem, fps=fps)]


def is_ultralytics(file: PoseFile) -> bool:
    """Recognise a list of frames, each a list of people."""
    document = file.document
    return isinstance(document, list) and bool(document) and isinstance(document[0], list)


def from_summary(people: Sequence[Mapping[str, Any]]) -> FramePoses:
    """People as ultralytics' `summary()` and `to_json()` give them."""
    if not people:
        return FramePoses.from_arrays([])
    with _as_data_error(
        "people with keypoints, box and confidence",
        hint="give what result.summary() of a pose model returns",
    ):
        # joints (N, V, 2) and their confidence (N, V), boxes (N, 4), scores and ids (N,)
        joints = [one["keypoints"] for one in people]
        xy = np.array([(some["x"], some["y"]) for some in joints], np.float64).swapaxes(1, 2)
        seen = [some.get("visible", np.ones(len(some["x"]))) for some in joints]
        boxes = [[one["box"][side] for side in ("x1", "y1", "x2", "y2")] for one in people]
        scores = [one["confidence"] for one in people]
        tracked = all("track_id" in one for one in people)
        ids = [one["track_id"] for one in people] if tracked else None
        return FramePoses.from_arrays(xy, seen, ids=ids, boxes=boxes, scores=scores)


ULTRALYTICS = FileFormat((".json",), is_ultralytics, read_ultralytics)


def read_openpose(directory: PoseFile, fps: float | None) -> list[Clip]:
    """The clip of a directory with a file per frame; it is named like the directory."""
    found: dict[int, FramePoses] = {}
    for path in reading.children(directory.path, suffixes=(KEYPOINTS,)):
        frame = _frame_of_file(path)
        if frame in found:
            raise DataError(
                f"{path}: expected one file for frame {frame}, got another",
                hint="give each video its own directory",
            )
        reading.check_frames(frame + 1, len(found))
        found[frame] = _people_of_frame(from_openpose, reading.load_json(path), str(path))
    # a frame without a file has no people
    nobody = FramePoses.from_arrays([])
    frames = (found.get(n, nobody) for n in range(max(found) + 1))
    with reading.located(str(directory.path)):
        return [clip_from_frames(frames, directory.path.name, fps=fps)]


def is_openpose(directory: PoseFile) -> bool:
    """Recognise a directory that OpenPose wrote."""
    path = directory.path
    return path.is_dir() and any(path.glob(f"[!.]*{KEYPOINTS}"))


def from_openpose(document: Any) -> FramePoses:
    """The parsed JSON that OpenPose writes for one frame; BODY_25 or its 18 joints of COCO."""
    with _as_data_error(
        "people, each with x, y and confidence of the same joints under pose_keypoints_2d",
        hint="give what OpenPose writes with --write_json",
    ):
        people = document["people"]
        joints = np.array([np.reshape(p["pose_keypoints_2d"], (-1, 3)) for p in people], np.float64)
        ids = [int(person.get("person_id", [-1])[0]) for person in people]
    if not people:
        return FramePoses.from_arrays([])
    tracked = min(ids) >= 0  # -1: OpenPose did not track
    return FramePoses.from_arrays(joints[..., :2], joints[..., 2], ids=ids if tracked else None)


OPENPOSE = FileFormat((KEYPOINTS,), is_openpose, read_openpose, is_directory=True)


@dataclass(frozen=True, slots=True)
class PersonPoses:
    """Poses of one person as read from JSON, in any order and not yet validated."""

    track_id: int
    frames: list[int]
    keypoints: list[Any]


def clip_from_people(
    people: Sequence[PersonPoses], *, name: str, fps: float | None, order: Order = "xyc"
) -> Clip:
    """Build a clip of these people, sorted by track id, without those who have no pose.

    Every pose must have as many joints as the first. 17 and 18 joints have names, see
    `skeletons.of_size`. The clip ends with its last pose.
    """
    people = sorted((person for person in people if person.frames), key=lambda p: p.track_id)
    # the first list of keypoints says how many joints there are
    lists = (keypoints for person in people for keypoints in person.keypoints)
    n_values = next((len(keypoints) for keypoints in lists if isinstance(keypoints, list)), 0)
    reading.check_joints(n_values // 3)
    # the fullest frame, before anything is made of its people
    in_frame = Counter(chain.from_iterable(person.frames for person in people))
    for frame, n_people in in_frame.most_common(1):
        reading.check_people(n_people, f"frame {frame}: ")
    tracks = tuple(_track(person, n_values, order) for person in people)
    reading.check_frames(n_frames_of(tracks), sum(map(len, tracks)))
    skeleton = skeletons.of_size(n_values // 3) if tracks else skeletons.COCO17
    return Clip(name, fps, n_frames_of(tracks), tracks, skeleton)


def _people(document: object) -> Iterator[PersonPoses]:
    """Yield the tracked persons of AlphaPose with their poses, not yet validated."""
    if not isinstance(document, dict):
        raise DataError(
            f"expected an object of tracked persons, each with its own id, got "
            f"{described(document)}",
            hint="give AlphaPose's tracked-person JSON, or name the format",
        )
    for key, value in document.items():
        track_id = whole_number(key)
        if track_id is None:
            raise DataError(
                f"expected whole numbers as track ids, got {described(key)}",
                hint="give AlphaPose's tracked-person JSON, name the format, or give the directory "
                "of OpenPose's files",
            )
        yield _person(track_id, value if isinstance(value, list) else [value])


def _person(track_id: int, tables: Iterable[object]) -> PersonPoses:
    """Build one person from one or more tables of frames."""
    person = PersonPoses(track_id, [], [])
    for table in tables:
        if isinstance(table, Repeated):
            raise _repeated(track_id, table.key)
        if not isinstance(table, dict):
            raise DataError(
                f"track {track_id}: expected an object of frames, got {described(table)}",
                hint="give each person its poses by frame number",
            )
        for key, pose in table.items():
            frame = whole_number(key)
            if frame is None:
                raise DataError(
                    f"track {track_id}, frame {described(key)}: expected a frame number from 0 to "
                    f"{MAX_FRAME}",
                    hint="number the frames from the start of the clip",
                )
            if not (isinstance(pose, dict) and "keypoints" in pose):
                raise DataError(
                    f"track {track_id}, frame {frame}: expected an object with keypoints, "
                    f"got {described(pose)}",
                    hint="give keypoints as x, y and confidence of every joint in one flat list",
                )
            person.frames.append(frame)
            person.keypoints.append(pose["keypoints"])
    return person


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
    # x, y and confidence of all joints in one row per pose, (n, 3 V)
    joined = np.concatenate([track.keypoints, track.confidence[..., None]], axis=2)
    keypoints = joined.reshape(len(track), -1).astype(np.float64).tolist()
    scores = np.clip(np.nan_to_num(track.confidence), 0, 1).mean(axis=1).tolist()
    return {
        f"{frame:04d}": {"keypoints": values, "scores": score}
        for frame, values, score in zip(track.frames.tolist(), keypoints, scores, strict=True)
    }


def _pose(at: int, result: object) -> tuple[int, int, object]:
    """Track id, frame and keypoints of the COCO result at index `at`."""
    if not isinstance(result, dict):
        raise DataError(
            f"result {at}: expected an object with keypoints, got {described(result)}",
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
            f"result {at}: expected a whole number, 0 or more, as {key}, "
            f"got {described(result[key])}",
            hint="leave out poses that the tracker did not assign",
        )
    # a frame number, or the last number in a file name: 12 for cam3/frame_0012.jpg
    image = result.get("image_id")
    if isinstance(image, str):
        frame = _last_number(PurePosixPath(image).stem)
    else:
        frame = whole_number(image)
    if frame is None or frame > MAX_FRAME:
        raise DataError(
            f"track {track_id}, result {at}: expected image_id as a frame number from 0 to "
            f"{MAX_FRAME} or a file name with one, got {described(image)}",
            hint="name the images by frame number",
        )
    return track_id, frame, result.get("keypoints")


def _frame_of_file(path: Path) -> int:
    """The frame that a file of OpenPose is of: 12 for `lobby_000000000012_keypoints.json`."""
    number = _last_number(path.name.removesuffix(KEYPOINTS))
    if number is None:
        raise DataError(
            f"{path}: expected a frame number before {KEYPOINTS}, got none",
            hint="name the files as OpenPose does",
        )
    return number


def _last_number(text: str) -> int | None:
    numbers = re.findall("[0-9]+", text)
    return whole_number(numbers[-1]) if numbers else None


def _people_of_frame(read: Callable[[Any], FramePoses], document: object, where: str) -> FramePoses:
    """The people of one frame; errors name it."""
    with reading.located(where):
        people = read(document)
        reading.check_people(len(people.keypoints))
        reading.check_joints(people.skeleton.V)
    return people


def _track(person: PersonPoses, n_values: int, order: Order) -> Track:
    """Validate a person's poses and sort them by frame."""
    lists = person.keypoints
    # all poses at once; the invalid one is searched for only if that fails
    is_valid = (
        set(map(type, lists)) == {list}
        and set(map(len, lists)) == {n_values}
        and n_values % 3 == 0
        and set(map(type, chain.from_iterable(lists))) <= {int, float}
        and n_values > 0
    )
    if not is_valid:
        raise _invalid(person, n_values)
    # frames in order of time, (n,)
    frames = np.array(person.frames, dtype=np.int64)
    in_order = np.argsort(frames, kind="stable")
    frames = frames[in_order]
    repeated = np.flatnonzero(np.diff(frames) == 0)
    if len(repeated):
        raise _repeated(person.track_id, frames[repeated[0]])
    # every joint's three numbers in order of time, (n, V, 3)
    try:
        values = np.array(lists, dtype=np.float64)
    except OverflowError as error:
        raise _invalid(person, n_values) from error
    with np.errstate(over="ignore"):  # too large a number becomes infinite, which Track rejects
        poses = values.astype(np.float32).reshape(len(frames), -1, 3)[in_order]
    x, y = (0, 1) if order == "xyc" else (1, 0)
    return Track(person.track_id, frames, poses[..., [x, y]], poses[..., 2])


def _invalid(person: PersonPoses, n_values: int) -> DataError:
    """The error for the first invalid pose of a person."""
    frame, problem = next(
        (frame, problem)
        for frame, keypoints in zip(person.frames, person.keypoints, strict=True)
        if (problem := _problem(keypoints, n_values))
    )
    return DataError(
        f"track {person.track_id}, frame {frame}: {problem}",
        hint="give x, y and confidence of every joint in one flat list",
    )


def _problem(keypoints: object, n_values: int) -> str:
    """Describe the problem with the keypoints of one pose; empty if valid."""
    if not isinstance(keypoints, list):
        return f"expected keypoints as a list of numbers, got {described(keypoints)}"
    if len(keypoints) == 0 or len(keypoints) % 3:
        return f"expected three numbers for each joint, got {len(keypoints)} numbers"
    if len(keypoints) != n_values:
        return f"expected {n_values} numbers, as in the first pose, got {len(keypoints)}"
    for at, value in enumerate(keypoints):
        if type(value) not in (int, float):
            return f"expected a number at place {at} of keypoints, got {described(value)}"
        if abs(value) > sys.float_info.max and type(value) is int:
            return "expected numbers in pixels, got one above 1e308"
    return ""


def _repeated(track_id: int, frame: object) -> DataError:
    """The error for two poses of one person in the same frame."""
    return DataError(
        f"track {track_id}, frame {frame}: expected one pose per frame, got more",
        hint="keep one of them, or give the second person another track id",
    )


@contextmanager
def _as_data_error(expected: str, *, hint: str) -> Iterator[None]:
    """Convert errors of reading a document as something that it is not."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise DataError(f"expected {expected}, got something else", hint=hint) from error
