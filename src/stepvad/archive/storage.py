"""Archive storage: a local directory or any fsspec URL. All archive I/O goes through here.

Pose files lie in directories such as `date=2026-05-01/camera=yard`, as a site records them, or in
any others; small files of one directory and date form a shard.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from stepvad.errors import DataError, MissingExtraError, StepvadError, os_reason
from stepvad.files import read_open, remove_leftovers, replacing
from stepvad.site.recorder import Recording

READ_AT_ONCE = 1 << 20
SMALL = 1 << 28
"""Size limit of a file read at once; a manifest has some hundred bytes per shard."""

SHARD_BYTES = 16_000_000
"""Small files of one camera and date are scored together up to this size."""
POSE_SUFFIX = ".parquet"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file: its path relative to the directory, with `/` separators, and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory by its URL; each process opens it for itself."""

    url: str
    only: str | None = None
    """The only file to use, if the URL was that of a file."""

    @classmethod
    def at(cls, text: str) -> Directory:
        """The directory at a path or URL, such as `s3://bucket/poses`; a file selects itself."""
        files, root = _file_system(text)
        if files.isfile(root):
            inside = PurePosixPath(root)
            return cls(files.unstrip_protocol(str(inside.parent)), inside.name)
        return cls(files.unstrip_protocol(root))

    @property
    def is_local(self) -> bool:
        """True for a local directory, where files can be renamed."""
        return self.url.startswith("file://")

    @property
    def is_shared(self) -> bool:
        """True if other processes can open it."""
        return not self.url.startswith("memory://")

    def files(self, suffix: str) -> list[StoredFile]:
        """Files at any depth with a suffix, sorted by name; hidden files are skipped."""
        files, root = _file_system(self.url)
        with _readable(self.url):
            found = files.find(root, detail=True)
        # paths below the directory, whatever the protocol; neither hidden nor temporary ones
        named = ((path[len(root) :].lstrip("/"), facts) for path, facts in found.items())
        return sorted(
            (
                StoredFile(name, int(facts["size"]))
                for name, facts in named
                if name.endswith(suffix)
                and self.only in (None, name)
                and not any(part[0] in "._" for part in name.split("/"))
            ),
            key=lambda stored: stored.name,
        )

    def exists(self, name: str) -> bool:
        """Tell if the file exists."""
        files, root = _file_system(self.url)
        return bool(files.isfile(_inside(root, name)))

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open a file for reading."""
        files, root = _file_system(self.url)
        with _readable(self.named(name)):
            opened = files.open(_inside(root, name), "rb")
        with opened as file:
            yield file

    def read_small(self, name: str, *, most: int = SMALL) -> bytes | None:
        """Read a small file; None if it does not exist, `DataError` if it is larger than `most`."""
        if not self.exists(name):
            return None
        with self.open(name) as file, _readable(self.named(name)):
            try:
                return read_open(file, most=most)
            except DataError as error:
                raise error.located(self.named(name)) from error

    def sha256(self, name: str) -> str:
        """SHA-256 of a file, read in chunks."""
        sha = hashlib.sha256()
        with self.open(name) as file, _readable(self.named(name)):
            while some := file.read(READ_AT_ONCE):
                sha.update(some)
        return sha.hexdigest()

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """Yield a temporary local file that atomically replaces this one, or is removed on error.

        Locally it is renamed; elsewhere it is uploaded, as object stores show only complete files.
        """
        files, root = _file_system(self.url)
        if self.is_local:
            path = Path(_inside(root, name))
            with _writable(self.named(name)):
                path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                yield temporary
            return
        with tempfile.TemporaryFile() as file:  # without a name: a kill leaves nothing behind
            temporary = Path(f"/proc/self/fd/{file.fileno()}")
            yield temporary
            with _writable(self.named(name)):
                files.makedirs(_inside(root, str(PurePosixPath(name).parent)), exist_ok=True)
                files.put_file(str(temporary), _inside(root, name))

    def delete(self, name: str) -> None:
        """Remove a file."""
        files, root = _file_system(self.url)
        with _writable(self.named(name)):
            files.rm_file(_inside(root, name))

    def remove_leftovers(self) -> None:
        """Remove old temporary files of killed runs."""
        if self.is_local:
            root = Path(_file_system(self.url)[1])
            for directory in (root, *(path for path in root.rglob("*") if path.is_dir())):
                remove_leftovers(directory)

    def named(self, name: str) -> str:
        """The name of a file in messages."""
        return f"{self.url.removeprefix('file://')}/{name}"


@dataclass(frozen=True, slots=True)
class ArchiveShard:
    """Pose files scored together; their scores form one file with the name of the first."""

    files: tuple[StoredFile, ...]

    @property
    def name(self) -> str:
        """Name of its score file: that of its first pose file, in their partition."""
        first = self.files[0].name
        return str(PurePosixPath(partition_of(first)) / PurePosixPath(first).name)

    @property
    def names(self) -> list[str]:
        """Names of its pose files."""
        return [file.name for file in self.files]

    @property
    def size(self) -> int:
        """Bytes of its poses."""
        return sum(file.size for file in self.files)


def group_shards(
    files: Iterable[StoredFile], *, most_bytes: int = SHARD_BYTES
) -> list[ArchiveShard]:
    """Group files in order into shards, joining small ones of the same partition."""
    made: list[ArchiveShard] = []
    for _, several in groupby(files, key=lambda file: partition_of(file.name)):
        # files of one partition, closed before they grow too large together
        waiting: list[StoredFile] = []
        for file in several:
            if waiting and sum(other.size for other in waiting) + file.size > most_bytes:
                made.append(ArchiveShard(tuple(waiting)))
                waiting = []
            waiting.append(file)
        made.append(ArchiveShard(tuple(waiting)))
    return made


def partition_of(name: str) -> str:
    """Directory for the scores of a pose file: its own, or Hive's for a recording of a site.

    `yard/yard-20260501T060000-000.parquet` belongs to `date=2026-05-01/camera=yard`, in UTC.
    """
    directory = PurePosixPath(name).parent
    recording = Recording.from_path(Path(name))
    if recording is None or directory.name not in ("", recording.camera):
        return str(directory)
    date = time.strftime("date=%Y-%m-%d", time.gmtime(recording.begin))
    return str(directory.parent / date / f"camera={recording.camera}")


def camera_of(name: str) -> str:
    """Camera of a pose file: its partition without the date, `a/yard` of `site=a/camera=yard`."""
    parts = PurePosixPath(partition_of(name)).parts
    return "/".join(part.rpartition("=")[2] for part in parts if not part.startswith("date="))


def _file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path on it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtraError("archive", "archive") from error
    try:
        files, root = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise StepvadError(
            f"{url}: expected a path, or a URL that fsspec opens, got: {error}",
            hint="install the package for this protocol, such as s3fs for s3://",
        ) from error
    return files, root.rstrip("/")


def _inside(root: str, name: str) -> str:
    return root if name == "." else f"{root}/{name}"


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{name}: expected a file that can be read, got: {os_reason(error)}",
            hint="check the path, its permissions and the connection",
        ) from error


@contextmanager
def _writable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StepvadError(
            f"{name}: expected a place that can be written, got: {os_reason(error)}",
            hint="check the path, its permissions and the free space",
        ) from error
