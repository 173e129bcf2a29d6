"""What a fleet costs beside its model, and how far one machine carries it. Prints Markdown.

    python -m studies fleet overhead [--rounds 5]    a worker against a bare consumer, CPU per frame
    python -m studies fleet scaling                   frames a second with one and with two workers
    python -m studies fleet latency                   from frame to event at 80 % of capacity
    python -m studies fleet simulate --cameras 200 --minutes 10    a fleet
    python -m studies fleet storm [--rounds 5]        1,000 events at once, until all are stored

Brokers are real and on the loopback interface. Figures of a busy machine are noise: run it alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as a worker has it

import msgpack
import nats
import numpy as np
from nats.js import api

from stepvad.detector import Detector
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.settings import BusSettings, FleetSettings, ModelSettings, WorkerSettings
from stepvad.fleet.subjects import POSES
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.owned_shard import FRAME_TIME, Outlets, OwnedShard, take
from stepvad.fleet.worker.scoring import Announcement, BatchScorer
from stepvad.fleet.worker.shard import Pace, Shard
from stepvad.fleet.worker.worker import Worker
from stepvad.site import demo
from stepvad.windows.live import WindowAssembler
from stepvad.windows.views import Windows
from studies.figures import cpu_s
from studies.simulated import fleet as simulated_fleet
from studies.simulated.cameras import RATE, SHARDS, Camera
from studies.simulated.fleet import Load, events_of, fleet, player, sent_by, total
from tests.fleet.results import event
from tests.fleet.servers import Broker, broker, bus_settings, cluster

QUIET = 1e6
"""A threshold that nobody passes: events are rare, and not what is measured."""


async def fill(bus: NatsBus, cameras: list[Camera], messages: int) -> None:
    """Put messages on the stream of poses."""
    subjects = [bus.subjects.poses(c.site, c.camera) for c in cameras]
    sent = 0
    while sent < messages:
        for camera, subject in zip(cameras, subjects, strict=True):
            await bus.client.publish(subject, camera.message())
            sent += 1
        await bus.client.flush(timeout=30)
    deadline = time.monotonic() + 30
    while (await bus.client.jetstream().stream_info(POSES)).state.messages < sent:
        if time.monotonic() > deadline:
            raise SystemExit(f"expected {sent} messages on the stream, got fewer")
        await asyncio.sleep(0.05)


async def bare(settings: BusSettings, messages: int) -> float:
    """CPU seconds of a consumer that only fetches, decodes and acknowledges."""
    client = await nats.connect(settings.servers)
    stream = client.jetstream()
    config = api.ConsumerConfig(
        name="bare", durable_name="bare", ack_policy=api.AckPolicy.ALL, max_ack_pending=-1
    )
    await stream.add_consumer(POSES, config)
    pull = await stream.pull_subscribe_bind(durable="bare", stream=POSES)
    started, seen = time.process_time(), 0
    while seen < messages:
        found = await pull.fetch(256, timeout=5)
        for msg in found:
            facts = msgpack.unpackb(msg.data)
            np.frombuffer(facts["keypoints"], "<f4")
        seen += len(found)
        await found[-1].ack()
    taken = time.process_time() - started
    await stream.delete_consumer(POSES, "bare")
    await client.close()
    return taken


class Clocks:
    """CPU of the model and of keeping people's poses for its windows, inside a worker."""

    model = keeping = 0.0
    """From windows in pixels to their scores; from poses to windows in pixels."""
    is_running = False
    """Whether the model's clock runs: the windows of a view are made within others."""

    @classmethod
    def install(cls) -> None:
        """Have them run from now on."""
        score, make, push = Detector.score_windows, Windows.completed, WindowAssembler.push

        def modelling(work: Callable[..., Any]) -> Callable[..., Any]:
            def clocked(*given: Any, **more: Any) -> Any:
                if cls.is_running:
                    return work(*given, **more)
                started, cls.is_running = time.thread_time(), True
                try:
                    return work(*given, **more)
                finally:
                    cls.model += time.thread_time() - started
                    cls.is_running = False

            return clocked

        def pushing(self: WindowAssembler, *given: Any) -> Iterator[Any]:
            windows = push(self, *given)
            while True:
                started, model = time.thread_time(), cls.model
                found = next(windows, None)
                cls.keeping += time.thread_time() - started - (cls.model - model)
                if found is None:
                    return
                yield found

        # A clock around what is measured, in place of it.
        Detector.score_windows = modelling(score)  # type: ignore[method-assign]
        Windows.completed = modelling(make)  # type: ignore[method-assign]
        WindowAssembler.push = pushing  # type: ignore[method-assign, assignment]


async def worker(settings: BusSettings, frames: int) -> tuple[float, float, float]:
    """CPU seconds of a worker in all, of its model, and of keeping poses."""
    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=QUIET)])
    whole = FleetSettings(bus=settings, worker=WorkerSettings(shed_s=1e6, silent_s=1e6))
    async with connected(settings, "worker") as bus:
        one = Worker(bus, whole, models, f"w{time.monotonic_ns()}")
        stop = asyncio.Event()
        Clocks.model = Clocks.keeping = 0.0
        started = time.process_time()
        task = asyncio.create_task(one.run(stop))
        while one.scorer.counts.frames < frames:
            await asyncio.sleep(0.02)
            if task.done():
                task.result()
        taken = time.process_time() - started
        stop.set()
        await task
        return taken, Clocks.model, Clocks.keeping


def overhead(given: argparse.Namespace) -> None:
    """One table: a row for each kind of message."""
    Clocks.install()
    print(
        "| people | frames a message | bare, us | worker, us | model, us | poses kept, us | "
        "overhead without keeping poses | overhead |\n|--:|--:|--:|--:|--:|--:|--:|--:|",
        flush=True,
    )
    for people in (5, 50):
        for frames in (1, 10):
            rows = [one_overhead(people, frames, given.frames) for _ in range(given.rounds)]
            columns = [statistics.median(column) for column in zip(*rows, strict=True)]
            ratios = sorted(row[4] for row in rows)
            print(
                f"| {people} | {frames} | "
                + " | ".join(f"{1e6 * value:.1f}" for value in columns[:4])
                + f" | {columns[4]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) | {columns[5]:.2f} |",
                flush=True,
            )


def one_overhead(people: int, frames: int, total: int) -> tuple[float, ...]:
    """Seconds per frame: bare, worker, model, poses kept; both ratios."""

    async def measure() -> tuple[float, ...]:
        with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as one:
            settings = BusSettings(servers=[one.address], shards=SHARDS, poses_mb=900, poses_s=3600)
            async with connected(settings, "fill") as bus:
                await bus.setup()
                cameras = [Camera(i, people, frames) for i in range(40)]
                messages = -(-total // frames // 40) * 40
                await fill(bus, cameras, messages)
            n = messages * frames
            plain = await bare(settings, messages) / n
            ours, model, keeping = (value / n for value in await worker(settings, n))
            rest = ours - model
            return plain, ours, model, keeping, (rest - keeping) / plain, rest / plain

    return asyncio.run(measure())


def scaling(given: argparse.Namespace) -> None:
    """Frames a second out of a full stream, with one and with two workers."""
    print("| workers | frames a second | CPU of the broker, cores |\n|--:|--:|--:|", flush=True)
    rates = []
    for n in (1, 2):
        readings = [drained(n, given) for _ in range(given.rounds)]
        rate = statistics.median(reading[0] for reading in readings)
        rates.append(rate)
        cpu = statistics.median(reading[1] for reading in readings)
        print(f"| {n} | {rate:.0f} | {cpu:.2f} |", flush=True)
    print(f"\nTwice as many workers: {rates[1] / rates[0]:.2f} times as many frames.")


async def load(one: Broker, given: argparse.Namespace) -> None:
    """Frames of 160 cameras, all at once."""
    async with connected(BusSettings(servers=[one.address], shards=SHARDS), "fill") as bus:
        cameras = [Camera(i, given.people, given.message) for i in range(160)]
        await fill(bus, cameras, given.frames // given.message)


def drained(n: int, given: argparse.Namespace) -> tuple[float, float]:
    """Frames a second of some workers, and cores that the broker took."""
    patient: dict[str, object] = {"shed_s": 1e6, "silent_s": 1e6}
    kept = {"poses_mb": 900, "poses_s": 3600}
    with (
        tempfile.TemporaryDirectory() as name,
        broker(Path(name)) as one,
        fleet(one, n, patient, lease_s=20, **kept) as made,  # they sleep while it is filled
    ):
        for process in made:
            process.send(signal.SIGSTOP)  # begin together, with everything there
        asyncio.run(load(one, given))
        broker_s, started = cpu_of(one), time.monotonic()
        marks: list[tuple[float, float]] = []
        for process in made:
            process.send(signal.SIGCONT)
        # of two, neither is done by then
        while (now := total(made, "frames_scored_total")) < given.frames * 0.75:
            marks.append((time.monotonic(), now))
            if time.monotonic() - started > 120:
                raise SystemExit(f"only {now:.0f} of {given.frames} frames were scored")
            time.sleep(0.05)
        marks = [m for m in marks if m[1] > given.frames * 0.1]
        if len(marks) < 3:
            raise SystemExit("expected more frames, got too few to measure: raise --frames")
        rate = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
        return rate, (cpu_of(one) - broker_s) / (time.monotonic() - started)


def cpu_of(one: Broker) -> float:
    """CPU seconds of a broker so far."""
    assert one.process is not None
    return cpu_s(one.process.pid)


def simulate(given: argparse.Namespace) -> None:
    """A whole fleet for some minutes."""
    load = Load(given.cameras, given.people, given.message, given.minutes * 60)
    simulated_fleet.simulate(load, given.workers)


def latency(given: argparse.Namespace) -> None:
    """Events while the fleet runs at a share of its capacity; one camera in 20 makes some."""
    capacity = given.capacity or drained(1, given)[0]
    with tempfile.TemporaryDirectory() as name, broker(Path(name)) as one, fleet(one, 1) as made:
        cameras = round(given.share * capacity / RATE)
        playing = player(one, Load(cameras, given.people, given.message, given.seconds))
        playing.wait()
        time.sleep(1.0)
        left = total(made, "frames_left_out_total")
        print(
            f"capacity {capacity:.0f} frames a second, {given.share:.0%} of it: "
            f"{cameras} cameras; {left:.0f} frames left out"
        )
        delays = asyncio.run(delays_of(BusSettings(servers=[one.address], shards=SHARDS)))
        p50, p99 = np.quantile(delays, [0.5, 0.99]) if delays else (np.nan, np.nan)
        print(
            f"{len(delays)} changes of events, from the frame to the stored event: "
            f"p50 {1e3 * p50:.0f} ms, p99 {1e3 * p99:.0f} ms\n{sent_by(playing)}"
        )


async def delays_of(settings: BusSettings) -> list[float]:
    """From a frame's place in the stream of poses to its event's, by the broker's clock."""
    return [
        at - float(headers[FRAME_TIME])
        async for _, headers, at in events_of(settings)
        if FRAME_TIME in headers
    ]


def storm(given: argparse.Namespace) -> None:
    """One table: seconds until the broker has stored 1,000 changes that came at once."""
    print("| brokers | shards | seconds (median, least to most) |\n|--:|--:|--:|", flush=True)
    for brokers in (1, 3):
        for shards in (1, 64):
            with tempfile.TemporaryDirectory() as name:
                taken = sorted(stormed(Path(name), brokers, shards, given.rounds))
            told = f"{statistics.median(taken):.2f} ({taken[0]:.2f} to {taken[-1]:.2f})"
            print(f"| {brokers} | {shards} | {told} |", flush=True)


def stormed(directory: Path, brokers: int, shards: int, rounds: int) -> list[float]:
    """Seconds of each round; brokers sync what they store."""

    async def owned_by(bus: NatsBus, number: int) -> OwnedShard:
        place = number
        shard = Shard(place, bus.subjects, models, BatchScorer(), Pace())
        outlets = Outlets(
            subject=bus.subjects.events(place),
            dead=bus.subjects.dead("unreadable"),
            lost=lambda owned: None,
            announced=lambda message: None,
        )
        owned = await take(bus, "w1", shard, outlets, alive=lambda name: False)
        assert owned is not None
        owned.start(asyncio.Event())
        return owned

    async def run(settings: BusSettings) -> list[float]:
        async with connected(settings, "storm") as bus:
            await bus.setup()
            all_owned = [await owned_by(bus, number) for number in range(shards)]
            found = []
            for turn in range(rounds):
                events = [event(1000 * turn + i) for i in range(1000)]
                started = time.monotonic()
                for i, new in enumerate(events):
                    change = Announcement("north", "new", None, new, i, time.time())
                    all_owned[i % shards].tell([change], [])
                while any(owned.unsaid for owned in all_owned):
                    await asyncio.sleep(0.002)
                found.append(time.monotonic() - started)
            for owned in all_owned:
                await owned.stop()
            return found

    models = FleetModels.load([ModelSettings(model=Path(demo.MODEL), threshold=QUIET)])
    with ExitStack() as stack:
        made = (
            [stack.enter_context(broker(directory))]
            if brokers == 1
            else stack.enter_context(cluster(directory))
        )
        time.sleep(5.0 if brokers > 1 else 0.0)  # they elect a leader
        return asyncio.run(run(bus_settings(made, shards=shards)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in (overhead, scaling, latency, simulate, storm):
        made = verbs.add_parser(verb.__name__)
        made.set_defaults(run=verb)
        made.add_argument("--rounds", type=int, default=3)
        made.add_argument("--frames", type=int, default=8000)
        made.add_argument("--people", type=int, default=5)
        made.add_argument("--message", type=int, default=10, help="frames in a message")
        made.add_argument("--cameras", type=int, default=100)
        made.add_argument("--workers", type=int, default=1)
        made.add_argument("--minutes", type=float, default=1.0)
        made.add_argument("--seconds", type=float, default=30.0)
        made.add_argument("--share", type=float, default=0.8)
        made.add_argument("--capacity", type=float, default=0.0)
    given = parser.parse_args(arguments)
    given.run(given)
