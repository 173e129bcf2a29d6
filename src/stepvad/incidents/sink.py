"""Where changes of events go, and how a delivery fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.incidents.events import Kind
    from stepvad.incidents.record import SinkMessage


class DeliveryError(StepvadError):
    """A message that did not arrive and may arrive later, after `after_s` at the soonest.

    `give_up_s` is for an answer that lasts until somebody mends a setting: after so long the
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
    """A message that this sink will never take."""


class Sink(Protocol):
    """Takes messages, one at a time."""

    @property
    def name(self) -> str:
        """Tells it from other sinks, also after a restart."""
        ...

    def send(self, kind: Kind, message: SinkMessage) -> None:
        """Return when the message has arrived; else raise `DeliveryError` or `RefusedError`."""
        ...

    def close(self) -> None:
        """Say goodbye."""
        ...
