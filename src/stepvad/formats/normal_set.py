"""The normal set beside a model: poses of events marked as normal, one file per event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from stepvad.formats import file_stem, write_clip
from stepvad.poses import Clip


def beside(model: Path) -> Path:
    """Directory of a model's normal set."""
    return model.with_suffix(".normal")


def update(directory: Path, clips: Mapping[str, Clip], dropped: Iterable[str]) -> None:
    """Write the poses of marked events, by id, and delete those of `dropped` events."""
    for id, clip in clips.items():
        directory.mkdir(exist_ok=True)
        write_clip(clip, directory / f"{file_stem(id)}.parquet")
    for id in dropped:
        (directory / f"{file_stem(id)}.parquet").unlink(missing_ok=True)
