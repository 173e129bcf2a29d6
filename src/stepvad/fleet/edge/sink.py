"""Sink that sends the events of a site that scores by itself to the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepvad.errors import StepvadError
from stepvad.events.record import DeliveryError
from stepvad.fleet.broker.bus import Bus, Published
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.event_message import of_fleet
from stepvad.fleet.subjects import Subjects
from stepvad.fleet.wire import encode_event

if TYPE_CHECKING:
    from stepvad.events.record import SinkMessage
    from stepvad.events.rules import ChangeKind

WITHIN_S = 5.0


class FleetSink:
    """Publishes each message, with no id: another site could use it first.

    A change that is sent twice is stored once, by the id of its event.
    """

    name = "fleet"

    def __init__(self, bus_thread: BusThread, *, site: str, subjects: Subjects) -> None:
        self._bus_thread, self._site = bus_thread, site
        self._subject = subjects.edge_events(site)

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Publish a message; return once the broker has stored it on disk."""
        before, after = (of_fleet(one, self._site) for one in (message.before, message.after))
        data = encode_event(self._site, kind, before, after)

        async def publish(bus: Bus) -> Published:
            return await bus.publish(self._subject, data)

        try:
            self._bus_thread.ask(publish, WITHIN_S)
        except StepvadError as error:
            raise DeliveryError(error.problem, hint=error.hint) from None

    def close(self) -> None:
        """Close the connection."""
        self._bus_thread.close()
