"""Thresholds calibrated on normal footage alone, and drift since then."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from stepvad.calibration.counting import Counted, NormalClip, levels_of
from stepvad.calibration.drift import BlockStats
from stepvad.calibration.feedback import Marked, with_marked
from stepvad.calibration.promise import Threshold, threshold_for, threshold_or_guess
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError
from stepvad.incidents.events import Rules, without_muted
from stepvad.poses import Clip

__all__ = [
    "RULES",
    "Calibration",
    "Counted",
    "Marked",
    "NormalClip",
    "Threshold",
    "calibrate",
    "calibrate_cameras",
    "from_counts",
]

RULES = Rules(threshold=1.0)
"""Default rules for events; a calibration sets its own threshold."""
SAME_RATE = 0.01
"""Relative difference up to which two frame rates are one: 29.97 and 30."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Thresholds derived from normal footage, for all cameras together and for each."""

    model_sha256: str
    """Digest of the model that gave the scores."""
    rules: Rules
    """Rules for events, with the threshold for all cameras."""
    threshold: Threshold
    cameras: Mapping[str, Threshold] = field(default_factory=dict)
    """Thresholds of cameras with enough footage of their own to keep the promise."""
    counted: Mapping[str, Counted] = field(default_factory=dict)
    """Events of each camera at all levels; lets more footage be added later."""
    marked: Mapping[str, Marked] = field(default_factory=dict)
    """Alerts marked as normal, by id."""
    looks: Mapping[str, BlockStats] = field(default_factory=dict)
    """Statistics of each camera's footage, to detect drift."""
    rates: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Frames per second of each camera's footage, ascending; empty if it states none."""

    def rules_of(self, camera: str) -> Rules:
        """Rules for events of a camera, with its own threshold or else the one for all."""
        return replace(self.rules, threshold=self.cameras.get(camera, self.threshold).value)

    def rate_note(self, config: Config, fps: float, camera: str | None = None) -> str | None:
        """Why its thresholds do not hold for footage of this frame rate; None if they do.

        A model that resamples has comparable scores at every rate.
        """
        own = self.rates.get(camera or "", ())
        known = own if camera in self.cameras else sorted({*chain(*self.rates.values())})
        is_same = any(math.isclose(fps, rate, rel_tol=SAME_RATE) for rate in known)
        if not known or is_same or (config.clock and config.fps is not None):
            return None
        rates = " and ".join(f"{rate:g}" for rate in known)
        return (
            f"the threshold was calibrated on footage of {rates} frames per second, this footage "
            f"has {fps:g}: its promise does not hold; calibrate on footage of {fps:g} per second, "
            "or fit with --clock"
        )


def calibrate(
    detector: Detector,
    clips: Iterable[Clip],
    *,
    alerts_per_hour: float,
    confidence: float = 0.95,
    rules: Rules = RULES,
    fps: float | None = None,
) -> Threshold:
    """The lowest threshold that promises at most `alerts_per_hour` false events per camera-hour.

    `clips` must show normal behaviour, and the detector must not be fitted on them. `rules` define
    events; their own threshold is ignored. `fps` is the frame rate of clips without a rate.

    Raises:
        DataError: If the footage cannot support the promise; says how much more is needed.
    """
    scored = [NormalClip.of(clip, detector.score(clip.with_rate(fps)), fps) for clip in clips]
    levels = levels_of([without_muted(one.windows, rules).A for one in scored])
    counted = Counted.of(scored, levels, rules)
    return threshold_for(counted, alerts_per_hour, confidence=confidence)


def calibrate_cameras(
    footage: Mapping[str, Sequence[NormalClip]],
    *,
    model_sha256: str,
    alerts_per_hour: float,
    confidence: float = 0.95,
    rules: Rules = RULES,
) -> Calibration:
    """Find thresholds for all cameras together and for each, with everything a site stores.

    `footage` holds scored normal clips of each camera that the model was not fitted on. If it is
    too little for the promise, the threshold is provisional and promises nothing.
    """
    every = [clip.windows for clips in footage.values() for clip in clips]
    levels = levels_of([without_muted(windows, rules).A for windows in every])
    counted = {name: Counted.of(clips, levels, rules) for name, clips in footage.items()}
    made = from_counts(
        counted,
        model_sha256=model_sha256,
        alerts_per_hour=alerts_per_hour,
        confidence=confidence,
        rules=rules,
    )
    rates = {name: tuple(sorted({clip.fps for clip in clips})) for name, clips in footage.items()}
    return replace(made, rates=rates)


def from_counts(
    counted: Mapping[str, Counted],
    *,
    model_sha256: str,
    alerts_per_hour: float,
    confidence: float,
    rules: Rules,
    marked: Mapping[str, Marked] | None = None,
) -> Calibration:
    """Thresholds from events already counted and alerts marked as normal.

    If all footage together is too little for the promise, the threshold is provisional.
    """
    first, *others = (all_counted := with_marked(counted, marked or {})).values()
    threshold = threshold_or_guess(first.joined(others), alerts_per_hour, confidence=confidence)
    own: dict[str, Threshold] = {}
    for camera, events in all_counted.items() if others else ():
        try:
            own[camera] = threshold_for(events, alerts_per_hour, confidence=confidence)
        except DataError:  # not enough footage of its own
            continue
    return Calibration(
        model_sha256=model_sha256,
        rules=replace(rules, threshold=threshold.value),
        threshold=threshold,
        cameras=own,
        counted=counted,
        marked=marked or {},
    )
