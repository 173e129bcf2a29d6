"""Which streams have a leader; one without stores nothing and delivers nothing."""

from __future__ import annotations

import asyncio

from stepvad.fleet.broker.arrangement import configs
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus


async def led(bus: NatsBus) -> dict[str, bool]:
    """Whether each stream and bucket of a fleet has a leader; empty without a connection."""
    if not bus.client.is_connected:
        return {}
    names = [config.name or "" for config in configs(bus.settings)]
    found = await asyncio.gather(*(_has_leader(bus, name) for name in names))
    return dict(zip(names, found, strict=True))


async def check_led(bus: NatsBus) -> None:
    """Reject a fleet in which a stream has no leader."""
    found = await led(bus)
    if without := [name for name, is_led in found.items() if not is_led]:
        raise UnavailableError(
            f"bus: expected a leader for every stream, got none for {', '.join(without)}",
            hint="start the missing brokers; if all run, delete that stream of poses and retry",
        )


async def _has_leader(bus: NatsBus, stream: str) -> bool:
    """A broker alone is its own leader; a stream that does not answer has none."""
    try:
        facts = await bus.stream_facts(stream)
    except UnavailableError:
        return False
    return "cluster" not in facts or bool(facts["cluster"].get("leader"))
