"""Anomaly classes of labelled frames: `gt/classes.csv`, one event per line."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.files.atomic import replacing
from stepvad.formats import files, limits
from stepvad.formats.jsonfile import whole_number
from stepvad.formats.labels import FrameLabels, find
from stepvad.model.scoring import true_runs

COLUMNS = ("clip", "class", "first", "last")
"""Clip, anomaly class, and first and last frame of the event."""


def write(labels: Mapping[str, FrameLabels], path: Path) -> None:
    """Write one line per contiguous event of each class."""
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(COLUMNS)
    for clip, truth in labels.items():
        for name, frames in truth.classes.items():
            lines.writerows([clip, name, first, end - 1] for first, end in true_runs(frames))
    with replacing(path, DataError) as temporary:
        temporary.write_text(text.getvalue(), encoding="utf-8")


def attach(labels: Mapping[str, FrameLabels], path: Path) -> dict[str, FrameLabels]:
    """Add the classes of a file, if it exists, to the labels; clips without labels are ignored."""
    if not path.exists():
        return dict(labels)
    found: dict[int, dict[str, NDArray[np.bool_]]] = {}
    for number, row in enumerate(_rows(path), start=2):
        truth = find(labels, row[0])
        if truth is not None:
            first, last = (whole_number(value) for value in row[2:])
            if first is None or last is None or not first <= last < len(truth):
                raise DataError(
                    f"{path}, line {number}: expected a first and a last frame below "
                    f"{len(truth)}, got {row[2]} and {row[3]}",
                    hint="frames count from 0",
                )
            classes = found.setdefault(id(truth), {})
            classes.setdefault(row[1], np.zeros(len(truth), dtype=np.bool_))[first : last + 1] = (
                True
            )
    try:
        return {
            clip: replace(truth, classes=found.get(id(truth), {})) for clip, truth in labels.items()
        }
    except DataError as error:
        raise error.located(str(path)) from error


def _rows(path: Path) -> list[list[str]]:
    """The rows below the header, four cells each."""
    try:
        header, *rows = csv.reader(
            StringIO(files.read_bytes(path, most=limits.MAX_LABEL_BYTES).decode("utf-8-sig"))
        )
    except (UnicodeDecodeError, ValueError, csv.Error):
        header, rows = [], []
    if header != list(COLUMNS) or any(len(row) != len(COLUMNS) for row in rows):
        raise DataError(
            f"{path}: expected the columns {', '.join(COLUMNS)} in UTF-8, got something else",
            hint="write one event per line, separated by commas",
        )
    return rows
