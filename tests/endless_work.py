"""Work of which a part takes far longer than a test, in a module that imports fast."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

from stepvad.errors import DataError
from stepvad.files import replacing

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
