"""Streams without a leader, on three real brokers: named while they last, and gone when over."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.elections import until_led
from stepvad.fleet.broker.leadership import check_led, led
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.subjects import POSES
from tests.fleet.brokers import Broker, bus_settings, cluster
from tests.fleet.fleets import WorkerProcess
from tests.video.servers import SLOWER, wait_until

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
    return {name for name, is_led in (await led(bus, [])).items() if not is_led}


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
