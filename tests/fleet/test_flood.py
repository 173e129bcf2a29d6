"""A tenant that sends a hundred times what it may, and how long the frames of the others take.

Three tenants with two cameras each; rounds with and without the flood of a fourth alternate. Its
messages hold real poses: what the broker takes of them, workers have to score.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from stepvad.fleet import wire
from stepvad.fleet.broker.administration import set_up
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.places import Partition, place_of
from stepvad.fleet.settings import BusSettings, FleetSettings
from stepvad.fleet.wire import Batch
from stepvad.poses import Clip
from tests.fleet.brokers import broker, bus_settings
from tests.fleet.fleets import Player, Script, WorkerProcess, renumbered, script
from tests.fleet.quiet import joined, quiet
from tests.fleet.runs import SPEED, whole
from tests.video.servers import SLOWER, wait_until

logger = logging.getLogger(__name__)

CAMERAS, ROUND_S = 6, 3.0
ROUNDS = int(os.environ.get("STEPVAD_TEST_FLOOD_ROUNDS", "2"))
"""With a flood, and as many without."""
LIMITS = {"cameras": 2, "messages_s": 2.0, "poses_mb": 32, "shards": 1}
TIMES = 100
"""The flood, in times of what its tenant may send."""
FLOOD = Partition("flood", 0, 1)
STRANGER = 1_000_000
"""Added to the numbers of people in the flood, so that none passes for another's."""


def tenants(bus: BusSettings) -> FleetSettings:
    named = [{"name": f"t{i}", "sites": [f"site{i}"]} for i in range(3)]
    own = [{**one, "poses_mb": 32, "messages_s": 60, "shards": 1} for one in named]
    flood = {"name": "flood", "sites": ["bad"], **LIMITS}
    return FleetSettings.model_validate(
        {"bus": bus.model_dump(exclude_none=True), "tenants": [*own, flood]}
    )


def partition(site: str) -> Partition:
    return Partition(site.replace("site", "t"), 0, 1)


def scripts_of(round_: int, scenes: list[Clip]) -> list[Script]:
    """A part of a clip for each camera; the number of a person tells which one and when."""
    found = []
    for i in range(CAMERAS):
        clip = renumbered(scenes[i], 1000 * (round_ * CAMERAS + i))
        whole = script(f"site{i % 3}/cam{i}", clip, epoch=round_ + 1, speed=SPEED)
        found.append(replace(whole, messages=tuple(m for m in whole.messages if m[0] < ROUND_S)))
    return found


def flood_now(settings: BusSettings, sent: Batch) -> int:
    """In a process of its own: who floods does not send for others."""
    return asyncio.run(_flood(settings, sent))


async def _flood(settings: BusSettings, sent: Batch) -> int:
    """Messages of both cameras at an even rate, without waiting for an answer."""
    rate = TIMES * LIMITS["messages_s"] * LIMITS["cameras"]
    n = round(rate * ROUND_S)
    sent = replace(sent, tracks=sent.tracks + STRANGER)
    async with connected(settings, "flood") as bus:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for i in range(n):
            of = replace(sent.connection, site="bad", camera=f"cam{i % 2}")
            seq = i // 2 * len(sent)
            data = wire.encode(replace(sent, connection=of, seq=seq, slots=[i // 2]))
            subject = bus.subjects.poses("bad", of.camera, place_of(of.name, [FLOOD]))
            await bus.client.publish(subject, data, reply="_INBOX.flood")
            await asyncio.sleep(max(began + i / rate - loop.time(), 0))
    return n


async def play(settings: BusSettings, all_scripts: Sequence[Sequence[Script]]) -> Player:
    """Round after round, every second one with the flood."""
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, get_context("spawn")) as flooder:
        await loop.run_in_executor(flooder, os.getpid)  # everything is loaded
        async with connected(settings, "player") as bus:
            player = Player(bus, partition=partition)
            for round_, scripts in enumerate(all_scripts):
                sent = next(b for _, b in scripts[0].messages if len(b.tracks))
                if round_ % 2:
                    bad = loop.run_in_executor(flooder, flood_now, settings, sent)
                    await asyncio.gather(player.play(scripts), bad)
                else:
                    await player.play(scripts)
    return player


def delays(player: Player, times: Path) -> list[list[float]]:
    """Seconds from sending a frame to the scores of each of its windows, by round."""
    found: list[list[float]] = [[] for _ in range(2 * ROUNDS)]
    for line in times.read_text().splitlines():
        track, frame, at = line.split()
        if int(track) < STRANGER:
            round_, camera = divmod(int(track) // 1000, CAMERAS)
            sent = player.sent_at[f"site{camera % 3}/cam{camera}", round_ + 1, int(frame)]
            found[round_].append(float(at) - sent)
    return found


async def _kept(bus: NatsBus) -> list[int]:
    return [(await bus.stream_size(f"POSES-{name}-0")).messages for name in ("t0", "flood")]


def test_a_tenant_at_a_hundred_times_its_limit_delays_nobody(
    tmp_path: Path, scenes: list[Clip], workers: list[WorkerProcess]
) -> None:
    all_scripts = [scripts_of(i, scenes) for i in range(2 * ROUNDS)]
    with broker(tmp_path, payload="1MB") as one:
        settings = bus_settings([one], shards=1)
        asyncio.run(set_up(tenants(settings)))
        workers.append(WorkerProcess(tmp_path, [one], "w1", shards=1))
        workers[0].start()
        workers[0].wait_for(": 5 shards")
        player = asyncio.run(play(settings, all_scripts))
        wait_until(lambda: workers[0].metric("stepvad_fleet_waiting") == 0)

        async def sizes() -> list[int]:
            async with connected(settings, "looks") as bus:
                return await _kept(bus)

        own, flood = asyncio.run(sizes())
        rounds = delays(player, workers[0].times)
        scored = whole({*workers[0].windows.read_text().split("\n")})
    assert own == sum(len(one.messages) for some in all_scripts for one in some) // 3
    assert flood <= LIMITS["messages_s"] * 120 * LIMITS["cameras"]
    assert joined(quiet(some) for some in all_scripts).windows <= scored, (
        "frames of others are lost"
    )
    assert min(map(len, rounds)) > 500
    p99 = [float(np.quantile(found, 0.99)) for found in rounds]
    logger.info("p99 by round, every second one with the flood: %s s", p99)
    clean, flooded = np.median(p99[::2]), np.median(p99[1::2])
    assert flooded <= 1.2 * SLOWER * clean
