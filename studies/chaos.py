"""Kill and pause what a fleet runs on, at random, and compare its events with a quiet run.

    python -m studies chaos [--minutes 20] [--seed 1] [--workers 3] [--rolls] [--shed 60]

Three brokers, some workers, two writers of events and PostgreSQL. Every few seconds a worker or a
broker is killed with -9, or a worker stopped for some seconds; at most one broker is down at a
time, and it counts as down until its /healthz says that it has caught up. Beside that, and at times
together with it, a writer is killed or stopped, or PostgreSQL crashes: every process of it is
killed with -9. Then everything runs, and what is on the stream of events, what workers scored and
what is in the database are compared with the same clips through a stream and a watcher in this
process: events lost, said twice, not ended, different; windows; rows. The exit code tells whether
all is the same. Workers shed no frames for being old unless --shed says so: a machine that is busy
with something else would make them, rightly, and windows would be missing.

With --rolls edges send through their own publisher, and everything is restarted in turn, as an
upgrade does, beside the other faults.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import BusSettings
from studies.simulated.comparison import table, windows_of, wrong_events, wrong_rows, wrong_windows
from studies.simulated.long_scripts import AGAIN_S, long_scripts
from tests.fleet.fleets import Player, Role, WorkerProcess, senders, settled
from tests.fleet.results import nothing_waits, quiet, stored
from tests.fleet.servers import Broker, PostgresServer, bus_settings, cluster, postgres_server

SETTLE_S = 120
WRITERS = 2
HEALTHY_S = 60
"""A broker that restarted has this long to catch up before the next fault."""
END_S = 10
"""No fault begins in the last seconds."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that may die."""

    brokers: Sequence[Broker]
    workers: list[WorkerProcess]
    writers: Sequence[Role]
    database: PostgresServer

    def end(self) -> None:
        """Stop what is no context of its own."""
        for worker in self.workers:
            worker.kill()
        for writer in self.writers:
            writer.kill()


async def killed(one: WorkerProcess | Role, rng: random.Random) -> None:
    """Kill -9, and soon it is there again."""
    one.kill()
    await asyncio.sleep(rng.uniform(0, 2))
    one.launch() if isinstance(one, WorkerProcess) else one.start()


async def paused(one: WorkerProcess | Role, rng: random.Random, longest_s: float) -> None:
    """As a process that hangs, for longer than its lease or its time to acknowledge at times."""
    one.send(signal.SIGSTOP)
    await asyncio.sleep(rng.uniform(0.5, longest_s))
    one.send(signal.SIGCONT)


async def restarted(one: Broker | PostgresServer, rng: random.Random) -> None:
    """Killed with -9 and away for some seconds."""
    one.kill()
    await asyncio.sleep(rng.uniform(1, 4))
    await asyncio.to_thread(one.start)


async def broker_restarted(one: Broker, rng: random.Random) -> None:
    """The same, and it is back once it has what the others have: poses are in memory alone."""
    await restarted(one, rng)
    deadline = time.monotonic() + HEALTHY_S
    while not await asyncio.to_thread(one.is_healthy):
        if time.monotonic() > deadline:
            print(f"{one.name}: not healthy for {HEALTHY_S} s", file=sys.stderr, flush=True)
            return
        await asyncio.sleep(0.2)


async def rolled(fleet: Fleet, rng: random.Random) -> None:
    """SIGTERM to everything in turn, as an upgrade does it."""
    processes: list[WorkerProcess | Role] = [*fleet.workers, *fleet.writers]
    for one in processes:
        if one.process is not None:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(one.stop)
            if one.process is None:
                one.launch() if isinstance(one, WorkerProcess) else one.start()
            await asyncio.sleep(rng.uniform(1, 3))
    for broker in fleet.brokers:
        await broker_restarted(broker, rng)


Faults = Mapping[str, Callable[[], Awaitable[None]]]


async def chaos(rng: random.Random, until: float, faults: Faults) -> Counter[str]:
    """One fault after the other until the time is over; then everything runs again."""
    done: Counter[str] = Counter()
    while time.monotonic() < until - END_S:
        await asyncio.sleep(rng.uniform(3, 7))
        kind = rng.choice([*faults])
        done[kind] += 1
        print(f"{until - time.monotonic():7.1f} s left: {kind}", file=sys.stderr, flush=True)
        await faults[kind]()
    return done


async def all_chaos(fleet: Fleet, seed: int, seconds: float, rolls: bool) -> Counter[str]:
    """Faults of the bus and its workers, and at the same time of the database and its writers."""
    rng, other = random.Random(seed), random.Random(f"database {seed}")
    until = time.monotonic() + seconds
    of_bus: Faults = {
        "kill worker": lambda: killed(rng.choice(fleet.workers), rng),
        "pause worker": lambda: paused(rng.choice(fleet.workers), rng, 4.0),
        "kill broker": lambda: broker_restarted(rng.choice(fleet.brokers), rng),
    }
    if rolls:
        of_bus = {**of_bus, "restart all in turn": lambda: rolled(fleet, rng)}
    of_database: Faults = {
        "kill writer": lambda: killed(other.choice(fleet.writers), other),
        "pause writer": lambda: paused(other.choice(fleet.writers), other, 14.0),
        "kill PostgreSQL": lambda: restarted(fleet.database, other),
    }
    both = await asyncio.gather(chaos(rng, until, of_bus), chaos(other, until, of_database))
    return both[0] + both[1]


def writers(directory: Path, brokers: Sequence[Broker], dsn: str) -> list[Role]:
    """Some that share the events among themselves, few at a time."""
    servers = ", ".join(f'"{one.address}"' for one in brokers)
    made = []
    for i in range(WRITERS):
        settings = directory / f"writer{i}.toml"
        settings.write_text(
            f"[bus]\nservers = [{servers}]\nshards = 4\nreplicas = 3\n"
            '[events]\ndsn = "env:DSN"\nbatch = 7\nretention_days = 1e5\n'
        )
        made.append(Role("events", settings, DSN=dsn))
    return made


async def roll(given: argparse.Namespace, fleet: Fleet, bus: BusSettings) -> Counter[str]:
    """Edges that send while everything dies and is restarted in turn."""
    seconds = given.minutes * 60
    with senders(bus, long_scripts(seconds)) as edges:
        *_, done = await asyncio.gather(
            *(edge.play() for edge in edges), all_chaos(fleet, given.seed, seconds, rolls=True)
        )
    return done


async def run(given: argparse.Namespace, directory: Path) -> bool:
    """The run, and whether all was as in a quiet one."""
    scripts = long_scripts(given.minutes * 60)
    expected = quiet(scripts)
    with ExitStack() as stack:
        brokers = stack.enter_context(cluster(directory))
        database = stack.enter_context(postgres_server("fsync=on", "full_page_writes=on"))
        time.sleep(3.0)  # they elect one of them
        settings = bus_settings(brokers, poses_mb=100)
        worker: dict[str, object] = {"silent_s": 60, "shed_s": given.shed}
        workers = [
            WorkerProcess(directory, brokers, f"w{i}", worker=worker) for i in range(given.workers)
        ]
        fleet = Fleet(brokers, workers, writers(directory, brokers, database.dsn), database)
        stack.callback(fleet.end)
        for one in workers:
            one.start()
        for writer in fleet.writers:
            writer.start()
        if given.rolls:
            done = await roll(given, fleet, settings)
        else:
            async with connected(settings, "player") as bus:
                playing = Player(bus, again_s=AGAIN_S, ids=True).play(scripts)
                faults = all_chaos(fleet, given.seed, given.minutes * 60, rolls=False)
                _, done = await asyncio.gather(playing, faults)
        ended = sum(kind == "end" for kind, _ in expected.changes)
        heard = await settled(settings, ended, SETTLE_S)
        all_written = await nothing_waits(settings, 60)
        rows = await stored(database.dsn)
    wrong = {
        **wrong_events(heard, expected),
        **wrong_windows(windows_of(workers), expected),
        **wrong_rows(rows, expected),
        "events not written": int(not all_written),
    }
    facts = {
        "faults": ", ".join(f"{n} x {kind}" for kind, n in sorted(done.items())),
        "events expected": len(expected.heard().ids("new")),
        "windows expected": len(expected.windows),
        "rows in PostgreSQL": len(rows),
    }
    print(table(facts | wrong))
    return not any(wrong.values())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rolls", action="store_true", help="restart everything in turn")
    parser.add_argument("--shed", type=float, default=60.0, help="a worker's default is 1.5")
    parser.add_argument("--keep", type=Path, help="a directory to leave logs in")
    given = parser.parse_args(arguments)
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        sys.exit(0 if asyncio.run(run(given, given.keep)) else 1)
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(0 if asyncio.run(run(given, Path(directory))) else 1)
