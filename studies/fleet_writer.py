"""How many changes a second the writer of a fleet takes from JetStream to PostgreSQL.

The stream is filled first; then the writer runs until it is empty. Every write reaches the disk:
brokers with sync_interval always, PostgreSQL with fsync.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from stepvad.codec import encode
from stepvad.events.record import Record, event_id
from stepvad.fleet import database, streams
from stepvad.fleet.connection import Connection, connected
from stepvad.fleet.outbox import EventMessage
from stepvad.fleet.settings import EventsSettings, FleetSettings, StreamSettings
from stepvad.fleet.writer import EventWriter
from tests.fleet.servers import (
    Broker,
    PostgresServer,
    broker,
    broker_settings,
    cluster,
    postgres_server,
)

SITES = 100
AT_ONCE = 500
TICKS = os.sysconf("SC_CLK_TCK")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m studies fleet-writer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--changes", type=int, default=5_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        if options.brokers == 1:
            brokers = [stack.enter_context(broker(directory))]
        else:
            brokers = stack.enter_context(cluster(directory))
        postgres = stack.enter_context(postgres_server("fsync=on", "full_page_writes=on"))
        os.environ["STEPVAD_EVENTS_DSN"] = postgres.dsn
        rows = asyncio.run(measured(brokers, postgres, options.changes, options.repeats))
    names = ("changes/s", "broker, us", "writer, us", "PostgreSQL, us")
    middle = [statistics.median(column) for column in zip(*rows, strict=True)]
    for name, value, column in zip(names, middle, zip(*rows, strict=True), strict=True):
        print(f"{name:16}{value:8.0f}   from {min(column):.0f} to {max(column):.0f}")


async def measured(
    brokers: Sequence[Broker], postgres: PostgresServer, n: int, repeats: int
) -> list[tuple[float, ...]]:
    settings = FleetSettings(
        broker=broker_settings(brokers),
        streams=StreamSettings(replicas=len(brokers), events_per_site=1_000_000),
        events=EventsSettings(),
    )
    await database.set_up(postgres.dsn, settings.events.retention_days)
    async with connected(settings.broker, "admin") as admin:
        while True:  # a cluster takes a while to elect a leader
            try:
                await streams.set_up(admin, settings.streams)
                break
            except Exception:
                await asyncio.sleep(0.5)
        return [await once(admin, settings, brokers, postgres, n, k) for k in range(repeats)]


async def once(
    admin: Connection,
    settings: FleetSettings,
    brokers: Sequence[Broker],
    postgres: PostgresServer,
    n: int,
    turn: int,
) -> tuple[float, ...]:
    """Changes a second, and microseconds of a core a change: brokers, writer, PostgreSQL."""
    for first in range(0, n, AT_ONCE):
        await asyncio.gather(
            *(
                admin.js.publish(streams.events(f"site-{k % SITES}"), change(k, turn), timeout=20)
                for k in range(first, min(first + AT_ONCE, n))
            )
        )
    writer = EventWriter(settings)
    servers = [one.process.pid for one in brokers if one.process is not None]
    assert postgres.process is not None
    children = Path(f"/proc/{postgres.process.pid}/task/{postgres.process.pid}/children")
    # the backend of the writer is a new child, which the server counts once it has ended
    before = [cpu_s(servers), time.process_time(), cpu_s([postgres.process.pid, *pids(children)])]
    started = time.perf_counter()
    task = asyncio.create_task(writer.run())
    while (await admin.js.stream_info(streams.EVENTS)).state.messages:
        await asyncio.sleep(0.05)
    took_s = time.perf_counter() - started
    after = [cpu_s(servers), time.process_time(), cpu_s([postgres.process.pid, *pids(children)])]
    writer.stage.stopping.set()
    await task
    return (n / took_s, *(1e6 * (b - a) / n for a, b in zip(before, after, strict=True)))


def change(k: int, turn: int) -> bytes:
    """One of three changes of an event: it begins, goes on, and ends."""
    number, step = divmod(k // SITES, 3)
    start = time.time() - 60.0
    record = Record(
        id=event_id("yard", turn, 7, number),
        camera="yard",
        score=4.0,
        top_score=5.0,
        start_time=start,
        box=(1.0, 2.0, 30.0, 40.0),
        zones=("gate",),
        model_id="model",
        model_sha256="0" * 64,
        track_id=7,
        tracks=(7,),
        epoch=turn,
        frame_seq=number,
        confidence=0.9,
        threshold=3.0,
        scales=(1.0, 2.5),
        why="falls, and lies on the floor for a while",
        version=k + 1,
    )
    kind = ("new", "update", "end")[step]
    event = record.ended("calm", start + 9) if kind == "end" else record
    return encode(EventMessage(type=kind, site=f"site-{k % SITES}", event=event))  # type: ignore[arg-type]


def pids(children: Path) -> list[int]:
    return [int(one) for one in children.read_text().split()]


def cpu_s(processes: Sequence[int]) -> float:
    """Seconds of a core that processes have used, those that they waited for included."""
    total = 0.0
    for pid in processes:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # a child that has ended since
            continue
        total += sum(map(int, fields[11:15])) / TICKS
    return total
