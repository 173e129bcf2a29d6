"""Disks that are full under a fleet: events wait where they are, and arrive when there is room."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest

from stepvad.events.record import Record
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.events.postgres import connect
from stepvad.fleet.events.wanted import Wanted
from stepvad.fleet.subjects import EVENTS
from stepvad.fleet.worker.service import set_up
from stepvad.poses import Clip
from tests.fleet.brokers import Broker, broker, bus_settings, cluster
from tests.fleet.disks import Disk, small_disk
from tests.fleet.fleets import Heard, WorkerProcess
from tests.fleet.messages import body, event, over
from tests.fleet.postgres import PostgresServer, postgres_server
from tests.fleet.quiet import Quiet, assert_same, joined
from tests.fleet.roles import Role, bus_section
from tests.fleet.rows import nothing_waits
from tests.fleet.runs import run, several, whole
from tests.video.servers import SLOWER, wait_until


UNSAID = "stepvad_fleet_events_unsaid"
SCORED = "stepvad_fleet_frames_scored_total"


def full_for_a_while(disk: Disk, server: Broker, worker: WorkerProcess) -> None:
    """Until events wait and frames are scored all the same; then there is room again.

    A broker that met a full disk stores nothing more before its JetStream is started again.
    """
    disk.fill()
    worker.wait_for("events wait")
    wait_until(lambda: worker.metric(UNSAID) > 1)
    scored = worker.metric(SCORED)
    wait_until(lambda: worker.metric(SCORED) > scored + 25)
    assert worker.metric(UNSAID) > 1
    disk.free()
    server.restart_jetstream()
    wait_until(lambda: worker.metric(UNSAID) == 0)


def in_order(heard: Heard) -> bool:
    """Whether every event begins, changes and ends, in the order of the stream."""
    kinds: dict[str, list[str]] = {}
    for told in heard.told:
        kinds.setdefault(told.after.id, []).append(told.kind)
    return all(found == ["new", *["update"] * (len(found) - 2), "end"] for found in kinds.values())


def test_8_events_wait_in_the_worker_while_the_disk_of_the_broker_is_full(
    tmp_path: Path, scenes: list[Clip], undisturbed: list[Quiet], workers: list[WorkerProcess]
) -> None:
    scripts = several(scenes)
    expected = joined(undisturbed)
    with small_disk(8) as disk, broker(tmp_path, store=disk.path) as one:
        rarely: dict[str, object] = {
            "checkpoint_s": 30
        }  # it is an event that meets the full disk first
        workers.append(WorkerProcess(tmp_path, [one], "w1", worker=rarely))
        workers[0].start()
        workers[0].wait_for(": 4 shards")
        process = workers[0].process

        async def fill() -> None:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(full_for_a_while, disk, one, workers[0])

        found = asyncio.run(run([one], workers, scripts, expected, fill))
        assert_same(found.heard, expected)
        assert in_order(found.heard)
        assert whole(found.windows) == expected.windows
        assert process is not None
        assert process.poll() is None


async def published(bus: NatsBus, first: int, seconds: float) -> list[int]:
    """Sequences of events that the brokers acknowledged, one event after the other for a time."""
    found, deadline, n = [], time.monotonic() + seconds, first
    while time.monotonic() < deadline:
        one, n = over(event(n)), n + 1
        with suppress(UnavailableError):
            told = body("end", one)
            done = await bus.publish(subject(bus, n), told, id=f"{one.id}:end:0")
            found.append(done.sequence)
    return found


async def behind(bus: NatsBus, name: str) -> bool:
    """Whether a broker misses events that the other two have."""
    facts = await bus.client.jetstream().stream_info(EVENTS)
    assert facts.cluster is not None
    known = {one.name: one for one in facts.cluster.replicas or []}
    return name != facts.cluster.leader and not known[name].current


def test_8_one_of_three_brokers_catches_up_after_its_disk_was_full_without_a_restart(
    tmp_path: Path,
) -> None:
    async def go(brokers: list[Broker], disk: Disk) -> None:
        async with connected(bus_settings(brokers[1:], replicas=3), "test") as bus:
            await set_up(bus, asyncio.Event())
            acknowledged = await published(bus, 0, 1.0)
            disk.fill()
            acknowledged += await published(bus, 100_000, 12.0)
            assert await behind(bus, "n1")
            disk.free()
            brokers[0].restart_jetstream()
            deadline = time.monotonic() + 15 * SLOWER
            while await behind(bus, "n1") and time.monotonic() < deadline:
                await asyncio.sleep(0.2)
            assert not await behind(bus, "n1")
            acknowledged += await published(bus, 200_000, 0.5)
            state = (await bus.client.jetstream().stream_info(EVENTS)).state
            assert (state.messages, state.last_seq) == (len(acknowledged), acknowledged[-1])

    with small_disk(16) as disk, cluster(tmp_path, first_store=disk.path) as brokers:
        process = brokers[0].process
        time.sleep(3.0)
        asyncio.run(go(brokers, disk))
        assert brokers[0].process is process
        assert process is not None
        assert process.poll() is None


NUMBER = 300
FULL = "No space left on device"


def subject(bus: NatsBus, n: int) -> str:
    return bus.subjects.events(bus.subjects.place(n % 4))


async def written_late(server: Broker, kept: PostgresServer, disk: Disk, log: Path) -> list[Record]:
    """What is stored of events that were told while nothing could be."""
    async with connected(bus_settings([server]), "test") as bus, connect(kept.dsn) as events:
        await bus.setup()
        await events.migrate()
        disk.fill()
        for n in range(NUMBER):
            one = over(event(n))
            await bus.publish(subject(bus, n), body("end", one), id=f"{one.id}:end:0")
        deadline = time.monotonic() + 15 * SLOWER
        while FULL not in log.read_text() and time.monotonic() < deadline:
            await asyncio.sleep(0.1)
        assert (await events.totals(stale_s=60)).events < NUMBER
        disk.free()
        assert await nothing_waits(bus.settings, 30 * SLOWER)
        return await events.events(Wanted(), limit=None)


def test_8_events_wait_on_the_bus_while_the_disk_of_the_database_is_full(tmp_path: Path) -> None:
    settings = tmp_path / "fleet.toml"
    told = '[events]\ndsn = "env:DSN"\nbatch = 7\nretention_days = 1e5\n'
    with (
        small_disk(120) as disk,
        broker(tmp_path / "nats") as one,
        postgres_server(on=disk.path) as kept,
    ):
        settings.write_text(bus_section(one) + told)
        with Role("events", settings, DSN=kept.dsn) as role:
            found = asyncio.run(written_late(one, kept, disk, role.log))
            assert {one.id: one for one in found} == {
                event(n).id: over(event(n)) for n in range(NUMBER)
            }
            assert FULL in role.log.read_text()
            assert role.stop() == 0, role.log.read_text()
