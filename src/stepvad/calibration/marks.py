"""Operators' marks on events, and the recalibration that uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stepvad.calibration import Calibration, Marked, from_counts
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
    return replace(after, looks=before.looks, rates=before.rates)
