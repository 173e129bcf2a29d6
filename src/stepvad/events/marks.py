"""What people said of events, and how it changes thresholds and training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from stepvad.events.calibration import Calibration, from_counts
from stepvad.events.threshold import Marked
from stepvad.formats import file_stem, write_clip
from stepvad.poses import Clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Events marked as normal, and events whose mark was taken back."""

    normal: Mapping[str, Marked] = field(default_factory=dict)
    clips: Mapping[str, Clip] = field(default_factory=dict)
    """Poses of the normal events for which they are still stored."""
    not_normal: Sequence[str] = ()


def recalibrate(before: Calibration, marks: Marks) -> Calibration:
    """Update the thresholds of a calibration to count the events marked as normal."""
    gone = {*marks.not_normal}
    marked = {name: alert for name, alert in before.marked.items() if name not in gone}
    after = from_counts(
        before.counted,
        model_sha256=before.model_sha256,
        alerts_per_hour=before.threshold.alerts_per_hour,
        confidence=before.threshold.confidence,
        rules=before.rules,
        marked=marked | dict(marks.normal),
    )
    return replace(after, block_stats=before.block_stats, rates=before.rates)


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
