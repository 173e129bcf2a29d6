"""How many frames of a camera are left out, and whether it can still be judged."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import Literal

LoadState = Literal["ok", "busy", "overloaded", "not watching"]
SPAN_S = 10.0
"""Seconds over which frames are counted."""
LEAST_S = 3.0
"""Nothing is said before this many seconds of frames."""
OVERLOADED = 0.2
"""Share of frames left out from which on a camera is overloaded."""
YIELDED_RATE = 5.0
"""Frames a second below which a camera's rate is not lowered: falls would be missed."""
YIELD_SPAN_S, YIELD_FROM = 2.0, 0.1
"""Seconds, and the share of their frames, that must be dropped for a rate to be lowered."""
CALM_S, LONGEST_CALM_S = 30.0, 600.0
"""Calm time before a rate is raised again, and the longest after raising it in vain."""
LEAST_RATE = 2.0
"""Frames a second below which a camera is not watched: most falls are missed."""
HANGS = "the camera process hangs and is being replaced"
REMEDY = "lower its rate, choose smaller networks, or give more processes and cores"


@dataclass(frozen=True, slots=True)
class Load:
    """Whether the machine keeps up with a camera."""

    state: LoadState = "ok"
    """`busy`: its rate is lowered; `not watching`: most events are missed."""
    left_out: float = 0.0
    """Share of the frames of the last 10 s that were left out."""
    hangs: bool = False
    """True if the machine is not too slow: its camera process hangs."""
    divisor: int = 1
    """Every so many frames that are asked for one is used."""
    rate: InitVar[float] = 0.0
    """Frames a second that are asked for."""
    words: str = field(init=False, default="")
    """What an operator reads; empty while all is well."""

    def __post_init__(self, rate: float) -> None:
        """Say it in words."""
        at = f"at {rate / self.divisor:g} of {rate:g} frames a second"
        words = f"{at}: the machine is busy" if self.state == "busy" else ""
        if self.state in ("overloaded", "not watching"):
            words = f"{self.state}: {of_frames(self.left_out)} left out"
            words += f" {at}" if self.divisor > 1 else ""
            words += f"; {HANGS}" if self.hangs else ""
        object.__setattr__(self, "words", words)

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


class RateYield:
    """Lowers the rate of a camera while the machine is busy, so that frames are left out evenly.

    The rate halves once frames were dropped in two spans in a row, but never below
    `YIELDED_RATE`. After a calm time it doubles again; if that was too early, the next calm time
    is twice as long. Uses the monotonic clock; not thread-safe.
    """

    def __init__(self, rate: float) -> None:
        self.divisor = 1
        """Every so many slots one frame is used; the others are gaps of scoring."""
        self._rate = rate
        self._kept = self._shed = 0
        self._began: float | None = None
        self._busy = 0
        """Spans in a row with dropped frames."""
        self._calm_s, self._calm_since, self._returned = CALM_S, 0.0, -math.inf

    def takes(self, slot: int) -> bool:
        """Tell if the frame of a time slot is used."""
        return slot % self.divisor == 0

    def count(self, now: float, *, kept: int = 0, shed: int = 0) -> None:
        """Count frames that were used, and those dropped because others were newer."""
        self._began = now if self._began is None else self._began
        self._kept, self._shed = self._kept + kept, self._shed + shed
        if now - self._began < YIELD_SPAN_S:
            return
        # a span without frames, as of a camera that was away, says nothing
        frames, share = self._kept + self._shed, self._shed / max(self._kept + self._shed, 1)
        says = frames >= YIELD_SPAN_S * self._rate / self.divisor / 2
        self._began, self._kept, self._shed = now, 0, 0
        if share <= YIELD_FROM or not says:
            self._busy = 0
            self._return(now)
            return
        self._busy, self._calm_since = self._busy + 1, now
        if self._busy >= 2 and self._rate / self.divisor >= 2 * YIELDED_RATE:
            # back too early: wait longer next time
            early = now - self._returned < self._calm_s
            self._calm_s = min(2 * self._calm_s, LONGEST_CALM_S) if early else CALM_S
            self.divisor, self._busy = 2 * self.divisor, 0

    def _return(self, now: float) -> None:
        """Double the rate if it has been calm for long enough."""
        if self.divisor > 1 and now - self._calm_since >= self._calm_s:
            self.divisor //= 2
            self._calm_since = self._returned = now


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

    def view(self, now: float, *, rate: float, divisor: int = 1, hangs: bool = False) -> Load:
        """The load now; one of `divisor` frames is used.

        A camera sends more frames than are asked for, and those it drops are no loss: what
        counts is how many of `rate` a second are missing.
        """
        self._forget(now)
        calm: LoadState = "ok" if divisor == 1 else "busy"
        used = rate / divisor
        if not self._seconds or now - self._seconds[0][0] < LEAST_S:
            return Load(calm, divisor=divisor, rate=rate)
        span = now - self._seconds[0][0]
        scored = sum(one[1] for one in self._seconds)
        shed = sum(one[2] for one in self._seconds)
        came = min(scored + shed, max(used * span, 1.0))
        left_out = min(max(1 - scored / came, 0.0), 1.0) if came else 0.0
        if shed == 0 or left_out < OVERLOADED:
            return Load(calm, left_out if shed else 0.0, divisor=divisor, rate=rate)
        left_out = round(left_out, 3)
        is_blind = left_out > max(1 - LEAST_RATE / used, 0.5)
        state: LoadState = "not watching" if is_blind else "overloaded"
        return Load(state, left_out, hangs, divisor, rate)

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] < now - SPAN_S:
            self._seconds.popleft()
