"""The interface of sinks for event changes, and the errors of a delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.incidents.events import ChangeKind
    from stepvad.incidents.record import SinkMessage


class DeliveryError(StepvadError):
    """A failed delivery that may succeed on retry, after `after_s` at the earliest.

    `give_up_s` is for a failure that persists until a setting is fixed: after this time the
    message becomes a dead letter.
    """

    def __init__(
        self,
        problem: str,
        *,
        hint: str = "",
        after_s: float = 0.0,
        give_up_s: float | None = None,
    ) -> None:
        super().__init__(problem, hint=hint)
        self.after_s = after_s
        self.give_up_s = give_up_s


class RefusedError(DeliveryError):
    """A message that this sink will never accept."""


class Sink(Protocol):
    """Sends messages, one at a time."""

    @property
    def name(self) -> str:
        """Unique among sinks and stable across restarts."""
        ...

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Return when the message has arrived; else raise `DeliveryError` or `RefusedError`."""
        ...

    def close(self) -> None:
        """Disconnect."""
        ...
