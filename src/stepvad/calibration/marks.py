"""What operators said of events, and a calibration or a model that follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stepvad.calibration import Calibration, Marked, from_counts
from stepvad.calibration.feedback import repeated
from stepvad.detector import Detector
from stepvad.poses import Clip
from stepvad.progress import Report, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Which events were normal, and which were not after all."""

    normal: Mapping[str, Marked] = field(default_factory=dict)
    clips: Mapping[str, Clip] = field(default_factory=dict)
    """Poses of those among the normal ones that still have them."""
    not_normal: Sequence[str] = ()


def recalibrate(before: Calibration, marks: Marks) -> Calibration:
    """The same calibration with thresholds that count the events marked as normal."""
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
    return replace(after, looks=before.looks)


def refit(
    detector: Detector,
    training: Iterable[Clip],
    marked: Sequence[Clip],
    *,
    report: Report = silent,
) -> Detector:
    """A model like this one that also learns what was marked as normal; calibrate it again."""
    clips = [*training]
    clips += repeated(marked, detector.origin.windows, detector.config.T)
    return Detector.fit(clips, detector.config, report=report)
