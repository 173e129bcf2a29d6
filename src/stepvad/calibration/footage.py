"""Score footage camera by camera, to calibrate on it or to check it for drift."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from stepvad.calibration import RULES, Calibration, NormalClip, calibrate_cameras
from stepvad.calibration.drift import BlockStats, Drift, compare, look
from stepvad.detector import Detector
from stepvad.errors import Report, silent
from stepvad.incidents.events import Rules
from stepvad.poses import Clip


@dataclass(frozen=True, slots=True)
class ScoredFootage:
    """The scored clips of each camera, and their block statistics."""

    detector: Detector
    clips: dict[str, list[NormalClip]] = field(default_factory=dict)
    looks: dict[str, BlockStats] = field(default_factory=dict)

    def add(
        self,
        camera: str,
        clips: Iterable[Clip],
        *,
        fps: float | None = None,
        report: Report = silent,
    ) -> None:
        """Score more footage of a camera; `fps` is for clips without a rate."""
        looks = [self.looks[camera]] if camera in self.looks else []
        for clip in (clip.with_rate(fps) for clip in clips):
            rate = clip.rate()
            scores, seen = look(self.detector, clip, rate, report=report)
            scored = NormalClip(scores.windows, clip.n_frames, rate, clip.first_frame)
            self.clips.setdefault(camera, []).append(scored)
            looks.append(seen)
        if looks:
            self.looks[camera] = BlockStats.join(looks)

    def calibrate(
        self, *, alerts_per_hour: float, confidence: float = 0.95, rules: Rules = RULES
    ) -> Calibration:
        """Find thresholds that promise at most `alerts_per_hour` false events per camera-hour."""
        made = calibrate_cameras(
            self.clips,
            model_sha256=self.detector.model.sha256,
            alerts_per_hour=alerts_per_hour,
            confidence=confidence,
            rules=rules,
        )
        return replace(made, looks=self.looks)


@dataclass(frozen=True, slots=True)
class DriftCheck:
    """Whether recent footage of a camera still looks like that of its calibration."""

    drift: Drift
    has_own: bool
    """Compared with the camera's own footage; otherwise with that of all cameras."""
    blocks_before: int
    blocks_now: int


def check_drift(calibration: Calibration, camera: str, recent: ScoredFootage) -> DriftCheck:
    """Compare recent footage of a camera with its calibration footage."""
    own, now = calibration.looks.get(camera), recent.looks[camera]
    before = own if own is not None else BlockStats.join([*calibration.looks.values()])
    return DriftCheck(compare(before, now), own is not None, len(before), len(now))
