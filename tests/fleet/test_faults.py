"""Faults of a fleet, against real brokers and workers in processes of their own.

Each run is compared with a quiet one: the same events with the same ids, kinds and times, the
same windows to the last bit, scores to 1e-5.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import BusSettings
from stepvad.poses import Clip
from tests.fleet.brokers import Broker, broker, bus_settings, cluster
from tests.fleet.fleets import RATE, Script, WorkerProcess, script
from tests.fleet.quiet import Quiet, assert_same, joined, quiet
from tests.fleet.runs import SPEED, dead, poison, run, several, whole
from tests.video.servers import SLOWER


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
