"""Feedback: alerts marked as normal, and their effect on thresholds and training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stepvad.calibration.counting import Counted
from stepvad.codec import Positive
from stepvad.incidents.events import Event
from stepvad.poses import Clip

SHARE = 0.05
"""Fraction of the training windows that show marked alerts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A false alert: where it was and how high its score was."""

    camera: str
    peak: Positive


def with_marked(counted: Mapping[str, Counted], marked: Mapping[str, Marked]) -> dict[str, Counted]:
    """Add each false alert to the counts as one more event, up to its peak.

    It is unknown how long a camera was watched before the alert, so no hours are added: thresholds
    become stricter than necessary, never looser. Alerts are assigned to the blocks of their camera
    in turn; those of a camera without footage are spread over all cameras.
    """
    highest = max((alert.peak for alert in marked.values()), default=0.0)
    joined = {camera: _up_to(highest, events) for camera, events in counted.items()}
    cameras = [*joined]
    for number, (_, alert) in enumerate(sorted(marked.items())):
        camera = alert.camera if alert.camera in joined else cameras[number % len(cameras)]
        joined[camera] = _one_more(joined[camera], alert.peak, number)
    return joined


def cut_out(clip: Clip, event: Event, fps: float, T: int) -> Clip:
    """The poses of an event's people in all its windows; frames keep their numbers."""
    begin_s = min(event.first_s, event.peak_s)  # late joiners may have peaked before it began
    first, last = round(begin_s * fps) - T + 1, round(event.last_s * fps)
    tracks = (track.between(first, last + 1) for track in clip.tracks if track.id in event.tracks)
    return replace(
        clip, n_frames=min(last + 1, clip.n_frames), tracks=tuple(t for t in tracks if len(t))
    )


def repeated(
    marked: Sequence[Clip], windows: int, T: int, *, share: float = SHARE
) -> Iterator[Clip]:
    """Repeat marked clips until they reach `share` of this many training windows.

    Used only once, a few alerts would be lost among hours of footage.
    """
    own = sum(max(len(track) - T + 1, 0) for clip in marked for track in clip.tracks)
    times = max(round(share * windows / max(own, 1)), 1)
    for number, clip in product(range(times), marked):
        yield replace(clip, name=f"{clip.name} {number}")


def _up_to(highest: float, counted: Counted) -> Counted:
    """Extend the levels up to a score; there are no events above the previous highest level."""
    levels = counted.levels
    if highest <= levels[-1]:
        return counted
    step = levels[-1] / levels[-2]
    n_more = int(np.ceil(np.log(highest / levels[-1]) / np.log(step)))
    more = np.geomspace(levels[-1], highest, n_more + 1)[1:]
    events = np.pad(counted.events, ((0, 0), (0, len(more))))
    return replace(counted, levels=np.concatenate([levels, more]), events=events)


def _one_more(counted: Counted, peak: float, number: int) -> Counted:
    events: NDArray[np.int64] = counted.events.copy()
    events[number % len(events)] += counted.levels <= peak
    return replace(counted, events=events)
