"""What a new model changes, in words for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from stepvad.calibration import Calibration
from stepvad.calibration.promise import duration
from stepvad.detector import Detector
from stepvad.errors import StepvadError
from stepvad.incidents.events import find
from stepvad.incidents.review import Mark
from stepvad.poses import Clip
from stepvad.site.learning.versions import Learned


class MarkedClips(Protocol):
    """The poses of events that people judged."""

    def marked(self, mark: Mark) -> list[Clip]:
        """The poses of the people in events with this mark."""
        ...


def changes(
    before: Learned | None,
    after: Learned,
    detector: Detector,
    calibration: Calibration,
    judged: MarkedClips,
) -> str:
    """What it learned from, its promise, and what becomes of the alerts that were judged."""
    amount = after.fitted + after.measured
    seen = f"Learned from {duration(amount.hours)} of motion and {amount.people} tracks of people"
    if before is not None:
        seen += f" (before: {duration((before.fitted + before.measured).hours)})"
    said = [seen, f"Threshold: {after.words}"]
    normal, right = judged.marked("normal"), judged.marked("right")
    if normal:
        quiet = len(normal) - _raised(normal, detector, calibration)
        said.append(f"{quiet} of {len(normal)} alerts marked as normal would not come again")
    if right:
        again = _raised(right, detector, calibration)
        said.append(f"{again} of {len(right)} right alerts would come again")
    return ". ".join(said) + "."


def _raised(clips: Sequence[Clip], detector: Detector, calibration: Calibration) -> int:
    """Number of clips in which the model still finds an event."""
    raised = 0
    for clip in clips:
        try:
            windows = detector.score(clip).windows
        except StepvadError:  # too short for a window
            continue
        raised += bool([*find(windows, clip.rate(), calibration.rules, clip)])
    return raised
