"""A whole fleet for some minutes: what it lost, how late it was, whether work piled up."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepvad.events.record import Record
from stepvad.fleet.broker.administration import set_up
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import BusSettings, FleetSettings
from stepvad.fleet.wire import decode, decode_event
from stepvad.fleet.worker.owned_shard import FRAME_TIME
from studies.figures import markdown
from studies.simulated.cameras import RATE, SHARDS, Camera, Sent
from tests.fleet.fleets import Script, WorkerProcess
from tests.fleet.results import Quiet, quiet
from tests.fleet.servers import Broker, broker

EVENTFUL = 10.0
"""A threshold that nobody passes who walks; one camera in 20 does at times."""
SAMPLES, ROWS = 60, 12
"""How often the fleet is looked at, and how many of these are rows of the table."""
MEMORY_MB = 800.0
"""Of poses at the broker."""
SETTLE_S = 30.0
"""Longest wait for the last frames and events when cameras have stopped."""


class Load(NamedTuple):
    """What the cameras of a run send."""

    cameras: int
    people: int
    message: int
    """Frames in a message."""
    seconds: float


class Sample(NamedTuple):
    """A look at the fleet."""

    at: float
    scored: float
    waiting: float
    """Messages at the broker and in workers."""
    shed: float
    memory: str


@contextmanager
def fleet(
    one: Broker, n: int, worker: dict[str, object] | None = None, **bus: Any
) -> Iterator[list[WorkerProcess]]:
    """Workers of whom each has its share of the shards."""
    with tempfile.TemporaryDirectory() as directory:
        made = [
            WorkerProcess(
                Path(directory),
                [one],
                f"w{i}",
                records=False,
                threshold=EVENTFUL,
                worker=worker,
                shards=SHARDS,
                **bus,
            )
            for i in range(n)
        ]
        try:
            for process in made:
                process.start()
            for process in made:
                process.wait_for(f": {SHARDS // n} shards")
            yield made
        finally:
            for process in made:
                process.kill()


def total(made: Iterable[WorkerProcess], name: str, label: str = "") -> float:
    """A metric of all workers."""
    return sum(process.metric(f"stepvad_fleet_{name}", label) for process in made)


def player(one: Broker, load: Load) -> subprocess.Popen[str]:
    """The cameras, in a process of their own."""
    words = ["--server", one.address, "--people", str(load.people), "--message", str(load.message)]
    words += ["--seconds", str(load.seconds), "--cameras", str(load.cameras)]
    return subprocess.Popen(
        [sys.executable, "-m", "studies.simulated.cameras", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )


def sent_by(cameras: subprocess.Popen[str]) -> Sent:
    """What the cameras say at their end."""
    told, _ = cameras.communicate(timeout=SETTLE_S)
    return Sent(**json.loads(told))


def simulate(load: Load, workers: int) -> None:
    """Run a fleet and print what became of it, as Markdown."""
    with tempfile.TemporaryDirectory() as name, broker(Path(name)) as one:
        bus = BusSettings(servers=[one.address], shards=SHARDS, poses_mb=MEMORY_MB)
        asyncio.run(set_up(FleetSettings(bus=bus)))
        with fleet(one, workers, poses_mb=MEMORY_MB) as made:
            say(
                f"{load.cameras} cameras x {RATE:g} frames a second x {load.people} people, "
                f"{load.message} frames a message, {workers} worker(s)\n"
            )
            samples, sent = asyncio.run(_run(one, made, bus, load))
            changes, delays = asyncio.run(_settled(bus, made))
            facts = _facts(made, sent, changes, load)
    p50, p99 = np.quantile(delays, [0.5, 0.99]) if delays else (np.nan, np.nan)
    rows = [[name, f"{value:.15g}"] for name, value in (facts | _piled_up(samples)).items()]
    rows += [["from a frame to its stored event, p50, ms", f"{1e3 * p50:.0f}"]]
    rows += [["from a frame to its stored event, p99, ms", f"{1e3 * p99:.0f}"]]
    say("\n" + markdown(["what", "how many"], rows, words=[0]))


async def _run(
    one: Broker, made: Sequence[WorkerProcess], bus: BusSettings, load: Load
) -> tuple[list[Sample], Sent]:
    cameras = player(one, load)
    samples = await _watched(cameras, made, bus, load.seconds)
    return samples, sent_by(cameras)


async def _watched(
    cameras: subprocess.Popen[str], made: Sequence[WorkerProcess], bus: BusSettings, seconds: float
) -> list[Sample]:
    """Look at the fleet while cameras send; some of that is printed as a table."""
    header = ["minute", "frames/s scored", "messages that wait", "frames shed", "memory, MB"]
    say(markdown(header, []))
    found = [Sample(time.monotonic(), 0.0, 0.0, 0.0, "")]
    started = shown = found[0]
    async with connected(bus, "lag") as lag:
        while cameras.poll() is None:
            await asyncio.sleep(max(seconds / SAMPLES, 1.0))
            now = Sample(
                time.monotonic(),
                total(made, "frames_scored_total"),
                sum((await lag.lags()).values()) + total(made, "waiting"),
                total(made, "frames_left_out_total", 'reason="shed"'),
                " + ".join(f"{process.memory_mb():.0f}" for process in made),
            )
            found.append(now)
            if now.at - shown.at >= seconds / ROWS:
                rate = (now.scored - shown.scored) / (now.at - shown.at)
                minute = (now.at - started.at) / 60
                told = [f"{minute:.1f}", *(f"{v:.0f}" for v in (rate, now.waiting, now.shed))]
                say(f"| {' | '.join(told)} | {now.memory} |")
                shown = now
    return found[1:]


def _piled_up(samples: Sequence[Sample]) -> dict[str, float]:
    """What waited in the first and in the last third of the run: more and more, or not."""
    third = max(len(samples) // 3, 1)
    parts = {"first": samples[:third], "last": samples[-third:]}
    return {
        f"messages that waited in the {name} third, {word}": round(of([s.waiting for s in some]), 1)
        for name, some in parts.items()
        for word, of in (("mean", statistics.fmean), ("most", max))
    }


def _facts(
    made: Sequence[WorkerProcess],
    sent: Sent,
    changes: Counter[tuple[object, ...]],
    load: Load,
) -> dict[str, float]:
    """What was sent, scored and said, beside a run that nothing happened to."""
    cameras = [Camera(i, load.people, load.message) for i in range(load.cameras)]
    eventful = [one for one in cameras if one.is_eventful]
    expected = _expected(eventful[0], sent.messages)
    wanted = Counter(
        (one.site, f"{one.site}/{one.camera}", *_known(kind, record))
        for one in eventful
        for kind, record in expected.changes
    )
    windows = load.cameras * len(expected.windows)
    scored = total(made, "windows_total")
    return {
        "frames sent": sent.frames,
        "cameras were behind their pace at the end, s": round(sent.late_s, 2),
        "frames scored": total(made, "frames_scored_total"),
        "frames shed": total(made, "frames_left_out_total", 'reason="shed"'),
        "frames missed": total(made, "frames_left_out_total", 'reason="missed"'),
        "leases that expired": sum(one.log.read_text().count("lease expired") for one in made),
        "windows expected": windows,
        "windows missing": windows - scored,
        "changes of events expected": wanted.total(),
        "changes of events missing or different": (wanted - changes).total(),
        "changes of events that nobody expected": (changes - wanted).total(),
    }


def _expected(one: Camera, messages: int) -> Quiet:
    """What one camera of its kind makes a stream and a watcher in this process say."""
    batches = [decode(one.at(first * one.frames)) for first in range(messages)]
    script = Script(one.site, one.camera, tuple((0.0, batch) for batch in batches))
    return quiet([script], threshold=EVENTFUL)


def _known(kind: str, record: Record) -> tuple[object, ...]:
    """What must be the same of every eventful camera."""
    return kind, record.start_time, record.end_time, record.tracks, record.frame_seq, record.seen


async def _settled(
    bus: BusSettings, made: Sequence[WorkerProcess]
) -> tuple[Counter[tuple[object, ...]], list[float]]:
    """Changes of events once the workers are done, and how late after their frames."""
    deadline, before = time.monotonic() + SETTLE_S, -1.0
    while (now := total(made, "messages_total") + total(made, "events_total")) != before:
        if time.monotonic() > deadline:
            break
        before = now
        await asyncio.sleep(2.0)
    changes: Counter[tuple[object, ...]] = Counter()
    delays: list[float] = []
    async for data, headers, at in events_of(bus):
        told = decode_event(data)
        if told is not None:
            changes[told.site, told.after.camera, *_known(told.kind, told.after)] += 1
        if frame := headers.get(FRAME_TIME):
            delays.append(at - float(frame))
    return changes, delays


async def events_of(bus: BusSettings) -> Any:
    """Data, headers and time of everything on the stream of events."""
    async with connected(bus, "listener") as one:
        facts = await one.client.jetstream().stream_info("EVENTS")
        consumer, seen = await one.events("listener"), 0
        while seen < facts.state.messages and (some := await consumer.fetch(500, 1.0)):
            seen += len(some)
            for delivery in some:
                headers: Mapping[str, str] = delivery.headers or {}
                yield delivery.data, headers, delivery.time
            await consumer.ack(some)


def say(words: str) -> None:
    """Print at once."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
