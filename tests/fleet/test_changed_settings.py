"""Settings that change while a fleet runs: applied by setup, or refused with what to do."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.broker.administration import enrol, set_up
from stepvad.fleet.broker.bus import ConflictError, UnavailableError
from stepvad.fleet.broker.elections import until_led
from stepvad.fleet.broker.nats import TIMEOUT_S, NatsBus, connected
from stepvad.fleet.settings import FleetSettings
from stepvad.fleet.subjects import EVENTS
from stepvad.fleet.tenants import Tenant
from stepvad.fleet.worker import service
from tests.fleet.brokers import Broker, broker, bus_settings, cluster
from tests.fleet.roles import FleetCommand, bus_section
from tests.video.servers import SLOWER

CHANGED = {
    "poses_mb": 100,
    "poses_s": 60,
    "events_days": 3,
    "events_mb": 200,
    "dead_mb": 8,
    "duplicates_s": 900,
    "lease_s": 1,
}


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path / "nats") as made:
        yield made


def talk(
    brokers: Sequence[Broker], what: Callable[[NatsBus], Awaitable[Any]], **more: object
) -> Any:
    """Do something on a bus with these settings."""

    async def go() -> Any:
        async with connected(bus_settings(brokers, **more), "test") as bus:
            return await what(bus)

    return asyncio.run(go())


async def facts(bus: NatsBus) -> dict[str, float]:
    """What the broker has, in the units of the settings."""
    names = ("POSES", "EVENTS", "DEAD", "KV_stepvad-leases")
    found = {name: (await bus._js.stream_info(name)).config for name in names}
    poses, events, dead, leases = found.values()
    return {
        "poses_mb": (poses.max_bytes or 0) / 1e6,
        "poses_s": poses.max_age or 0,
        "events_days": (events.max_age or 0) / 86400,
        "events_mb": (events.max_bytes or 0) / 1e6,
        "dead_mb": (dead.max_bytes or 0) / 1e6,
        "duplicates_s": events.duplicate_window or 0,
        "lease_s": leases.max_age or 0,
    }


def test_setup_changes_a_running_fleet_and_says_what(
    one: Broker, tmp_path: Path, fleet: FleetCommand
) -> None:
    async def before(bus: NatsBus) -> None:
        await bus.setup()
        await bus.publish(bus.subjects.events(bus.subjects.place(1)), b"kept", id="a")
        await bus.write("shard-1", b"state", 0)

    talk([one], before)
    path = tmp_path / "fleet.toml"
    path.write_text(bus_section(one, more="\n".join(f"{k} = {v}" for k, v in CHANGED.items())))
    code, words = fleet("fleet", "setup", path)
    assert code == 0, words
    for said in ("POSES: poses_mb 512 -> 100", "events_days 7 -> 3", "lease_s 2 -> 1"):
        assert f"changed: {said}" in words.replace("EVENTS: ", "").replace(
            "KV_stepvad-leases: ", ""
        ), words
    assert "duplicate_window" not in words
    again, words = fleet("fleet", "setup", path)
    assert (again, "changed" in words) == (0, False), words

    async def after(bus: NatsBus) -> None:
        assert await facts(bus) == CHANGED
        assert await bus.said(bus.subjects.events(bus.subjects.place(1)), 0) == [b"kept"]
        assert (
            await bus.publish(bus.subjects.events(bus.subjects.place(1)), b"kept", id="a")
        ).is_duplicate
        state = await bus.read("shard-1")
        assert state is not None
        await bus.write("shard-1", b"next", state.revision)
        mine = await bus.lease("w1", b"1")
        await asyncio.sleep(1.6)
        assert await bus.leases() == {}  # after a second, no longer two
        with pytest.raises(ConflictError):
            await bus.lease("w1", b"1", mine)

    talk([one], after, **CHANGED)


def test_a_worker_with_other_settings_warns_and_changes_nothing(
    one: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(set_up(FleetSettings(bus=bus_settings([one], **CHANGED))))

    async def what(bus: NatsBus) -> dict[str, float]:
        for _ in range(3):
            await bus.setup()
        return await facts(bus)

    with caplog.at_level(logging.WARNING):
        assert talk([one], what, poses_mb=300, lease_s=0.5) == CHANGED
    said = [record.getMessage() for record in caplog.records]
    assert sum("poses_mb 100 -> 300: the settings differ" in words for words in said) == 1
    assert sum("lease_s 1 -> 0.5" in words for words in said) == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        talk([one], lambda bus: bus.compare(EVENTS), events_days=9)
    assert "events_days 3 -> 9" in caplog.text


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"replicas": 3}, r"bus.replicas: expected 1 with one broker, got: .*non-clustered"),
        ({"poses_mb": 5000}, r"bus.poses_mb: expected less than the broker's max_memory_store"),
        ({"events_mb": 50_000}, r"expected less than the broker's max_file_store"),
        ({"duplicates_s": 86400, "events_days": 0.5}, "expected settings that go together"),
        ({"prefix": "other"}, r"bus.prefix: expected that of the stream POSES, stepvad"),
    ],
)
def test_what_the_broker_cannot_do_is_refused_at_once(
    one: Broker, more: dict[str, Any], said: str
) -> None:
    async def admin(bus: NatsBus) -> None:
        with pytest.raises(ConfigError, match=said):
            await asyncio.wait_for(bus.change(), 10 * SLOWER)

    if "prefix" not in more:
        talk([one], admin, **more)  # before there are streams
    talk([one], lambda bus: bus.setup())
    before = talk([one], facts)
    talk([one], admin, **more)
    assert talk([one], facts) == before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"replicas": 3}, r"bus.replicas: expected 1 with one broker"),
        ({"lease_s": 10}, None),
    ],
)
def test_a_worker_ends_with_what_to_do_instead_of_trying_for_ever(
    one: Broker, more: dict[str, Any], said: str | None
) -> None:
    if said is None:
        talk([one], lambda bus: bus.setup())
        said = r"bus.lease_s: expected at most 2 as the broker has it, got 10"

    async def work(bus: NatsBus) -> None:
        with pytest.raises(ConfigError, match=said):
            await asyncio.wait_for(service.set_up(bus, asyncio.Event()), 10 * SLOWER)

    talk([one], work, **more)


def test_what_a_broker_lost_is_made_as_the_administrator_had_it(tmp_path: Path) -> None:
    async def again(bus: NatsBus) -> dict[str, float]:
        deadline = time.monotonic() + 10 * SLOWER
        while True:
            try:
                await bus.setup()
                return await facts(bus)
            except UnavailableError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)

    with broker(tmp_path) as own:
        asyncio.run(set_up(FleetSettings(bus=bus_settings([own], **CHANGED))))
        own.kill()
        own.start()
        assert talk([own], again, poses_mb=300, lease_s=0.5) == CHANGED


@pytest.mark.slow
def test_a_fleet_gets_more_replicas(tmp_path: Path) -> None:
    async def replicas(bus: NatsBus) -> set[int | None]:
        names = ("POSES", "EVENTS", "DEAD", "KV_stepvad-leases", "KV_stepvad-state")
        return {(await bus._js.stream_info(name)).config.num_replicas for name in names}

    with cluster(tmp_path) as three:
        talk(three, lambda bus: until_led(bus.change), replicas=1)
        found = asyncio.run(set_up(FleetSettings(bus=bus_settings(three))))
        assert "POSES: replicas 1 -> 3" in found
        assert talk(three, replicas) == {3}


@pytest.mark.slow
def test_setup_waits_for_a_leader(tmp_path: Path) -> None:
    south = Tenant(name="south", sites=("south",)).with_partitions(1)

    async def enrolled(bus: NatsBus, others: Sequence[Broker]) -> bool:
        await until_led(bus.change)
        for other in others:
            other.send(signal.SIGSTOP)
        joining = asyncio.create_task(enrol(bus, south))
        await asyncio.sleep(2 * TIMEOUT_S)  # longer than a request: without patience it failed
        assert not joining.done()
        for other in others:
            other.send(signal.SIGCONT)
        await joining
        return "south" in await bus.tenants()

    with cluster(tmp_path) as three:
        at_first = bus_settings(three, servers=[three[0].address])

        async def go() -> bool:
            async with connected(at_first, "test") as bus:
                return await enrolled(bus, three[1:])

        assert asyncio.run(go())
