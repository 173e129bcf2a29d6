"""Checkpoints of an extraction: the networks' output in parts, to resume after a stop."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepvad.codec import decode, encode
from stepvad.errors import DataError, os_reason
from stepvad.files import bounded, npyfile, statefile
from stepvad.files.atomic import remove_leftovers, replacing
from stepvad.video.people import Boxes, People

logger = logging.getLogger(__name__)

PART_FRAMES = 50
"""Frames per part, the most that is lost: a few seconds of work."""
SETTINGS = "settings.json"
MAX_BYTES = 1 << 28
NAMES = (
    *("number", "epoch", "pts", "wall", "size", "n_people"),
    *("corners", "scores", "followed", "keypoints", "confidence"),
)
"""The arrays of a part."""
DAMAGED = (ValueError, TypeError, OverflowError, LookupError, DataError)
"""Exceptions raised on decoding a damaged part."""

PartOrigin = Mapping[str, str | float | None]
"""Provenance of poses: the networks, by checksum, and the settings."""


@dataclass(frozen=True, slots=True, eq=False)
class FoundPeople:
    """The people of one frame before tracking; `size` is width and height."""

    number: int
    epoch: int
    pts: float | None
    wall: float
    size: tuple[int, int]
    people: People


@dataclass(frozen=True, slots=True)
class PartSettings:
    """What is written beside the parts."""

    origin: dict[str, str | float | None]
    version: Literal[1] = 1
    """Version of the layout."""


class Parts:
    """A directory of the frames processed so far; leaving the `with` block flushes the rest.

    Parts are written atomically. Parts of a different origin are rejected: half a video from one
    network and half from another would look like a change in how people move. So are parts of a
    newer layout, and parts that cannot be read now.
    """

    def __init__(self, directory: Path, origin: PartOrigin, *, is_camera: bool = False) -> None:
        """`is_camera`: the frames cannot be extracted again, so a damaged part leaves a gap."""
        self._directory = directory
        self._waiting: list[FoundPeople] = []
        with _readable(directory):
            self._open(origin)
            self._next, files = 0, self._numbered()
            self._files, self.latest = self._intact(files) if is_camera else self._whole(files)

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()

    def __iter__(self) -> Iterator[FoundPeople]:
        """Iterate over all frames in order."""
        self.flush()
        for file in self._files:
            yield from _decoded(_content(file))

    def add(self, seen: FoundPeople) -> None:
        """Add a frame; a full part is flushed."""
        self._waiting.append(seen)
        self.latest = seen
        if len(self._waiting) >= PART_FRAMES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered frames as a part."""
        if self._waiting:
            path = self._directory / f"{self._next:06}.npz"
            with replacing(path, DataError) as temporary, temporary.open("wb") as file:
                np.savez(file, **_encoded(self._waiting))
            self._files.append(path)
            self._next += 1
            self._waiting = []

    def remove(self) -> None:
        """Remove the parts, once the poses have been saved."""
        self._waiting = []
        remove_parts(self._directory)

    def _open(self, origin: PartOrigin) -> None:
        """Create the directory, or check that an existing one has this origin."""
        settings = self._directory / SETTINGS
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self._directory}: expected a place for a directory, got: {os_reason(error)}",
                hint="choose another output directory",
            ) from error
        try:
            data = bounded.read(settings, most=MAX_BYTES)
        except FileNotFoundError:
            with replacing(settings, DataError) as temporary:
                temporary.write_bytes(encode(PartSettings({**origin})))
            return
        found = decode(PartSettings, data, f"{self._directory}: parts").origin
        check_origin(found, origin, self._directory)
        remove_leftovers(self._directory)

    def _numbered(self) -> list[Path]:
        """The files of parts, in order."""
        found = (f for f in self._directory.iterdir() if re.fullmatch(r"\d{6,}\.npz", f.name))
        return sorted(found, key=lambda file: int(file.stem))

    def _whole(self, files: Sequence[Path]) -> tuple[list[Path], FoundPeople | None]:
        """Intact parts from the first on, and their last frame; deletes those after a gap.

        A video is still there, so their frames are extracted again, in order.
        """
        kept, latest = list[Path](), None
        for number, file in enumerate(files):
            last = _last_frame(file) if int(file.stem) == number else None
            if last is None:
                break
            kept.append(file)
            latest = last
        for file in files[len(kept) :]:
            file.unlink()
        self._next = len(kept)
        return kept, latest

    def _intact(self, files: Sequence[Path]) -> tuple[list[Path], FoundPeople | None]:
        """All intact parts and their last frame; damaged ones are set aside."""
        kept, latest = list[Path](), None
        for file in files:
            last = _last_frame(file)
            if last is None:
                aside = statefile.set_aside(file)
                logger.warning("%s: damaged, its frames are left out; kept as %s", file, aside.name)
            else:
                kept.append(file)
                latest = last
            self._next = int(file.stem) + 1
        return kept, latest


def remove_parts(directory: Path) -> None:
    """Remove a directory of parts; those that were set aside as damaged stay."""
    files = [*directory.iterdir()]
    others = [file for file in files if statefile.DAMAGED not in file.name]
    if len(others) == len(files):
        shutil.rmtree(directory)
        return
    for file in others:
        file.unlink()


def check_origin(found: Mapping[str, object], expected: PartOrigin, place: Path) -> None:
    """Refuse poses that came about in another way."""
    other = [name for name, value in expected.items() if found.get(name) != value]
    if other:
        name = other[0]
        raise DataError(
            f"{place}: expected {name} {expected[name]}, got poses made with {found.get(name)}",
            hint="repeat the command that started it, use another output directory, or remove it",
        )


def _encoded(frames: Sequence[FoundPeople]) -> Mapping[str, Any]:
    people = [seen.people for seen in frames]
    return {
        "number": np.array([seen.number for seen in frames], np.int64),
        "epoch": np.array([seen.epoch for seen in frames], np.int64),
        "pts": np.array([np.nan if seen.pts is None else seen.pts for seen in frames]),
        "wall": np.array([seen.wall for seen in frames]),
        "size": np.array([seen.size for seen in frames], np.int64),
        "n_people": np.array([len(some) for some in people], np.int64),
        "corners": np.concatenate([some.boxes.corners for some in people]),
        "scores": np.concatenate([some.boxes.scores for some in people]),
        "followed": np.concatenate([some.boxes.followed for some in people]).astype(np.uint8),
        "keypoints": np.concatenate([some.keypoints for some in people]),
        "confidence": np.concatenate([some.confidence for some in people]),
    }


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raise failures of the disk as `DataError`."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or path}: expected a readable file, got: {os_reason(error)}",
            hint="no poses were deleted; run the command again",
        ) from error


def _content(file: Path) -> bytes:
    with _readable(file):
        return bounded.read(file, most=MAX_BYTES)


def _last_frame(file: Path) -> FoundPeople | None:
    """The last frame of a part, None if it is damaged; raise `OSError` if it cannot be read."""
    try:
        *_, last = _decoded(bounded.read(file, most=MAX_BYTES))
    except DAMAGED:
        return None
    return last


def _decoded(content: bytes) -> Iterator[FoundPeople]:
    part = npyfile.arrays(content, NAMES)
    ends = np.cumsum(part["n_people"])
    for at, end in enumerate(ends.tolist()):
        rows = slice(end - int(part["n_people"][at]), end)
        boxes = Boxes(part["corners"][rows], part["scores"][rows], part["followed"][rows] != 0)
        pts = float(part["pts"][at])
        yield FoundPeople(
            int(part["number"][at]),
            int(part["epoch"][at]),
            None if np.isnan(pts) else pts,
            float(part["wall"][at]),
            (int(part["size"][at, 0]), int(part["size"][at, 1])),
            People(boxes, part["keypoints"][rows], part["confidence"][rows]),
        )
