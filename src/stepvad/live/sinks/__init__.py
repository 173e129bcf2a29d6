"""Where events go: a broker, web addresses, a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from stepvad.errors import StepvadError

if TYPE_CHECKING:
    from stepvad.events import Kind
    from stepvad.live.settings import Settings, Sinks


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

    def send(self, kind: Kind, message: dict[str, Any]) -> None:
        """Return when the message has arrived; else raise `DeliveryError` or `RefusedError`."""
        ...

    def close(self) -> None:
        """Say goodbye."""
        ...


def names(sinks: Sinks) -> tuple[str, ...]:
    """The names of the sinks that the settings ask for, as the store is told them."""
    found = ["mqtt"] if sinks.mqtt else []
    found += [f"webhook:{webhook.name}" for webhook in sinks.webhooks]
    return (*found, *(["file"] if sinks.file else []))


def connect(settings: Settings) -> Iterator[Sink]:
    """The sinks that the settings ask for, in the order of their `names`."""
    sinks = settings.sinks
    if sinks.mqtt:
        from stepvad.live.sinks.mqtt import Mqtt

        cameras = [camera.name for camera in settings.cameras]
        yield Mqtt(sinks.mqtt, site=settings.name, cameras=cameras)
    for webhook in sinks.webhooks:
        from stepvad.live.sinks.webhook import Webhook

        yield Webhook(webhook, site=settings.name)
    if sinks.file:
        from stepvad.live.sinks.jsonl import JsonLines

        yield JsonLines(sinks.file.path)
