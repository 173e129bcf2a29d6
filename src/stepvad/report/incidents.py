"""Events looked into: each with the windows around its peak, explained."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepvad import events
from stepvad.detector import Detector
from stepvad.events import Event, Rules
from stepvad.explain import Explanation, explain
from stepvad.explain.words import Finding, join
from stepvad.poses import Clip, Track
from stepvad.progress import Progress, Report, silent
from stepvad.scoring import Scores

AROUND = 1
"""Windows before and after the one of the peak that are shown with it, where there are any."""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """The windows around a peak, explained, in the order of time.

    They lie side by side: each begins in the frame after the one before it ends.
    """

    windows: tuple[Explanation, ...]
    peak: Explanation
    """The one among them that the event has its peak from."""
    findings: tuple[Finding, ...]
    """What is unusual in those that belong to the event, the highest score first."""


@dataclass(frozen=True, slots=True, eq=False)
class Incident:
    """An event, and what a look into it showed."""

    number: int
    """From 1, in the order of time."""
    event: Event
    look: Look | None = None


def investigate(
    detector: Detector,
    clip: Clip,
    scores: Scores,
    rules: Rules,
    *,
    fps: float,
    most: int,
    report: Report = silent,
) -> list[Incident]:
    """All events of a clip in the order of time; those `most` of the highest peaks explained.

    Only poses near a peak are cut into windows again, so an hour takes no more memory than its
    scores do.
    """
    found = events.find(scores.windows, fps, rules, clip)
    highest = sorted(range(len(found)), key=lambda n: -found[n].peak)[:most]
    incidents = [Incident(number, event) for number, event in enumerate(found, start=1)]
    for done, n in enumerate(sorted(highest), start=1):
        look = _look_into(found[n], detector, clip, scores, rules, fps)
        incidents[n] = replace(incidents[n], look=look)
        report(Progress("explaining", done, len(highest), clip.name))
    return incidents


def _look_into(
    event: Event, detector: Detector, clip: Clip, scores: Scores, rules: Rules, fps: float
) -> Look:
    """The peak of an event with its windows explained."""
    T = detector.config.T
    peak_frame = round(event.peak_s * fps)
    ends = _side_by_side(scores, event.peak_track, peak_frame, T)
    near = _near(clip, event.peak_track, int(ends[0]) - 2 * T, int(ends[-1]) + T + 1)
    windows = explain(detector, near, [(event.peak_track, int(end)) for end in ends])
    peak = windows[ends.tolist().index(peak_frame)]
    telling = sorted(windows, key=lambda window: -window.score)
    telling = [window for window in telling if window is peak or window.score >= rules.calm]
    findings = join(finding for window in telling for finding in window.findings)
    return Look(tuple(windows), peak, findings)


def _side_by_side(scores: Scores, track: int, peak_frame: int, T: int) -> NDArray[np.int64]:
    """Last frames of the windows to show: that of the peak, and those next to it."""
    own = scores.windows.frame[scores.windows.track_id == track]
    wanted = peak_frame + T * np.arange(-AROUND, AROUND + 1)
    return np.intersect1d(wanted, own)


def _near(clip: Clip, track: int, first: int, last: int) -> Clip:
    """One person from a frame to another: what the windows between need, filled gaps included."""
    parts = []
    for one in (one for one in clip.tracks if one.id == track):
        part = slice(*np.searchsorted(one.frames, [first, last + 1]))
        parts.append(Track(one.id, one.frames[part], one.keypoints[part], one.confidence[part]))
    return Clip(clip.name, clip.fps, clip.n_frames, tuple(parts), clip.skeleton)
