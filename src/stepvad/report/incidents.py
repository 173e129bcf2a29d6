"""Events looked into: each with the windows around its peak, explained."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepvad.detector import Detector
from stepvad.explain.look import Look, look_at
from stepvad.incidents import events
from stepvad.incidents.events import Event, Rules
from stepvad.model.scoring import Scores
from stepvad.poses import Clip
from stepvad.progress import Progress, Report, silent


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
    most: int,
    report: Report = silent,
) -> list[Incident]:
    """All events of a clip in the order of time; those `most` of the highest peaks explained.

    The clip has to tell its frame rate. Only poses near a peak are cut into windows again, so an
    hour takes no more memory than its scores do.
    """
    fps = clip.rate()
    found = events.find(scores.windows, fps, rules, clip)
    highest = sorted(range(len(found)), key=lambda n: -found[n].peak)[:most]
    incidents = [Incident(number, event) for number, event in enumerate(found, start=1)]
    for done, n in enumerate(sorted(highest), start=1):
        event = found[n]
        peak_frame = round(event.peak_s * fps)
        look = look_at(detector, clip, event.peak_track, peak_frame, calm=rules.calm)
        incidents[n] = replace(incidents[n], look=look)
        report(Progress("explaining", done, len(highest), clip.name))
    return incidents
