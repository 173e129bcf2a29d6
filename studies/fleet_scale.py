"""The traffic of ten thousand sites against three brokers, a writer and PostgreSQL, as Markdown.

    python -m studies fleet-scale [--sites 10000] [--connections 1000] [--minutes 10]

Real sites of this number need thousands of cores: their messages are sent by one process, each
connection for ten sites. In turn:

    looks      every site looks (two direct gets) and publishes its status, once a minute
    storm      200 changes of events a second, beside the looks
    away       the changes of an hour of all sites, two alerts a camera and day, without a writer
    lost       one broker is killed for half a minute, beside looks and a tenth of the storm
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from stepvad.codec import encode
from stepvad.errors import StepvadError
from stepvad.events.record import Record
from stepvad.fleet import connection, database, registry, streams
from stepvad.fleet.connection import Connection
from stepvad.fleet.outbox import EventMessage
from stepvad.fleet.settings import StreamSettings
from stepvad.site.settings.sections import BrokerSettings
from studies.figures import cpu_s, markdown, resident_mb
from studies.simulated.site import begun
from tests.fleet.servers import Broker, PostgresServer, cluster, postgres_server

GROUPS = 100
STORM = 200
HOUR_OF_CAMERA = 2 / 24 * 3.5
"""Changes of a camera in an hour: two alerts a day, of three to four changes each."""
CAMERAS = 10


@dataclass(slots=True, eq=False)
class Centre:
    """Brokers, database and writer."""

    brokers: list[Broker]
    server: PostgresServer
    directory: Path
    writer: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> BrokerSettings:
        return BrokerSettings(servers=[one.address for one in self.brokers])

    def start_writer(self) -> None:
        path = self.directory / "fleet.toml"
        path.write_text(f"[broker]\nservers = {json.dumps(self.settings.servers)}\n")
        command = [sys.executable, "-m", "stepvad", "fleet", "serve", str(path), "--only", "writer"]
        env = os.environ | {"STEPVAD_EVENTS_DSN": self.server.dsn}
        self.writer = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)

    def stop_writer(self) -> None:
        if self.writer is not None:
            self.writer.send_signal(signal.SIGTERM)
            self.writer.wait(30)
            self.writer = None

    def pids(self) -> list[int]:
        return [one.process.pid for one in self.brokers if one.process is not None]

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.pids()))


@dataclass(slots=True)
class Tally:
    """What was done, how long each took, and what failed."""

    seconds: list[float] = field(default_factory=list)
    failed: int = 0

    async def time(self, work: Awaitable[object]) -> bool:
        began = time.monotonic()
        try:
            await work
        except StepvadError:
            self.failed += 1
            return False
        self.seconds.append(time.monotonic() - began)
        return True

    @property
    def words(self) -> str:
        if len(self.seconds) < 2:
            return "none"
        cuts = statistics.quantiles(self.seconds, n=100)
        return f"{1000 * cuts[49]:.0f} ms (p50), {1000 * cuts[98]:.0f} ms (p99)"


class Sites:
    """The sites, each of which uses one of the connections."""

    def __init__(self, n: int, lines: Sequence[Connection]) -> None:
        self.n, self.lines = n, lines
        self.looks, self.statuses = Tally(), Tally()
        self.versions, self.events = int(time.time() * 1000), 0

    def line(self, n: int) -> Connection:
        return self.lines[n % len(self.lines)]

    async def look(self, n: int) -> None:
        name, line = f"site-{n}", self.line(n)

        async def both() -> None:
            await line.last(streams.REGISTRY, streams.registry(f"group-{n % GROUPS}"))
            await line.last(streams.MARKS, streams.marks(name))

        await self.looks.time(both())
        told = registry.Status(
            site=name, group=f"group-{n % GROUPS}", version="0.1.0", at=time.time()
        )
        await self.statuses.time(line.publish(streams.status(name), encode(told)))

    async def look_for(self, seconds: float, every_s: float = 60.0) -> None:
        """Have all sites look once in `every_s`, spread evenly."""
        began, n, tasks = time.monotonic(), 0, set[asyncio.Task[None]]()
        while (now := time.monotonic() - began) < seconds:
            while n < now * self.n / every_s:
                task = asyncio.create_task(self.look(n % self.n))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                n += 1
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

    def change(self, record: Record, kind: str) -> tuple[str, bytes]:
        self.versions += 1
        site, known = record.camera, replace(record, version=self.versions, camera="yard")
        return site, encode(EventMessage(type=kind, site=site, event=known))  # type: ignore[arg-type]

    async def storm(self, seconds: float, a_second: float) -> Tally:
        """Changes of events at this rate; each event has three."""
        tally, first, began = Tally(), self.events, time.monotonic()
        tasks = set[asyncio.Task[None]]()

        async def event(n: int) -> None:
            line, site = self.line(n), f"site-{n % self.n}"
            record = replace(begun("yard", 1, n), camera=site)
            for kind in ("new", "update", "end"):
                one = record.ended("calm", time.time()) if kind == "end" else record
                of, data = self.change(one, kind)
                while not await tally.time(line.publish(streams.events(of), data)):
                    await asyncio.sleep(0.5)  # as the outbox does

        while (now := time.monotonic() - began) < seconds:
            while self.events - first < now * a_second / 3:
                task = asyncio.create_task(event(self.events))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                self.events += 1
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        return tally


async def waiting(line: Connection) -> int:
    return (await line.js.stream_info(streams.EVENTS)).state.messages


async def stored(dsn: str) -> tuple[int, int]:
    """Events in the database, and those that have ended."""
    import asyncpg

    db = await asyncpg.connect(dsn)
    try:
        row = await db.fetchrow("SELECT count(*), count(end_time) FROM stepvad.events")
    finally:
        await db.close()
    return row[0], row[1]


async def drained(line: Connection, within_s: float = 900.0) -> float:
    """Seconds until no message waits."""
    began = time.monotonic()
    while time.monotonic() < began + within_s:
        with contextlib.suppress(Exception):
            if await waiting(line) == 0:
                break
        await asyncio.sleep(0.2)
    return time.monotonic() - began


@asynccontextmanager
async def connections(settings: BrokerSettings, n: int) -> AsyncIterator[list[Connection]]:
    lines: list[Connection] = []
    for first in range(0, n, 50):
        some = (connection.connect(settings, f"c{first + k}") for k in range(min(50, n - first)))
        lines += await asyncio.gather(*some)
    try:
        yield lines
    finally:
        await asyncio.gather(*(line.close() for line in lines))


class Measured:
    """One part of the traffic after the other, with what it found."""

    def __init__(self, centre: Centre, admin: Connection, given: argparse.Namespace) -> None:
        self.centre, self.admin, self.given = centre, admin, given
        self.rows: list[tuple[str, str]] = []

    def say(self, what: str, found: str) -> None:
        self.rows.append((what, found))
        print(f"{what}: {found}", file=sys.stderr, flush=True)

    async def say_stored(self, part: str, sites: Sites) -> None:
        self.say(f"{part}: the last one stored after", f"{await drained(self.admin):.1f} s")
        events, ended = await stored(self.centre.server.dsn)
        found = f"{sites.events:,}, {events:,}, {ended:,}"
        self.say(f"{part}: events made so far, stored, ended", found)

    async def looks(self, sites: Sites) -> None:
        before, minutes = self.centre.cpu_s(), self.given.look_minutes
        await sites.look_for(60.0 * minutes)
        n = len(sites.looks.seconds)
        self.say("looks a minute", f"{n / minutes:,.0f}, {sites.looks.failed} failed")
        self.say("a look", sites.looks.words)
        self.say("a status", sites.statuses.words)
        used = 1e6 * (self.centre.cpu_s() - before) / n
        self.say("all brokers for a look and its status", f"{used:.0f} us")

    async def storm(self, sites: Sites) -> None:
        self.centre.start_writer()
        at, seconds = time.monotonic(), 60.0 * self.given.minutes
        looking = asyncio.create_task(sites.look_for(seconds))
        tally = await sites.storm(seconds, STORM)
        took = time.monotonic() - at
        await looking
        self.say("storm: changes a second", f"{len(tally.seconds) / took:.0f} for {took:.0f} s")
        self.say("storm: until the brokers have a change", tally.words)
        await self.say_stored("storm", sites)

    async def without_writer(self, sites: Sites) -> None:
        self.centre.stop_writer()
        rate, hour = self.given.publish_rate, self.given.sites * CAMERAS * HOUR_OF_CAMERA
        at = time.monotonic()
        await sites.storm(hour / rate, rate)
        left = await waiting(self.admin)
        self.say("away: changes that wait", f"{left:,}, sent in {time.monotonic() - at:.0f} s")
        self.centre.start_writer()
        await self.say_stored("away", sites)

    async def without_broker(self, sites: Sites) -> None:
        sites.looks = lost = Tally()
        looking = asyncio.create_task(sites.look_for(60.0))
        storming = asyncio.create_task(sites.storm(60.0, STORM / 10))
        await asyncio.sleep(15)
        victim = self.centre.brokers[random.randrange(3)]
        victim.kill()
        await asyncio.sleep(30)
        victim.start()
        tally = await storming
        await looking
        n = len(lost.seconds) + lost.failed
        self.say("lost: looks that failed", f"{lost.failed:,} of {n:,}")
        told = f"{tally.words}, {tally.failed} sent again"
        self.say("lost: until the brokers have a change", told)
        await self.say_stored("lost", sites)


async def set_up(admin: Connection) -> None:
    for _ in range(100):  # brokers elect a leader first
        with contextlib.suppress(connection.UnavailableError):
            await streams.set_up(admin, StreamSettings(replicas=3, files_mb=50, poses_mb=50))
            break
        await asyncio.sleep(0.3)
    for n in range(GROUPS):
        await admin.publish(streams.registry(f"group-{n}"), encode(registry.Rollout()))


async def measured(centre: Centre, given: argparse.Namespace) -> list[tuple[str, str]]:
    await database.set_up(centre.server.dsn, 90.0)
    async with connection.connected(centre.settings, "admin") as admin:
        await set_up(admin)
        found = Measured(centre, admin, given)
        empty, began = sum(map(resident_mb, centre.pids())), time.monotonic()
        async with connections(centre.settings, given.connections) as lines:
            took, mb = time.monotonic() - began, sum(map(resident_mb, centre.pids())) - empty
            found.say("connections", f"{len(lines):,}, made in {took:.1f} s")
            found.say("memory of the brokers for one", f"{1000 * mb / len(lines):.0f} kB")
            sites = Sites(given.sites, lines)
            for part in (found.looks, found.storm, found.without_writer, found.without_broker):
                await part(sites)
    return found.rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the storm")
    parser.add_argument("--look-minutes", type=float, default=2.0)
    parser.add_argument("--publish-rate", type=float, default=500.0, help="changes a second, away")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = stack.enter_context(cluster(directory))
        server = stack.enter_context(postgres_server("fsync=on"))
        centre = Centre(brokers, server, directory)
        stack.callback(centre.stop_writer)
        rows = asyncio.run(measured(centre, given))
    print(markdown(["what", "found"], rows, (0, 1)))


if __name__ == "__main__":
    main()
