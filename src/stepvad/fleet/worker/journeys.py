"""Messages of a shard that are traced, between the broker and the scorer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.tracing import Journey, Tracing
from stepvad.fleet.wire import Batch, decode

MOST = 1000
"""Most messages of a shard that are traced at a time; the oldest end as not scored."""


@dataclass(slots=True, eq=False)
class Journeys:
    """By the message's sequence in its stream; those that came to their end are forgotten."""

    _going: dict[int, Journey] = field(default_factory=dict)

    def begin(self, deliveries: Iterable[Delivery], tracing: Tracing, shard: str) -> None:
        """Go on with the traces of messages that were just fetched."""
        for delivery in deliveries:
            journey = tracing.go_on("worker", delivery.headers, delivery.time, shard=shard)
            if journey is not None:
                journey.mark("worker deliver")
                self._going[delivery.sequence] = journey
                self._forget()

    def decoded(self, delivery: Delivery) -> Batch:
        """Decode a message; what was traced of it so far goes with it."""
        journey = self._going.get(delivery.sequence) if self._going else None
        if journey is None:
            return decode(delivery.data)
        journey.mark("worker queue")
        batch = decode(delivery.data)
        journey.mark("worker decode")
        batch.journey = journey
        return batch

    def _forget(self) -> None:
        if len(self._going) > MOST // 2:
            self._going = {n: one for n, one in self._going.items() if not one.is_over}
        while len(self._going) > MOST:
            self._going.pop(next(iter(self._going))).end("not scored")
