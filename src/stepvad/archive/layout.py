"""Archive layout: `date=2026-05-01/camera=yard/*.parquet`, or any other directories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath
from urllib.parse import unquote

from stepvad.archive.storage import StoredFile

SHARD_BYTES = 16_000_000
"""Small files of one camera and date are scored together up to this size."""
SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class ArchiveShard:
    """Pose files scored together; their scores form one file with the name of the first."""

    files: tuple[StoredFile, ...]

    @property
    def name(self) -> str:
        """Name of its score file, the same as that of its first pose file."""
        return self.files[0].name

    @property
    def size(self) -> int:
        """Bytes of its poses."""
        return sum(file.size for file in self.files)


def shards(files: Iterable[StoredFile], *, most_bytes: int = SHARD_BYTES) -> list[ArchiveShard]:
    """Group files in order into shards, joining small ones of the same directory."""
    made: list[ArchiveShard] = []
    for _, several in groupby(files, key=lambda file: directory(file.name)):
        waiting: list[StoredFile] = []
        for file in several:
            if waiting and sum(other.size for other in waiting) + file.size > most_bytes:
                made.append(ArchiveShard(tuple(waiting)))
                waiting = []
            waiting.append(file)
        made.append(ArchiveShard(tuple(waiting)))
    return made


def directory(name: str) -> str:
    """The directory of a file."""
    return str(PurePosixPath(name).parent)


def camera_of(name: str) -> str:
    """The camera of a file: the value of `camera=`, or else the name of its directory."""
    return _value(name, "camera") or unquote(PurePosixPath(name).parent.name) or "-"


def date_of(name: str) -> str:
    """The date of a file from `date=` in its path; `-` if there is none."""
    return _value(name, "date") or "-"


def _value(name: str, key: str) -> str | None:
    """The value of `key=value` among the directories of a file."""
    found = [part for part in name.split("/")[:-1] if part.startswith(f"{key}=")]
    return unquote(found[-1].partition("=")[2]) if found else None
