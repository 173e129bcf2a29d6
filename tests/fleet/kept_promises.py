"""Whether brokers kept what they acknowledged, and accepted events of one owner at a time."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.broker.nats import NatsBus
from stepvad.fleet.event_message import ID
from stepvad.fleet.worker.outgoing import WORKER
from tests.fleet.recorded_publishing import Acknowledged


async def stored_events(bus: NatsBus, name: str = "auditor") -> list[Delivery]:
    """The whole stream of events."""
    consumer = await bus.events(name)
    found: list[Delivery] = []
    while some := await consumer.fetch(500, 1.0):
        found += some
        await consumer.ack(some)
    await consumer.close()
    return sorted({one.sequence: one for one in found}.values(), key=lambda one: one.sequence)


def lost(acknowledged: Iterable[Acknowledged], stored: Iterable[Delivery]) -> list[Acknowledged]:
    """Events that a worker was told are stored, and that are not."""
    ids = {one.sequence: _id(one) for one in stored}
    return [one for one in acknowledged if ids.get(one.sequence) != one.id]


def twice(stored: Iterable[Delivery]) -> list[str]:
    """Ids of events that are stored more than once."""
    return [id for id, n in Counter(map(_id, stored)).items() if id and n > 1]


def of_others(stored: Sequence[Delivery]) -> list[Delivery]:
    """Events of a worker that was not the last to claim their subject, in the stream's order."""
    owners: dict[str, str] = {}
    found = []
    for one in stored:
        told = json.loads(one.data)
        if told["type"] == "claim":
            owners[one.subject] = told["worker"]
        elif (one.headers or {}).get(WORKER) != owners.get(one.subject):
            found.append(one)
    return found


def forgotten(acknowledged: Iterable[Acknowledged]) -> dict[str, list[int]]:
    """Messages that a broker stored anew after it had acknowledged them, by id: it lost them."""
    sequences: dict[str, list[int]] = defaultdict(list)
    for one in acknowledged:
        if not one.is_duplicate and one.sequence not in sequences[one.id]:
            sequences[one.id].append(one.sequence)
    return {id: found for id, found in sequences.items() if len(found) > 1}


def _id(one: Delivery) -> str:
    return (one.headers or {}).get(ID, "")
