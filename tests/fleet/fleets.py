"""Fleets for tests: cameras that play clips onto a bus, roles in processes, what came out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgpack
import numpy as np

from stepvad.events.record import Record
from stepvad.fleet import wire
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.bus_thread import BusThread
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.edge.batcher import EncodedBatch
from stepvad.fleet.edge.buffer import Buffer
from stepvad.fleet.edge.publisher import Publisher
from stepvad.fleet.events.postgres import Wanted, connect
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.wire import Batch, EventMessage, encode
from stepvad.poses import Clip
from stepvad.site import demo
from tests.fleet.servers import Broker, bus_settings
from tests.video.servers import SLOWER, free_port

ROOT = Path(__file__).parents[2]
RATE = 25.0
SIZE = (1280, 720)
WALL0 = 1_700_000_000.0
THRESHOLD = 3.0


@dataclass(frozen=True, slots=True)
class Script:
    """What a camera sends: one message after the other, each at its time."""

    site: str
    camera: str
    messages: tuple[tuple[float, Batch], ...]
    """Seconds from the start, and what is sent then."""


def script(
    name: str,
    clip: Clip,
    *,
    frames: int = 1,
    epoch: int = 1,
    rate: float = RATE,
    speed: float = 1.0,
    wall0: float = WALL0,
    ends: bool = True,
) -> Script:
    """A clip as a camera of `site/camera` sends it, some frames in each message."""
    site, _, camera = name.partition("/")
    connection = wire.CameraConnection(
        site=site,
        camera=camera,
        epoch=epoch,
        wall0=wall0,
        rate=rate,
        size=SIZE,
        skeleton=clip.skeleton,
    )
    seen = [*clip.by_frame()]
    messages = []
    for first in range(0, len(seen), frames):
        some = seen[first : first + frames]
        messages.append((some[-1][0] / rate / speed, wire.batch_of(some, connection, first)))
    if ends:
        over = wire.batch_of([], connection, len(seen), "the clip is over")
        messages.append((len(seen) / rate / speed, over))
    return Script(site, camera, tuple(messages))


def renumbered(clip: Clip, first: int) -> Clip:
    """People with numbers that no other clip has: no window of one may pass for another's."""
    return replace(clip, tracks=tuple(replace(one, id=first + one.id) for one in clip.tracks))


@dataclass(slots=True)
class Player:
    """Sends scripts as edges do: keeps the latest and sends them again after an outage."""

    bus: NatsBus
    again_s: float = 3.0
    ids: bool = False
    """Whether the broker knows a message that it has; edges do that."""
    sent: int = 0
    sent_at: dict[tuple[str, int, int], float] = field(default_factory=dict)

    async def play(self, scripts: Sequence[Script]) -> None:
        started = time.monotonic()
        await asyncio.gather(*(self._play(one, started) for one in scripts))

    async def _play(self, one: Script, started: float) -> None:
        subject = self.bus.subjects.poses(one.site, one.camera)
        connections = self.bus.connections
        recent: list[tuple[float, str, bytes]] = []
        for at, batch in one.messages:
            await asyncio.sleep(max(started + at - time.monotonic(), 0))
            data = wire.encode(batch)
            of = batch.connection
            id_ = f"{of.name}:{of.epoch}:{batch.seq}{'' if batch.lost is None else ':lost'}"
            recent = [one for one in recent if one[0] > time.monotonic() - self.again_s]
            recent.append((time.monotonic(), id_, data))
            for slot in batch.slots:
                self.sent_at.setdefault((of.name, of.epoch, slot), time.time())
            waiting = recent[-1:]
            while waiting:
                if self.bus.connections != connections:
                    connections, waiting = self.bus.connections, [*recent]
                try:
                    _, id_, data = waiting[0]
                    await self.bus.publish(subject, data, id=id_ if self.ids else None)
                    waiting.pop(0)
                    self.sent += 1
                except UnavailableError:
                    waiting = [*recent]
                    await asyncio.sleep(0.05)


@dataclass(slots=True)
class Heard:
    """What is on the stream of events, each with the time when the broker took it."""

    told: list[EventMessage] = field(default_factory=list)
    at: list[float] = field(default_factory=list)
    claims: int = 0

    def ended(self) -> dict[str, EventMessage]:
        return {told.after.id: told for told in self.told if told.kind == "end"}

    def ids(self, kind: str) -> list[str]:
        return [told.after.id for told in self.told if told.kind == kind]

    def facts(self) -> list[tuple[object, ...]]:
        """What must be the same in every run, whatever dies."""
        return sorted(
            (
                told.after.id,
                told.kind,
                told.after.start_time,
                told.after.end_time,
                told.after.tracks,
                told.after.track_id,
                told.after.frame_seq,
                told.after.seen,
            )
            for told in self.told
        )

    def scores(self) -> list[float]:
        rows = sorted((t.after.id, t.kind, t.after.frame_seq, t.after.top_score) for t in self.told)
        return [row[-1] for row in rows]


async def listen(bus: NatsBus, name: str = "listener") -> Heard:
    """All events there are."""
    heard = Heard()
    consumer = await bus.events(name)
    while found := await consumer.fetch(500, 0.3):
        for delivery in found:
            told = wire.decode_event(delivery.data)
            if told is None:
                heard.claims += 1
            else:
                heard.told.append(told)
                heard.at.append(delivery.time)
        await consumer.ack(found)
    await consumer.close()
    return heard


async def settled(
    settings: BusSettings, expected: int, limit_s: float = 15 * SLOWER, name: str = "listener"
) -> Heard:
    """The events, once so many ended, every one that began is over, and nothing more comes."""
    deadline = time.monotonic() + limit_s
    heard = Heard()
    quiet = 0
    async with connected(settings, "listener") as bus:
        while time.monotonic() < deadline:
            before = len(heard.told)
            with suppress(UnavailableError):
                more = await listen(bus, name)
                heard.told += more.told
                heard.at += more.at
                heard.claims += more.claims
            is_over = set(heard.ids("new")) <= set(heard.ids("end"))
            is_over &= len(heard.ids("end")) >= expected
            quiet = quiet + 1 if is_over and len(heard.told) == before else 0
            if quiet >= 2:
                break
            await asyncio.sleep(0.3)
    return heard


class WorkerProcess:
    """`stepvad fleet worker` in a process of its own, which records its windows."""

    def __init__(
        self,
        directory: Path,
        brokers: Sequence[Broker],
        name: str,
        *,
        slow_ms: float = 0.0,
        threshold: float = THRESHOLD,
        records: bool = True,
        worker: dict[str, object] | None = None,
        inside: Sequence[str] = (),
        **bus: object,
    ) -> None:
        """`inside`: words before the command, which run it on another host."""
        self._inside = inside
        self.log, self.windows = directory / f"{name}.log", directory / f"{name}.windows"
        self.times = directory / f"{name}.windows.times"
        self._slow_ms, self._records = slow_ms, records
        self._settings = directory / f"{name}.toml"
        self._port = free_port()
        facts = {
            "servers": [one.address for one in brokers],
            "shards": 4,
            "replicas": 3 if len(brokers) == 3 else 1,
            **bus,
        }
        own = {
            "name": name,
            "checkpoint_s": 0.5,
            "silent_s": 6,
            "metrics": f"127.0.0.1:{self._port}",
            **(worker or {}),
        }
        self._settings.write_text(
            f"[bus]\n{_toml(facts)}\n[worker]\n{_toml(own)}\n"
            f'[[models]]\nmodel = "{demo.MODEL}"\nthreshold = {threshold}\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it works."""
        self.launch()
        try:
            self.wait_for("started")
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        words = ["stepvad", "fleet", "worker", str(self._settings)]
        if self._records:
            words = ["tests.fleet.altered", "recording", str(self._settings), str(self.windows)]
            words.append(str(self._slow_ms))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._inside, sys.executable, "-m", *words],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    @property
    def address(self) -> str:
        """Where its metrics are."""
        return f"127.0.0.1:{self._port}"

    def metric(self, name: str, label: str = "") -> float:
        """The sum of a metric over its labels, or over those lines that have one."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return sum(
            float(line.split()[-1])
            for line in lines
            if line.split("{")[0].split()[0] == name and label in line
        )

    def memory_mb(self) -> float:
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return float(status.partition("VmRSS:")[2].split()[0]) / 1024

    def wait_for(self, words: str, limit_s: float = 20 * SLOWER) -> None:
        """Until its log says so."""
        deadline = time.monotonic() + limit_s
        while words not in self.log.read_text():
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> int:
        """SIGTERM, and how it ended."""
        process = self.process
        assert process is not None
        process.terminate()
        code = process.wait(20 * SLOWER)
        if self.process is process:  # nobody killed and started it meanwhile
            self.process = None
        return code


def _toml(facts: dict[str, object]) -> str:
    return "\n".join(f"{name} = {json.dumps(value)}" for name, value in facts.items())


SPEED = 2.0
"""Clips are played so many times as fast as they were."""


def whole(windows: set[str]) -> set[str]:
    """Without a line that a kill cut off."""
    return {line for line in windows if len(line.rpartition(" ")[2]) == 40}


def several(scenes: list[Clip], n: int = 6, frames: int = 1) -> list[Script]:
    return [
        script(f"site{i % 2}/cam{i}", scenes[i % len(scenes)], frames=frames, speed=SPEED)
        for i in range(n)
    ]


def poison(sent: Batch) -> list[bytes]:
    good = wire.encode(sent)
    facts = msgpack.unpackb(good)
    nan = facts | {"keypoints": np.full(len(facts["keypoints"]) // 4, np.nan, "<f4").tobytes()}
    return [
        good[: len(good) // 2],
        msgpack.packb(nan),
        msgpack.packb(facts | {"skeleton": "step18"}),
        msgpack.packb(facts | {"v": [2, 0]}),
        bytes(10_000_000),
    ]


async def dead(settings: BusSettings) -> list[str]:
    """The sizes of the messages that were buried."""
    async with connected(settings, "asks") as bus:
        stream = bus.client.jetstream()
        facts = await stream.stream_info("DEAD")
        found = [
            await stream.get_msg("DEAD", seq)
            for seq in range(facts.state.first_seq, facts.state.last_seq + 1)
        ]
        return [(one.headers or {})["Stepvad-Size"] for one in found]


FleetCommand = Callable[..., tuple[int, str]]
"""Runs a command that ends by itself: words and environment in, exit code and output out."""


class Role:
    """`stepvad fleet VERB SETTINGS`."""

    def __init__(
        self,
        verb: str,
        settings: Path,
        *more: str,
        inside: Sequence[str] = (),
        program: Sequence[str] = ("stepvad", "fleet"),
        python: Path | str = sys.executable,
        **environment: str,
    ) -> None:
        """`inside`: words before the command, which run it on another host."""
        command = [str(python), "-m", *program, verb, str(settings), *more]
        self._command = [*inside, *command]
        self._environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
        self.log = settings.parent / f"{verb}-{settings.stem}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment
            )

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def stop(self) -> int:
        """End it as systemd does; its exit code."""
        process = self.process
        assert process is not None
        process.terminate()
        code = process.wait(30)
        if self.process is process:  # nobody killed and started it meanwhile
            self.process = None
        return code

    def __enter__(self) -> Role:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


def bus_section(broker: Broker, section: str = "bus", more: str = "") -> str:
    """How a role finds its broker."""
    return f'[{section}]\nservers = ["{broker.address}"]\nshards = 4\n{more}\n'


class Sender:
    """All cameras of one site, sent as an edge sends them."""

    def __init__(
        self,
        settings: BusSettings,
        scripts: Sequence[Script],
        *,
        again_s: float = 8.0,
    ) -> None:
        (self.site,) = {one.site for one in scripts}
        self._scripts = scripts
        cameras = [one.camera for one in scripts]
        self.buffer = Buffer(cameras, 64_000_000, again_s=again_s)
        self._thread = BusThread(settings, f"edge-{self.site}")
        self.publisher = Publisher(self._thread, self.buffer, cameras, settings.subjects)
        self._running = threading.Thread(target=self.publisher.run, daemon=True)

    def start(self) -> None:
        self._running.start()

    async def play(self) -> None:
        """Send every message at its time, then wait until the broker has them all."""
        started = time.monotonic()
        await asyncio.gather(*(self._play(one, started) for one in self._scripts))
        await asyncio.to_thread(self.publisher.drain, 30.0)

    async def _play(self, one: Script, started: float) -> None:
        for at, batch in one.messages:
            await asyncio.sleep(max(started + at - time.monotonic(), 0))
            self.buffer.put(encoded(batch))

    def stop(self) -> None:
        self.publisher.stop(time.monotonic() + 5)
        self._running.join(5)
        self._thread.close()


def encoded(batch: Batch) -> EncodedBatch:
    of = batch.connection
    end = "" if batch.lost is None else ":lost"
    return EncodedBatch(
        camera=of.camera,
        id=f"{of.name}:{of.epoch}:{batch.seq}{end}",
        data=encode(batch),
        frames=len(batch),
        connection=of,
    )


@contextmanager
def senders(
    settings: BusSettings,
    scripts: Sequence[Script],
) -> Iterator[list[Sender]]:
    """One edge for each site of the scripts."""
    sites = sorted({one.site for one in scripts})
    made = [Sender(settings, [one for one in scripts if one.site == site]) for site in sites]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.stop()


def stored_records(dsn: str) -> list[Record]:
    async def go() -> list[Record]:
        async with connect(dsn) as events:
            return await events.events(Wanted(), limit=None)

    return asyncio.run(go())


def prepare_servers(dsn: str, server: Broker) -> None:
    """The tables of events and the streams, as `stepvad fleet setup` makes them."""

    async def go() -> None:
        async with connect(dsn) as events, connected(bus_settings([server]), "test") as bus:
            await events.migrate()
            await bus.setup()

    asyncio.run(go())
