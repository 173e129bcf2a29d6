"""Checkpoints of an extraction: the networks' output in parts, to resume after a stop."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepvad.errors import DataError
from stepvad.files import bounded, npyfile
from stepvad.files.atomic import remove_leftovers, replacing
from stepvad.video.people import Boxes, People

PART_FRAMES = 50
"""Frames per part, the most that is lost: a few seconds of work."""
SETTINGS = "settings.json"
MAX_BYTES = 1 << 28
NAMES = (
    *("number", "epoch", "pts", "wall", "size", "n_people"),
    *("corners", "scores", "followed", "keypoints", "confidence"),
)
"""The arrays of a part."""
UNREADABLE = (OSError, ValueError, TypeError, OverflowError, LookupError, DataError)
"""Exceptions raised on reading a damaged part."""

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


class Parts:
    """A directory of the frames processed so far; leaving the `with` block flushes the rest.

    Parts are written atomically. Parts of a different origin are rejected: half a video from one
    network and half from another would look like a change in how people move.
    """

    def __init__(self, directory: Path, origin: PartOrigin) -> None:
        self._directory = directory
        self._waiting: list[FoundPeople] = []
        self._open(origin)
        self._n_parts, self.latest = self._whole()

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, *error: object) -> None:
        self.flush()

    def __iter__(self) -> Iterator[FoundPeople]:
        """Iterate over all frames in order."""
        self.flush()
        for number in range(self._n_parts):
            yield from _decoded(self._file(number))

    def add(self, seen: FoundPeople) -> None:
        """Add a frame; a full part is flushed."""
        self._waiting.append(seen)
        self.latest = seen
        if len(self._waiting) >= PART_FRAMES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered frames as a part."""
        if self._waiting:
            with (
                replacing(self._file(self._n_parts), DataError) as temporary,
                temporary.open("wb") as file,
            ):
                np.savez(file, **_encoded(self._waiting))
            self._n_parts += 1
            self._waiting = []

    def remove(self) -> None:
        """Remove the directory, once the poses have been saved."""
        self._waiting = []
        shutil.rmtree(self._directory)

    def _file(self, number: int) -> Path:
        return self._directory / f"{number:06}.npz"

    def _open(self, origin: PartOrigin) -> None:
        """Create the directory, or check that an existing one has this origin."""
        settings = self._directory / SETTINGS
        if settings.is_file():
            check_origin(_settings(settings), origin, self._directory)
            remove_leftovers(self._directory)
            return
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self._directory}: expected a place for a directory, got: {error.strerror}",
                hint="choose another output directory",
            ) from error
        with replacing(settings, DataError) as temporary:
            temporary.write_text(json.dumps(origin), "utf-8")

    def _whole(self) -> tuple[int, FoundPeople | None]:
        """Number of readable parts from the first on, and their last frame; deletes the rest."""
        number, latest = 0, None
        while self._file(number).is_file():
            try:
                *_, latest = _decoded(self._file(number))
            except UNREADABLE:
                break
            number += 1
        for file in self._directory.glob("*.npz"):
            if file.stem >= f"{number:06}":
                file.unlink()
        return number, latest


def check_origin(found: Mapping[str, object], expected: PartOrigin, place: Path) -> None:
    """Refuse poses that came about in another way."""
    other = [name for name, value in expected.items() if found.get(name) != value]
    if other:
        name = other[0]
        raise DataError(
            f"{place}: expected {name} {expected[name]}, got poses made with {found.get(name)}",
            hint="repeat the command that started it, use another output directory, or remove it",
        )


def _settings(file: Path) -> dict[str, object]:
    with suppress(OSError, ValueError, RecursionError, DataError):
        found = json.loads(bounded.read(file, most=MAX_BYTES))
        if isinstance(found, dict):
            return found
    return {}


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


def _decoded(file: Path) -> Iterator[FoundPeople]:
    part = npyfile.arrays(bounded.read(file, most=MAX_BYTES), NAMES)
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
