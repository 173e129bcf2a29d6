"""Find the events of a clip and explain the windows around their peaks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepvad.detector import Detector
from stepvad.errors import Progress, Report, silent
from stepvad.events.rules import Event, Rules, events_in
from stepvad.explain.event import ExplainedPeak, explain_peak
from stepvad.model.scoring import Scores
from stepvad.poses import Clip


@dataclass(frozen=True, slots=True, eq=False)
class Incident:
    """An event and its explanation."""

    number: int
    """From 1, in chronological order."""
    event: Event
    explained: ExplainedPeak | None = None


def investigate(
    detector: Detector,
    clip: Clip,
    scores: Scores,
    rules: Rules,
    *,
    most: int,
    report: Report = silent,
) -> list[Incident]:
    """All events of a clip in chronological order; the `most` with the highest peaks are explained.

    The clip must have a frame rate. Only poses near a peak are cut into windows again, so an hour
    of footage takes no more memory than its scores.
    """
    fps = clip.rate()
    found = events_in(scores.windows, fps, rules, clip)
    highest = sorted(range(len(found)), key=lambda n: -found[n].peak)[:most]
    incidents = [Incident(number, event) for number, event in enumerate(found, start=1)]
    for done, n in enumerate(sorted(highest), start=1):
        event = found[n]
        peak_frame = round(event.peak_s * fps)
        explained = explain_peak(detector, clip, event.peak_track, peak_frame, calm=rules.calm)
        incidents[n] = replace(incidents[n], explained=explained)
        report(Progress("explaining", done, len(highest), clip.name))
    return incidents
