"""Times of frames: slots of a connection, and the pace of a played file."""

from __future__ import annotations

import math
from collections import deque

JUMP_S = 5.0
"""How far stream time may run ahead of the clock before it counts as a reset."""
BACK_S = 1.0
"""How far it may step back, as with reordered frames, before it counts as a reset."""
ANCHOR_S = 2.5
"""Stream time in which one frame is taken to arrive without delay."""


class TimeSlots:
    """Time slots of one connection, `rate` per second; each is assigned once.

    Uses stream time. Where it is missing or jumps, continues from the previous frame by the
    monotonic clock.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._offset: float | None = None
        """Stream time at time 0."""
        self._latest = 0.0
        self._arrived: float | None = None
        self._slot = -1

    def place(self, pts: float | None, arrived: float) -> int | None:
        """Assign a slot to a frame; None if the slot is taken or in the past."""
        time = self._time(pts, arrived)
        slot = math.floor(time * self._rate + 0.5)
        if slot <= self._slot:
            return None
        self._slot = slot
        return slot

    def _time(self, pts: float | None, arrived: float) -> float:
        """Seconds since the first frame."""
        since = 0.0 if self._arrived is None else max(arrived - self._arrived, 0.0)
        by_clock = self._latest + since
        time = by_clock
        if pts is not None and self._offset is not None:
            time = pts - self._offset
            if time < self._latest - BACK_S or time > by_clock + JUMP_S:
                time, self._offset = by_clock, None
        if pts is not None and self._offset is None:
            self._offset = pts - time
        if time >= self._latest:
            self._latest, self._arrived = time, arrived
        return time


class SlotAnchor:
    """The wall-clock time of slot 0 of a connection, by the frames that arrived lately.

    A stream that runs slower or faster than its times say is followed, and so is a clock that is
    set. Frames that are late, such as a burst after a pause, change nothing while others of the
    last `ANCHOR_S` were in time; no frame is later than its arrival, and none before another.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._anchors: deque[tuple[int, float]] = deque()
        """Slots and what they say, rising: those that may become the earliest of the last ones."""

    def wall0(self, slot: int, wall: float) -> float:
        """The time of slot 0, once the frame of `slot` has arrived at `wall`."""
        # the least delayed frame says it: what is later than the newest will never count
        anchor = wall - slot / self._rate
        while self._anchors and self._anchors[-1][1] >= anchor:
            self._anchors.pop()
        self._anchors.append((slot, anchor))
        while self._anchors[0][0] < slot - ANCHOR_S * self._rate:
            self._anchors.popleft()
        return self._anchors[0][1]


class PlayPace:
    """When to play the frames of a file, on the monotonic clock.

    Uses the file's timestamps. Where they jump, continues `1 / rate` after the previous frame.
    """

    def __init__(self, rate: float, *, jump_s: float = JUMP_S) -> None:
        self._step_s = min(1 / rate, jump_s)
        self._jump_s = jump_s
        self._offset: float | None = None
        """Monotonic time at timestamp 0."""
        self._latest = 0.0

    def due(self, pts: float, now: float) -> float:
        """The time to play the next frame; the first one is due now."""
        if self._offset is None:
            self._offset = now - pts
        elif not -BACK_S <= pts - self._latest <= self._jump_s:
            self._offset += self._latest + self._step_s - pts
        self._latest = pts
        return self._offset + pts
