"""What people said of events, and how it changes training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from stepvad.codec import Positive
from stepvad.formats import file_stem, write_clip
from stepvad.poses import Clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A false alert: where it was and how high its score was."""

    camera: str
    peak: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Events marked as normal, and events whose mark was taken back."""

    normal: Mapping[str, Marked] = field(default_factory=dict)
    clips: Mapping[str, Clip] = field(default_factory=dict)
    """Poses of the normal events for which they are still stored."""
    not_normal: Sequence[str] = ()


SHARE = 0.05
"""Fraction of the training windows that show marked alerts."""


def repeated(
    marked: Sequence[Clip], windows: int, T: int, *, share: float = SHARE
) -> Iterator[Clip]:
    """Repeat marked clips until they reach `share` of this many training windows.

    Used only once, a few alerts would be lost among hours of footage.
    """
    own = sum(max(len(track) - T + 1, 0) for clip in marked for track in clip.tracks)
    times = max(round(share * windows / max(own, 1)), 1)
    for number, clip in product(range(times), marked):
        yield replace(clip, name=f"{clip.name} {number}")


def normal_set_path(model: Path) -> Path:
    """Directory of a model's normal set."""
    return model.with_suffix(".normal")


def update_normal_set(directory: Path, clips: Mapping[str, Clip], dropped: Iterable[str]) -> None:
    """Write the poses of marked events, by id, and delete those of `dropped` events."""
    for id, clip in clips.items():
        directory.mkdir(exist_ok=True)
        write_clip(clip, directory / f"{file_stem(id)}.parquet")
    for id in dropped:
        (directory / f"{file_stem(id)}.parquet").unlink(missing_ok=True)
