"""Faults of a fleet, against real brokers and workers in processes of their own.

Each run is compared with a quiet one: the same events with the same ids, kinds and times, the
same windows to the last bit, scores to 1e-5.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.events.record import Record
from stepvad.fleet.broker.administration import check_led, led
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.broker.nats_errors import until_led
from stepvad.fleet.events.postgres import Wanted, connect
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.subjects import EVENTS, POSES
from stepvad.fleet.worker.service import set_up
from stepvad.poses import Clip
from tests.fleet.fleets import (
    RATE,
    SPEED,
    Heard,
    Role,
    Script,
    WorkerProcess,
    bus_section,
    dead,
    poison,
    script,
    several,
    whole,
)
from tests.fleet.results import (
    Quiet,
    assert_same,
    body,
    event,
    joined,
    nothing_waits,
    over,
    quiet,
    run,
)
from tests.fleet.servers import (
    Broker,
    Disk,
    PostgresServer,
    broker,
    bus_settings,
    cluster,
    postgres_server,
    small_disk,
)
from tests.video.servers import SLOWER, wait_until

LONG = float(os.environ.get("STEPVAD_TEST_OVERLOAD_S", "10"))
"""How long a worker is overloaded."""


async def nothing() -> None:
    pass


def start_two(workers: list[WorkerProcess], directory: Path, one: Broker) -> None:
    """Two workers with half of the shards each."""
    workers += [WorkerProcess(directory, [one], name) for name in ("w1", "w2")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.wait_for(": 2 shards")


def test_1_a_worker_killed_in_mid_window_loses_nothing(
    tmp_path: Path, scenes: list[Clip], undisturbed: list[Quiet], workers: list[WorkerProcess]
) -> None:
    scripts = several(scenes)
    expected = joined(undisturbed)
    with broker(tmp_path) as one:
        start_two(workers, tmp_path, one)

        async def kill() -> None:
            await asyncio.sleep(2.5)
            workers[0].kill()

        found = asyncio.run(run([one], workers, scripts, expected, kill))
        assert_same(found.heard, expected)
        assert whole(found.windows) == expected.windows
        assert max(found.latencies()) <= 3.0 * SLOWER
        assert workers[1].stop() == 0


def test_2_a_broker_killed_for_two_seconds_loses_nothing(
    tmp_path: Path, scenes: list[Clip], undisturbed: list[Quiet], workers: list[WorkerProcess]
) -> None:
    scripts = several(scenes)
    expected = joined(undisturbed)
    with broker(tmp_path) as one:
        workers.append(WorkerProcess(tmp_path, [one], "w1"))
        workers[0].start()
        workers[0].wait_for(": 4 shards")

        async def kill() -> None:
            await asyncio.sleep(2.5)
            one.kill()
            await asyncio.sleep(2.0)
            await asyncio.to_thread(one.start)

        found = asyncio.run(run([one], workers, scripts, expected, kill))
        assert_same(found.heard, expected)
        assert whole(found.windows) == expected.windows
        assert max(found.latencies()) <= 2.0 + 1.0 * SLOWER


def test_3_the_leader_of_three_brokers_killed_loses_nothing(
    tmp_path: Path, scenes: list[Clip], undisturbed: list[Quiet], workers: list[WorkerProcess]
) -> None:
    scripts = several(scenes, 4)
    expected = joined(undisturbed[:4])
    with cluster(tmp_path) as three:
        time.sleep(2.0)  # they elect one of them
        workers.append(WorkerProcess(tmp_path, three, "w1", worker={"silent_s": 30}))
        workers[0].start()
        workers[0].wait_for(": 4 shards")
        leader = asyncio.run(leader_of(bus_settings(three)))

        async def kill() -> None:
            await asyncio.sleep(2.0)
            next(one for one in three if one.name == leader).kill()

        found = asyncio.run(run(three, workers, scripts, expected, kill))
        assert_same(found.heard, expected)
        assert whole(found.windows) == expected.windows
        assert max(found.latencies()) <= 10.0 * SLOWER


async def leader_of(settings: BusSettings) -> str:
    """The broker that leads the stream of poses."""
    async with connected(settings, "asks") as bus:
        facts = await bus.client.jetstream().stream_info("POSES")
        assert facts.cluster is not None
        return str(facts.cluster.leader)


def disordered(one: Script, seed: int) -> Script:
    """5 % of the frames twice and 5 % of them up to 5 late."""
    rng = np.random.default_rng(seed)
    body, last = one.messages[:-1], one.messages[-1]
    step = body[1][0] - body[0][0]
    late = np.where(rng.random(len(body)) < 0.05, rng.uniform(0.5, 4.5, len(body)), 0) * step
    again = rng.random(len(body)) < 0.05
    moved = [(at + shift, batch) for (at, batch), shift in zip(body, late, strict=True)]
    moved += [(at + step, batch) for (at, batch), twice in zip(moved, again, strict=True) if twice]
    return replace(one, messages=(*sorted(moved, key=lambda m: m[0]), last))


def test_5_6_7_disorder_clocks_and_poison_change_nothing(
    tmp_path: Path, scenes: list[Clip], undisturbed: list[Quiet], workers: list[WorkerProcess]
) -> None:
    clean = several(scenes, 4)
    moved = script("clock/cam", scenes[1], epoch=9, speed=2 * SPEED, ends=False)
    back = script("clock/cam", scenes[1], epoch=4, speed=2 * SPEED, wall0=1_699_996_400.0)
    later = tuple((at + moved.messages[-1][0] + 0.1, batch) for at, batch in back.messages)
    clocks = replace(moved, messages=(*moved.messages, *later))
    expected = joined([*undisturbed[:4], quiet([clocks])])
    scripts = [*(disordered(one, i) for i, one in enumerate(clean)), clocks]
    with broker(tmp_path) as one:
        workers.append(WorkerProcess(tmp_path, [one], "w1"))
        workers[0].start()
        workers[0].wait_for(": 4 shards")
        buried: list[str] = []

        async def feed() -> None:
            async with connected(bus_settings([one]), "poison") as bus:
                subject = bus.subjects.poses("site0", "cam0")
                with_people = next(b for _, b in clean[0].messages if len(b.tracks))
                for _ in range(3):
                    for data in poison(with_people):
                        await bus.publish(subject, data)
                    await asyncio.sleep(1.0)

        found = asyncio.run(run([one], workers, scripts, expected, feed))
        assert_same(found.heard, expected)
        assert whole(found.windows) == expected.windows
        assert len({t.after.id for t in found.heard.told}) == len(expected.heard().ended())
        assert workers[0].metric("stepvad_fleet_frames_left_out_total") >= 40
        buried = asyncio.run(dead(bus_settings([one])))
        assert sorted(set(buried)) == ["10000000", *sorted({s for s in buried if s != "10000000"})]
        assert len(buried) == 15
        assert np.quantile(found.latencies(), 0.99) <= 0.5 * SLOWER


def test_8_poses_beyond_the_cap_are_dropped_and_counted_and_alerts_are_not(
    tmp_path: Path, scenes: list[Clip], workers: list[WorkerProcess]
) -> None:
    """The worker hangs while more comes than the broker keeps; afterwards all is as before."""
    first = [script(f"a/cam{i}", scenes[i], speed=SPEED) for i in range(4)]
    second = [script(f"a/cam{i}", scenes[i], epoch=2, speed=SPEED) for i in range(4)]
    with broker(tmp_path) as one:
        workers.append(WorkerProcess(tmp_path, [one], "w1", poses_mb=0.1, shards=1))
        workers[0].start()
        workers[0].wait_for(": 1 shards")

        async def hang() -> None:
            await asyncio.sleep(1.0)
            workers[0].send(signal.SIGSTOP)
            await asyncio.sleep(3.5)
            workers[0].send(signal.SIGCONT)

        found = asyncio.run(run([one], workers, first, Quiet(), hang, poses_mb=0.1, shards=1))
        missed = workers[0].metric("stepvad_fleet_frames_left_out_total")
        assert missed > 50
        assert set(found.heard.ids("new")) == set(found.heard.ids("end"))
        expected = quiet(second)
        again = asyncio.run(run([one], workers, second, expected, nothing, poses_mb=0.1, shards=1))
        assert_same(again.heard, expected)
        assert workers[0].metric("stepvad_fleet_frames_left_out_total") == missed


def test_9_twice_the_load_is_shed_in_whole_frames_and_alerts_stay_quick(
    tmp_path: Path, scenes: list[Clip], workers: list[WorkerProcess]
) -> None:
    n = max(round(LONG / (scenes[0].n_frames / RATE)), 1)
    scripts = []
    for i in range(6):
        parts = [script(f"a/cam{i}", scenes[i], epoch=k + 1) for k in range(n)]
        length = parts[0].messages[-1][0] + 0.04
        messages = [(at + k * length, b) for k, one in enumerate(parts) for at, b in one.messages]
        scripts.append(replace(parts[0], messages=tuple(messages)))
    offered = len(quiet([script(f"a/cam{i}", scenes[i]) for i in range(6)]).windows)
    rate = offered / (scenes[0].n_frames / RATE)
    with broker(tmp_path) as one:
        slow_ms = 2 * 1000 / rate
        workers.append(
            WorkerProcess(tmp_path, [one], "w1", slow_ms=slow_ms, worker={"catch_up_s": 0})
        )
        workers[0].start()
        workers[0].wait_for(": 4 shards")
        memory: list[float] = []

        async def look() -> None:
            for _ in range(int(LONG)):
                await asyncio.sleep(1.0)
                memory.append(workers[0].memory_mb())

        found = asyncio.run(run([one], workers, scripts, Quiet(), look))
        assert workers[0].metric("stepvad_fleet_frames_left_out_total") > 100
        assert max(memory) < memory[1] + 60
        assert set(found.heard.ids("new")) == set(found.heard.ids("end"))
        assert found.heard.told
        delays = found.latencies()
        assert np.quantile(delays, 0.99) <= 2.0 + 0.5 * SLOWER


def test_10_an_owner_that_wakes_up_after_its_lease_says_nothing_more(
    tmp_path: Path, scenes: list[Clip], undisturbed: list[Quiet], workers: list[WorkerProcess]
) -> None:
    scripts = several(scenes)
    expected = joined(undisturbed)
    with broker(tmp_path) as one:
        start_two(workers, tmp_path, one)

        async def pause() -> None:
            await asyncio.sleep(1.5)
            workers[0].send(signal.SIGSTOP)
            await asyncio.sleep(3.5)
            workers[0].send(signal.SIGCONT)

        found = asyncio.run(run([one], workers, scripts, expected, pause))
        assert_same(found.heard, expected)
        assert whole(found.windows) == expected.windows
        assert "taken over by another worker" in workers[0].log.read_text()
        assert found.heard.claims >= 4 + 2


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
    return bus.subjects.events(n % 4)


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


LED = "stepvad_fleet_stream_led"
STREAMS = 7
"""Poses, events, dead letters and four buckets."""


def leaders(worker: WorkerProcess) -> float:
    """How many streams have one."""
    try:
        return worker.metric(LED)
    except OSError:
        return -1


def test_a_worker_names_the_streams_without_a_leader_until_they_have_one(tmp_path: Path) -> None:
    with cluster(tmp_path) as three:
        for one in three[1:]:
            one.kill()
        worker = WorkerProcess(tmp_path, three, "w1")
        worker.launch()
        try:
            wait_until(lambda: leaders(worker) == 0, 60 * SLOWER)
            assert "started" not in worker.log.read_text(), "it has no streams yet"
            for one in three[1:]:
                one.start()
            wait_until(lambda: leaders(worker) == STREAMS, 90 * SLOWER)
            assert worker.metric(LED, 'stream="POSES"') == 1

            for one in three[1:]:
                one.kill()
            wait_until(lambda: leaders(worker) == 0, 60 * SLOWER)
            for one in three[1:]:
                one.start()
            wait_until(lambda: leaders(worker) == STREAMS, 90 * SLOWER)
        finally:
            worker.kill()


def stop(one: Broker) -> None:
    """End a broker that says so: the others give it no more copies."""
    one.send(signal.SIGTERM)
    assert one.process is not None
    one.process.wait(60)
    one.process = None


async def delete(bus: NatsBus, stream: str) -> None:
    """What `nats stream rm` asks for."""
    answer = await bus.client.request(f"$JS.API.STREAM.DELETE.{stream}", timeout=10)
    assert json.loads(answer.data).get("success"), answer.data


async def peers(bus: NatsBus, stream: str) -> set[str]:
    """The brokers that have a copy."""
    group = (await bus.stream_facts(stream))["cluster"]
    return {group["leader"], *(one["name"] for one in group["replicas"])}


async def without_leader(bus: NatsBus) -> set[str]:
    return {name for name, is_led in (await led(bus)).items() if not is_led}


async def soon(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60 * SLOWER):
        while not await happened():
            await asyncio.sleep(0.2)


async def cure(five: list[Broker]) -> None:
    """Lose two copies of the poses for good while the brokers as a whole go on."""
    async with connected(bus_settings(five[:3], replicas=3), "admin") as bus:
        await until_led(bus.setup, 20 * SLOWER)  # on the three that run
        for one in five[3:]:
            one.start()
        await soon(lambda: _moved(bus, {one.name for one in five[3:]}))
        for one in five[3:]:
            stop(one)
        await soon(lambda: _is(bus, {POSES}))
        await until_led(bus.setup)  # changes nothing: the stream is there
        with pytest.raises(UnavailableError, match=f"got none for {POSES};"):
            await check_led(bus)
        with pytest.raises(UnavailableError):
            await bus.publish(bus.subjects.poses("north", "yard"), b"taken by nobody")
        await delete(bus, POSES)
        await until_led(bus.setup, 60 * SLOWER)
        await until_led(lambda: check_led(bus), 60 * SLOWER)
        assert await until_led(lambda: peers(bus, POSES)) == {one.name for one in five[:3]}


async def _is(bus: NatsBus, wanted: set[str]) -> bool:
    return bus.client.is_connected and await without_leader(bus) == wanted


async def _moved(bus: NatsBus, wanted: set[str]) -> bool:
    """Whether the copies of the poses are on these brokers; they are made again if not."""
    try:
        if wanted <= await peers(bus, POSES):
            return True
        await delete(bus, POSES)
        await bus.setup()
    except UnavailableError:
        pass
    return False


def test_a_stream_whose_copies_are_lost_is_named_and_made_again(tmp_path: Path) -> None:
    with cluster(tmp_path, 5) as five:
        wait_until(lambda: all(one.is_healthy() for one in five))  # they know how many they are
        for one in five[3:]:
            stop(one)
        asyncio.run(cure(five))
