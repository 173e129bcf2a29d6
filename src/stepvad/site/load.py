"""How many frames of a camera are left out, and whether it can still be judged."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

LoadState = Literal["ok", "overloaded", "not watching"]
SPAN_S = 10.0
"""Seconds over which frames are counted."""
LEAST_S = 3.0
"""Nothing is said before this many seconds of frames."""
OVERLOADED = 0.2
"""Share of frames left out from which on a camera is overloaded."""
LEAST_RATE = 2.0
"""Frames a second below which a camera is not watched: most falls are missed."""
HANGS = "the pose process hangs and is being replaced"
REMEDY = "lower its rate, choose smaller networks, or give more workers and cores"


@runtime_checkable
class LoadListener(Protocol):
    """Hears when a camera becomes overloaded and when that is over; a sink may be one."""

    def load(self, camera: str, state: LoadState) -> None:
        """Handle a change; must not block."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """Whether the machine keeps up with a camera."""

    state: LoadState = "ok"
    """`not watching`: so many frames are left out that most events are missed."""
    left_out: float = 0.0
    """Share of the frames of the last 10 s that were left out."""
    hangs: bool = False
    """True if the machine is not too slow: the pose process hangs."""
    words: str = field(init=False, default="")
    """What an operator reads; empty while all is well."""

    def __post_init__(self) -> None:
        """Say it in words."""
        if self.state != "ok":
            words = f"{self.state}: {of_frames(self.left_out)} left out"
            object.__setattr__(self, "words", f"{words}; {HANGS}" if self.hangs else words)

    @property
    def advice(self) -> str:
        """The words and what helps."""
        return self.words if self.hangs else f"{self.words}; {REMEDY}"


def of_frames(share: float) -> str:
    """A share of frames as people say it: 4 of 5 frames."""
    if share > 0.95:
        return "all frames" if share > 0.995 else "nearly all frames"
    candidates = [(n, of) for of in (2, 3, 4, 5, 10) for n in range(1, of)]
    n, of = min(candidates, key=lambda one: (round(abs(one[0] / one[1] - share), 3), one[1]))
    return f"{n} of {of} frames"


class FrameLoad:
    """Counts scored and dropped frames of one camera, second by second."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()
        """Second, frames scored, frames dropped."""

    def add(self, now: float, *, scored: int = 0, shed: int = 0) -> None:
        """Count frames."""
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append([int(now), 0, 0])
        self._seconds[-1][1] += scored
        self._seconds[-1][2] += shed
        self._forget(now)

    def clear(self) -> None:
        """Forget all frames: those before a camera was lost say nothing of it now."""
        self._seconds.clear()

    def view(self, now: float, *, rate: float, hangs: bool = False) -> Load:
        """The load now.

        A camera sends more frames than are asked for, and those it drops are no loss: what
        counts is how many of `rate` a second are missing.
        """
        self._forget(now)
        if not self._seconds or now - self._seconds[0][0] < LEAST_S:
            return Load()
        span = now - self._seconds[0][0]
        scored = sum(one[1] for one in self._seconds)
        shed = sum(one[2] for one in self._seconds)
        came = min(scored + shed, max(rate * span, 1.0))
        left_out = min(max(1 - scored / came, 0.0), 1.0) if came else 0.0
        if shed == 0 or left_out < OVERLOADED:
            return Load("ok", left_out if shed else 0.0)
        left_out = round(left_out, 3)
        is_blind = left_out > max(1 - LEAST_RATE / rate, 0.5)
        return Load("not watching" if is_blind else "overloaded", left_out, hangs)

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] < now - SPAN_S:
            self._seconds.popleft()
