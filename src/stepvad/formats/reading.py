"""Bytes, JSON and limits of untrusted files: what every reader uses.

Real footage stays far below the limits. Readers check declared sizes before they allocate memory.
The limits are documented under Reference, File formats.
"""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stepvad.errors import DataError, os_reason
from stepvad.files import read_bounded

if TYPE_CHECKING:  # brings numpy, which `stepvad --help` does not need
    from stepvad.poses import Clip

MAX_DIGITS = 18
"""Most digits of an integer, so that it fits in 64 bits."""

MAX_JOINTS = 1000
"""Joints of a pose; whole bodies with hands and faces have a few hundred."""
MAX_PEOPLE = 1000
"""More people in one frame than a picture shows; every one of them takes time."""
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


class PoseFile:
    """A file or directory being read; its JSON is parsed once, to sniff and to read it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def document(self) -> object:
        """The parsed JSON of the file; errors name the file."""
        return load_json(self.path)


class FileFormat(NamedTuple):
    """A format of pose files: their suffixes, whether a file is of it, and its reader.

    The reader gets a frame rate that overrides that of the file, if any.
    """

    suffixes: tuple[str, ...]
    sniff: Callable[[PoseFile], bool]
    read: Callable[[PoseFile, float | None], Iterable[Clip]]
    is_directory: bool = False
    """A clip is a directory of such files."""


@contextmanager
def located(name: str) -> Iterator[None]:
    """Prefix a `DataError` with `name`."""
    try:
        yield
    except DataError as error:
        raise error.located(name) from error


def read_bytes(path: Path, *, most: int) -> bytes:
    """The contents of a file; one larger than `most` bytes, or endless, is rejected."""
    try:
        with located(str(path)):
            return read_bounded(path, most=most)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError) -> DataError:
    """The error for a file that the system cannot read, with the reason."""
    return DataError(
        f"{path}: expected a readable file, got: {os_reason(error)}",
        hint="check the path and its permissions",
    )


def children(directory: Path, *, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a directory with one of the suffixes, sorted by name, without hidden files."""
    try:
        entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(
            f"{directory}: expected a directory, got: {os_reason(error)}",
            hint="check the path",
        ) from error
    named = [entry for entry in entries if entry.name.lower().endswith(suffixes)]
    return [entry for entry in named if not entry.name.startswith(".") and entry.is_file()]


def load_json(path: Path) -> object:
    """Parse a JSON file; errors name the file.

    NaN and Infinity are accepted because pose estimators write them. An object with a duplicate
    key becomes `Repeated`.
    """
    data = read_bytes(path, most=MAX_JSON_BYTES)
    with located(str(path)):
        try:
            return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_object)
        except UnicodeDecodeError as error:
            raise DataError(
                f"expected JSON in UTF-8, got byte 0x{data[error.start]:02x} at {error.start}",
                hint="the file may be binary or damaged",
            ) from error
        except json.JSONDecodeError as error:
            raise DataError(
                f"expected JSON, got: {error.msg}, line {error.lineno} column {error.colno}",
                hint="the file may be truncated; write or copy it again",
            ) from error
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"expected JSON of a normal size, got: {error}",
                hint="this is not a pose file",
            ) from error


def described(value: object) -> str:
    """A short description of a JSON value for error messages.

    Text is not repeated: a browser may have a site read any file, and the text may be a secret.
    """
    match value:
        case str():
            return "text"
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object"
        case Repeated(key):
            return f"{key!r} twice"
        case _:
            return reprlib.repr(value)


def whole_number(value: object) -> int | None:
    """A non-negative integer, given as a number or in digits; None for anything else.

    >>> whole_number("0012"), whole_number(7.0), whole_number("-1"), whole_number(True)
    (12, 7, None, None)
    """
    match value:
        case bool():
            return None
        case str() if value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS:
            return int(value)
        case int() if 0 <= value < 10**MAX_DIGITS:
            return value
        case float() if value.is_integer() and 0 <= value < 10**MAX_DIGITS:
            return int(value)
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Repeated:
    """Placeholder for an object with a duplicate key; the caller knows the track it belongs to."""

    key: str


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


def check_people(n_people: int, where: str = "") -> None:
    """Reject a frame with more than `MAX_PEOPLE` people."""
    if n_people > MAX_PEOPLE:
        raise DataError(
            f"{where}expected up to {MAX_PEOPLE:,} people in a frame, got {n_people:,}",
            hint="number the frames one by one, or give each camera a file of its own",
        )


def check_name(name: str) -> None:
    """Reject names longer than `MAX_NAME` characters."""
    if len(name) > MAX_NAME:
        raise DataError(
            f"expected names of up to {MAX_NAME} characters, got {reprlib.repr(name)} "
            f"with {len(name):,}",
            hint="shorten the name",
        )


def _object(pairs: list[tuple[str, object]]) -> dict[str, object] | Repeated:
    """Build a dictionary, or `Repeated` if keys repeat: `dict` would silently keep the last."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
    return Repeated(key)
