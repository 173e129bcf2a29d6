"""The sink `fleet` of a site's outbox, and the messages that a site sends to its fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepvad.codec import Count, Number, encode
from stepvad.errors import StepvadError
from stepvad.events.record import DeliveryError, Mark, Record, RefusedError, SinkMessage
from stepvad.events.rules import ChangeKind
from stepvad.fleet import streams
from stepvad.fleet.connection import ConnectionThread, TooLargeError

WITHIN_S = 5.0
"""Longest wait until a message is stored; the outbox tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMessage:
    """A change of an event, with its camera and its id as the site has them."""

    type: ChangeKind
    site: str
    event: Record
    schema: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMark:
    """A mark that was made at the site; the centre keeps that with the latest time."""

    type: Literal["mark"] = "mark"
    site: str
    id: str
    mark: Mark | None
    """None takes a mark back."""
    at: Number
    by: str
    start_time: Number
    """Start of the event, by which the centre finds it."""
    schema: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStart:
    """A start of a site: what it had told before, and does not know as open, is over."""

    type: Literal["start"] = "start"
    site: str
    id: str
    """That of the run."""
    version: Count
    """Above those of all changes before."""
    start_time: Number
    open: tuple[str, ...]
    """Events that go on."""
    schema: Literal[1] = 1


class FleetSink:
    """Publishes each change; returns once JetStream has stored it.

    Messages have no id: another site could use it first. A change that is sent twice is stored
    once, by the id and the version of its event.
    """

    name = "fleet"

    def __init__(self, connection: ConnectionThread, *, site: str) -> None:
        """`connection`: it is shared with the link, which closes it."""
        self._connection, self._site = connection, site
        self._subject = streams.events(site)

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Publish a change; raise `RefusedError` if it is too large to be sent at any time."""
        data = encode(EventMessage(type=kind, site=self._site, event=message.after))
        if len(data) > streams.MAX_EVENT:
            raise RefusedError(
                f"event {message.after.id}: expected at most {streams.MAX_EVENT} bytes, "
                f"got {len(data)}",
                hint="it stays at the site; its page shows it",
            )
        try:
            self._connection.ask(lambda broker: broker.publish(self._subject, data), WITHIN_S)
        except TooLargeError as error:
            raise RefusedError(error.problem, hint=error.hint) from None
        except StepvadError as error:
            raise DeliveryError(error.problem, hint=error.hint) from None

    def close(self) -> None:
        """Leave the connection to the link."""
