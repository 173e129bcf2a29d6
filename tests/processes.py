"""Processes that tests start, forked or at work without end, and files that nobody may open.

It imports fast: others start from it.
"""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from stepvad.errors import DataError
from stepvad.files import replacing

ROOT = Path(__file__).parents[1]

FORKING = """
import os, sys
exec(sys.argv[1])
for line in sys.stdin:
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        main(*line.split())
        os._exit(0)
    os.wait()
    print(f"\\nover", flush=True)
"""


class Forks:
    """Runs `main(*words)` of a program in a process of its own, again and again.

    Each is a copy of one process that has imported what it needs: importing takes far longer.
    """

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", FORKING, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def start(self, *words: object) -> int:
        """Start one, as soon as the one before is over; its process."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return int(self.line())

    def line(self) -> str:
        """The next line that it writes."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def rest(self) -> list[str]:
        """The lines it wrote until it was over; a torn last one is left out."""
        lines = [*iter(self.line, "over\n")]
        return lines[:-1]


def wait_until_nobody_is_left(group: int) -> None:
    """Until a group of processes is gone; it fails if that takes long."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("processes outlive the sweep that started them")


LIMIT_S = 40.0
"""Most seconds for what takes a few, however busy the machine is."""


def begin(task: tuple[str, str]) -> None:
    """Work that takes minutes, that hangs, or that fails once another task has begun."""
    place, word = task
    begun = Path(place) / "begun"
    if word == "fail":
        wait_for(begun)
        raise DataError("expected patience, got none")
    with replacing(Path(place) / "scores") as temporary:
        temporary.write_text("personal")
        begun.touch()
        while True:
            try:
                time.sleep(300)
            except KeyboardInterrupt:
                if word != "hang":
                    raise


def answer(word: str) -> str:
    """Work of which one part answers, and the other does not."""
    if word != "at once":
        time.sleep(300)
    return word


def hang(pipe: Connection) -> None:
    """Work of a worker that reads nothing."""
    time.sleep(300)


def receive_and_hang(pipe: Connection) -> None:
    """Work of a worker that answers nothing."""
    pipe.recv()
    time.sleep(300)


def leave(pipe: Connection) -> None:
    """Work of a worker that ends at once."""


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


REASON = "No such device or address"


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Opening it fails with ENXIO; in the end it is back, and must not have been written to."""
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    os.mknod(path, stat.S_IFSOCK | 0o600)  # can be replaced, but not opened
    try:
        yield
        assert path.is_socket(), "the file was overwritten, deleted or set aside"
    finally:
        away.replace(path)


def raise_file_limit() -> None:
    """Let this process open many files, as the service of a site may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
