"""The model to time, and the CSV file of results."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.evaluation.speed import SpeedResult
from stepvad.evaluation.walkers import make_clips
from stepvad.files.atomic import replacing
from stepvad.files.temporary import temporary_directory
from stepvad.progress import Report, silent


@contextmanager
def usual_model(model: Path | None = None, report: Report = silent) -> Iterator[Path]:
    """The given model, or a trained one of the paper's size: random weights behave differently."""
    if model is not None:
        yield model
        return
    config = replace(Config.short(), width=Config().width, max_steps=200)
    clips = (clip for clip, _ in make_clips(20, seed=0))
    with temporary_directory() as directory:
        path = directory / "model.safetensors"
        Detector.fit(clips, config, report=report).save(path)
        yield path


def write_csv(lines: Sequence[SpeedResult], path: Path) -> None:
    """Write the lines as CSV, atomically."""
    rows = [asdict(line) for line in lines]
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
