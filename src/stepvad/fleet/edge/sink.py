"""Events of a site that scores by itself, on their way to the fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import Bus, Published
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.event_message import of_fleet
from stepvad.fleet.subjects import Subjects
from stepvad.fleet.wire import encode_event
from stepvad.incidents.sink import DeliveryError

if TYPE_CHECKING:
    from stepvad.incidents.events import Kind
    from stepvad.incidents.record import SinkMessage

WITHIN_S = 5.0


class FleetSink:
    """Publishes each message; the broker knows one that comes again by its id."""

    name = "fleet"

    def __init__(self, line: BusThread, *, site: str, subjects: Subjects) -> None:
        self._line, self._site = line, site
        self._subject = subjects.edge_events(site)

    def send(self, kind: Kind, message: SinkMessage) -> None:
        """Return when the broker has it on its disk."""
        before, after = (of_fleet(one, self._site) for one in (message.before, message.after))
        data = encode_event(self._site, kind, before, after)
        id = f"{after.id}:{kind}:x{crc32(data):08x}"  # the order is that of arrival

        async def publish(bus: Bus) -> Published:
            return await bus.publish(self._subject, data, id=id)

        try:
            self._line.ask(publish, WITHIN_S)
        except StepvadError as error:
            raise DeliveryError(error.problem, hint=error.hint) from None

    def close(self) -> None:
        """Hang up."""
        self._line.close()
