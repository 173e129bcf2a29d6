"""Explains one person around a moment: a sequence of adjacent windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepvad.detector import Detector
from stepvad.explain.eventexplanation import EventExplanation, PartShare, Phrase, ScaleWeight
from stepvad.explain.explanation import Explanation
from stepvad.explain.motion import Motion
from stepvad.explain.places import explain
from stepvad.explain.words import Finding, join
from stepvad.poses import Clip
from stepvad.windows import Sampling, cut

AROUND = 1
"""Windows shown before and after the one of the peak, where they exist."""


@dataclass(frozen=True, slots=True, eq=False)
class ExplainedPeak:
    """The windows around a peak, explained, in order of time.

    They are adjacent: each starts in the frame after the previous one ends.
    """

    windows: tuple[Explanation, ...]
    peak: Explanation
    """The window with the peak score."""
    findings: tuple[Finding, ...]
    """Findings of the windows that are not calm, the highest score first."""

    @property
    def motion(self) -> Motion:
        """The person's motion, for drawing."""
        return Motion.of(self.windows, self.peak)

    def explanation(self, fps: float) -> EventExplanation:
        """The explanation to store and show; frames are those of the clip."""
        peak = self.peak
        return EventExplanation(
            motion=self.motion.frames(fps),
            track=int(peak.track),
            frame=int(peak.frames[-1]),
            score=float(peak.score),
            energy=float(peak.energy),
            confidence=float(peak.confidence),
            scales=tuple(ScaleWeight(float(s), float(w)) for s, w in peak.scales.items()),
            ghost_energy=float(peak.ghost_energy),
            ghost_is_normal=bool(peak.ghost_is_normal),
            words=tuple(
                Phrase(one.says, int(one.first_frame), int(one.last_frame)) for one in self.findings
            ),
            parts=tuple(PartShare(part.name, float(part.share)) for part in peak.parts),
            views=tuple(PartShare(name, float(share)) for name, share in peak.shares.items()),
        )


def look_at(
    detector: Detector, clip: Clip, track: int, peak_frame: int, *, calm: float
) -> ExplainedPeak:
    """Explain a person's windows around the one ending in `peak_frame`; no findings below `calm`.

    Only nearby poses are cut into windows, so a long clip takes no longer than a short one.
    """
    span = Sampling.of(detector.config, clip.fps).span
    first, last = peak_frame - (AROUND + 2) * span, peak_frame + (AROUND + 1) * span + 1
    near = _near(clip, track, first, last)
    there = {*cut(near, detector.config, detector.skeleton)[0].frame.tolist()}
    wanted = (peak_frame + span * np.arange(-AROUND, AROUND + 1)).tolist()
    ends = [end for end in wanted if end in there or end == peak_frame]
    windows = explain(detector, near, [(track, end) for end in ends])
    peak = windows[ends.index(peak_frame)]
    if detector.parts:
        windows = _side_by_side(windows, peak)
    telling = sorted(windows, key=lambda window: -window.score)
    telling = [window for window in telling if window is peak or window.score >= calm]
    findings = join(finding for window in telling for finding in window.findings)
    return ExplainedPeak(tuple(windows), peak, findings)


def _side_by_side(windows: Sequence[Explanation], peak: Explanation) -> list[Explanation]:
    """The windows that touch, up to the peak and beyond; those of a young person may not."""
    at = next(n for n, window in enumerate(windows) if window is peak)
    first, end = at, at + 1
    while first > 0 and _touch(windows[first - 1], windows[first]):
        first -= 1
    while end < len(windows) and _touch(windows[end - 1], windows[end]):
        end += 1
    return [*windows[first:end]]


def _touch(before: Explanation, after: Explanation) -> bool:
    return bool(after.frames[0] - before.frames[-1] <= 2)  # 1, or 2 where frames are rounded


def _near(clip: Clip, track: int, first: int, last: int) -> Clip:
    """One person between two frames: the poses that windows and filled gaps in between need."""
    parts = tuple(one.between(first, last + 1) for one in clip.tracks if one.id == track)
    return Clip(clip.name, clip.fps, clip.n_frames, parts, clip.skeleton)
