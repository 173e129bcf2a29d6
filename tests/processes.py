"""What tests of several rooms ask about processes that they started."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Self

import pytest

from tests.pages import ROOT

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
    pytest.fail("processes outlive the sweep that started them")
