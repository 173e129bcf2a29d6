"""Take fewer frames per second from a source."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

from stepvad.video.source import Frame

EARLY = 0.25
"""How much earlier than due a frame may come, in frames of the new rate: clocks jitter."""


def at_rate(frames: Iterable[Frame], rate: float, fps: float | None = None) -> Iterator[Frame]:
    """At most `rate` frames per second, numbered by when they were, in frames of that rate.

    Time is that in the stream; where it is missing, frames are `fps` apart, or as far apart as they
    arrived. Numbers go on after a lost connection.
    """
    epoch, begin_s, first, latest = -1, 0.0, 0, -1
    for frame in frames:
        seconds = frame.pts
        if seconds is None:
            seconds = frame.number / fps if fps else frame.wall
        if frame.epoch != epoch:
            epoch, begin_s, first = frame.epoch, seconds, latest + 1
        number = first + math.floor((seconds - begin_s) * rate + EARLY)
        if number > latest:
            latest = number
            yield replace(frame, number=number)
