"""Disks that fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import pytest


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of a few megabytes."""

    path: Path

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.path / "fills").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """Give the space back."""
        (self.path / "fills").unlink()


@contextmanager
def small_disk(mb: int) -> Iterator[Disk]:
    """A disk of its own, where mounting is allowed; else the test is skipped."""
    path = Path(mkdtemp(prefix="disk-"))
    path.chmod(0o755)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mb}m,mode=755", "none", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        problem = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        problem = str(error)
    if problem:
        path.rmdir()
        pytest.skip(f"a small disk cannot be mounted: {problem}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()
