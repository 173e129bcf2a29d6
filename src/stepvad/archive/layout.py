"""Archive layout: `date=2026-05-01/camera=yard/*.parquet`, or any other directories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePosixPath

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
