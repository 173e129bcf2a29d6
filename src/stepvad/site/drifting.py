"""Drift of cameras from their calibration."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from stepvad.calibration import Calibration
from stepvad.calibration.drift import BLOCK_S, FEWEST_BLOCKS, BlockStats, Shift, look
from stepvad.calibration.drift_monitor import LOOK_EVERY_S, SPAN_LOOKS, DriftMonitor
from stepvad.errors import DataError
from stepvad.incidents.camera_events import CameraProfile
from stepvad.intake.status import LiveStatus
from stepvad.poses import Clip

logger = logging.getLogger(__name__)

EVERY_S = LOOK_EVERY_S
"""Interval between blocks: cheap, and far enough from the previous block."""
TOLD = 3
"""Number of largest changes to report."""
UNKNOWN = "not compared: its calibration does not describe how people moved"
TOO_SHORT = (
    "not compared: the threshold was set on less than 8 hours with people, too few to detect "
    "a change"
)
REMEDY = "Check that the camera still looks at the same place, then recalibrate"


@dataclass(slots=True, eq=False)
class CameraDrift:
    """Compares the recent footage of one camera with its calibration."""

    profile: CameraProfile
    calibration: Calibration
    status: LiveStatus
    monitor: DriftMonitor | None = field(init=False, default=None)
    _reason: str = field(init=False, default=UNKNOWN)
    _numbers: str = field(init=False, default="")
    _was_changed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        before = self.before
        if before is None:
            return
        try:
            self.monitor = DriftMonitor(before)
        except DataError as error:
            self._reason = TOO_SHORT
            self._numbers = str(error)

    @property
    def before(self) -> BlockStats | None:
        """Statistics of the camera at its calibration, or else of all cameras."""
        looks = self.calibration.looks
        own = looks.get(self.profile.camera)
        if own is not None and len(own) >= FEWEST_BLOCKS:
            return own
        return BlockStats.join([*looks.values()]) if looks else None

    def add(self, clip: Clip) -> None:
        """Add footage to the statistics."""
        if self.monitor is not None:
            self.monitor.add(look(self.profile.detector, clip, self.profile.rate)[1])

    def tell(self) -> None:
        """Update the live status; log a warning when drift starts."""
        camera = self.profile.camera
        if self.monitor is None:
            self.status.drift(camera, self._reason, False, self._numbers)
            return
        changed, text = self.monitor.has_changed, words(self.monitor)
        if changed and not self._was_changed:
            logger.warning("camera %s: %s (%s)", camera, text, numbers(self.monitor))
        self._was_changed = changed
        self.status.drift(camera, text, changed, numbers(self.monitor))


def latest_block(clip: Clip) -> Clip:
    """The end of a clip, one block long."""
    first = max(clip.n_frames - round(BLOCK_S * clip.rate()), 0)
    parts = [track.between(first, clip.n_frames) for track in clip.tracks]
    tracks = tuple(replace(part, frames=part.frames - first) for part in parts if len(part))
    return replace(clip, n_frames=clip.n_frames - first, tracks=tracks)


def words(monitor: DriftMonitor) -> str:
    """Describe the drift of a camera from its two-hour spans, for a guard."""
    if not monitor.spans_seen:
        looked = SPAN_LOOKS - monitor.missing
        return f"too early to tell: people were compared {looked} of {SPAN_LOOKS} times"
    if not monitor.in_a_row:
        return "people move as they did when the threshold was set"
    if not monitor.has_changed:
        return (
            f"people have moved differently for {2 * monitor.in_a_row} hours; it counts after "
            f"{2 * monitor.needed}"
        )
    return f"people move differently than when the threshold was set: {_kinds(monitor)}. {REMEDY}"


def numbers(monitor: DriftMonitor) -> str:
    """The largest changes, for experts."""
    return ", ".join(
        f"{change.name} {change.before:.3g} then and {change.now:.3g} now"
        for change in monitor.changes()[:TOLD]
    )


def _kinds(monitor: DriftMonitor) -> str:
    """What the largest changes mean, each once."""
    found = [_meaning(change) for change in monitor.changes()[:TOLD]]
    return ", ".join(dict.fromkeys(found))


def _meaning(change: Shift) -> str:
    """What a changed statistic means to somebody who looks at the camera."""
    more = change.now > change.before
    match change.name:
        case "score":
            return "more unusual movement" if more else "less unusual movement"
        case "confidence":
            return "people seen more clearly" if more else "people seen less clearly"
        case "jitter of joints":
            return "joints shake more" if more else "joints shake less"
        case "motion":
            return "other speeds"
        case "place":
            return "other places in the picture"
        case name if name.startswith("spread"):
            return "more varied movement" if more else "less varied movement"
        case _:
            return "other postures"
