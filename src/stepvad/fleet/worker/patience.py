"""How long a shard that is behind may catch up before it sheds frames."""

from __future__ import annotations

from dataclasses import dataclass

JUMP_S = 1.0
"""If the age of frames grows by this much between rounds, the worker was paused."""
CALM_S = 0.5
"""The shard has caught up once its messages are younger than this."""


@dataclass(slots=True)
class Patience:
    """Whether a shard has caught up, and until when it sheds nothing.

    It gets time when it is taken over and whenever it falls behind for a reason other than its
    load: a pause of the worker, an absence of the broker. A shard that is behind, and receives
    frames, gets no more: else delays under overload would keep it from ever shedding.
    """

    allowed_s: float
    until: float
    """Monotonic time."""
    is_caught_up: bool = False
    _has_frames: bool = False
    """Whether frames came since it got time."""
    _age: float = 0.0
    """Age of the oldest frame of the latest round."""
    _restarts: int = 0

    @classmethod
    def from_now(cls, allowed_s: float, now: float) -> Patience:
        """That of a shard that was just taken."""
        return cls(allowed_s, now + allowed_s)

    def may_shed(
        self, age: float | None, now: float, *, restarts: int, is_drained: bool = False
    ) -> bool:
        """Note a round, and return whether its old frames may be shed.

        `age` is that of its oldest frame, None without frames; `restarts` are those of the
        consumer, or any other number while the broker does not answer.
        """
        jumped = self.is_caught_up and (age or 0.0) - self._age > JUMP_S  # paused, not slow
        self._age = age or 0.0
        if restarts != self._restarts or jumped:
            if self.is_caught_up or not self._has_frames:
                self.until = now + self.allowed_s
            self._restarts, self.is_caught_up, self._has_frames = restarts, False, False
        elif age is not None:
            self.is_caught_up |= age < CALM_S
            self._has_frames = True
        else:
            self.is_caught_up |= is_drained
        if self.is_caught_up:
            self.until = min(self.until, now)
        return now >= self.until
