"""Frame scores as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stepvad.files.atomic import replacing
from stepvad.model.scoring import Scores

ROWS_AT_ONCE = 65_536


@contextmanager
def writing(path: Path | None) -> Iterator[Callable[[Scores], None]]:
    """Open a table of frame scores and yield the function that appends a clip.

    A frame without a score has an empty cell. The file is written atomically; without a path,
    nothing is written.
    """
    if path is None:
        yield lambda scores: None
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["clip", "frame", "score"])
        yield lambda scores: table.writerows(_rows(scores))


def _rows(scores: Scores) -> Iterator[tuple[str, int, str]]:
    """Yield one row per frame, converting only `ROWS_AT_ONCE` frames at a time."""
    frames = scores.frames
    for first in range(0, len(frames), ROWS_AT_ONCE):
        for frame, value in enumerate(frames[first : first + ROWS_AT_ONCE].tolist(), start=first):
            yield scores.clip, frame, "" if value != value else f"{value:.6g}"
