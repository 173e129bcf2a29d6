"""What one broker and one database take at most, for the page on capacity. Prints Markdown.

    python -m studies limits [--rounds 5]

Servers are real and on the loopback interface, their clients on the same cores; what is stored on
disk is synced. Figures of a busy machine are noise: run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import nats
from nats.js import api

from stepvad.fleet.broker.nats import connected
from stepvad.fleet.events.postgres import connect
from stepvad.fleet.settings import BusSettings, EdgeSettings, EventsSettings
from stepvad.fleet.subjects import POSES
from studies.figures import markdown
from studies.simulated.cameras import SHARDS, Camera
from tests.fleet.results import body, change, event
from tests.fleet.servers import broker, postgres_server

LOADS = (50, 10), (5, EdgeSettings().frames_per_message)
"""People in a frame, frames in a message: a crowd, and what the page on capacity plans with."""
MESSAGES = 4000
CAMERAS = 40
CHANGES = 3000
COMMITS = 300
IN_FLIGHT = 256
"""Messages of a client that the broker has not acknowledged yet."""
LATE_S = 60.0
"""Longest wait for a message."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(arguments).rounds
    batch = EventsSettings().batch
    limits: dict[str, Callable[[], float]] = {
        f"frames of {people} people, {frames} in a message": partial(poses, people, frames)
        for people, frames in LOADS
    } | {
        "changes of events, each synced by the broker": events,
        "commits of one change": lambda: commits(1, COMMITS),
        f"changes of events, {batch} in a commit": lambda: batch * commits(batch, COMMITS // 10),
    }
    rows = []
    for what, measure in limits.items():
        rates = sorted(measure() for _ in range(rounds))
        rows.append(
            [what, f"{statistics.median(rates):,.0f}", f"{rates[0]:,.0f} to {rates[-1]:,.0f}"]
        )
        print(f"{what}: {rows[-1][1]}", file=sys.stderr, flush=True)
    print(markdown(["what", "a second (median)", "least to most"], rows, words=[0]))


def poses(people: int, frames: int) -> float:
    """Frames a second from one client through the stream of poses, in memory, to another."""
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as server:
        settings = BusSettings(servers=[server.address], shards=SHARDS, poses_mb=900, poses_s=3600)
        asyncio.run(set_up(settings))
        sender = multiprocessing.Process(target=send_poses, args=(settings, people, frames))
        sender.start()
        try:
            return frames * asyncio.run(read_poses(server.address))
        finally:
            sender.kill()
            sender.join()


async def set_up(settings: BusSettings) -> None:
    """Make the streams."""
    async with connected(settings, "limits") as bus:
        await bus.setup()


def send_poses(settings: BusSettings, people: int, frames: int) -> None:
    """Publish frames of some cameras as fast as the broker acknowledges them."""

    async def send() -> None:
        async with connected(settings, "sender") as bus:
            cameras = [Camera(number, people, frames) for number in range(CAMERAS)]
            ready = [(bus.subjects.poses(one.site, one.camera), one.message()) for one in cameras]
            await in_flight(lambda i: bus.publish(*ready[i % CAMERAS]), MESSAGES)

    asyncio.run(send())


async def read_poses(address: str) -> float:
    """Messages a second, from the first to the last."""
    client = await nats.connect(address)
    stream = client.jetstream()
    settings = api.ConsumerConfig(
        durable_name="reader", ack_policy=api.AckPolicy.ALL, max_ack_pending=-1
    )
    await stream.add_consumer(POSES, settings)
    pull = await stream.pull_subscribe_bind(durable="reader", stream=POSES)
    first = await pull.fetch(1, timeout=LATE_S)
    started, seen = time.monotonic(), len(first)
    while seen < MESSAGES:
        found = await pull.fetch(IN_FLIGHT, timeout=LATE_S)
        await found[-1].ack()
        seen += len(found)
    taken = time.monotonic() - started
    await client.close()
    return (MESSAGES - 1) / taken


def events() -> float:
    """Changes a second into the stream of events."""

    async def publish(address: str) -> float:
        async with connected(BusSettings(servers=[address], shards=SHARDS), "limits") as bus:
            await bus.setup()
            subjects = [bus.subjects.events(shard) for shard in range(SHARDS)]
            ready = [body("new", event(number)) for number in range(CHANGES)]
            started = time.monotonic()
            await in_flight(
                lambda i: bus.publish(subjects[i % SHARDS], ready[i], id=str(i)), CHANGES
            )
            return CHANGES / (time.monotonic() - started)

    with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as server:
        return asyncio.run(publish(server.address))


async def in_flight(publish: Callable[[int], Awaitable[object]], n: int) -> None:
    """Publish so many messages, with a limited number of them not acknowledged yet."""

    async def lane(first: int) -> None:
        for i in range(first, n, IN_FLIGHT):
            await publish(i)

    await asyncio.gather(*map(lane, range(IN_FLIGHT)))


def commits(changes: int, n: int) -> float:
    """Commits a second, one after the other, of so many new events each."""

    async def write(dsn: str) -> float:
        async with connect(dsn) as store:
            await store.migrate()
            ready = [change("new", event(number), number + 1) for number in range(changes * n)]
            started = time.monotonic()
            for i in range(n):
                await store.write(ready[i * changes : (i + 1) * changes])
            return n / (time.monotonic() - started)

    with postgres_server("fsync=on", "full_page_writes=on") as server:
        return asyncio.run(write(server.dsn))
