"""Upgrade a running fleet from an older commit, go back, and compare its events with a quiet run.

    python -m studies upgrade [--before COMMIT] [--minutes 6] [--seed 1]

Three brokers, three workers, two writers, PostgreSQL and an edge of the older commit score six
cameras. Then, one after the other and in the order of the guide: the tables, workers, writers,
`stepvad fleet setup`, the edge; and the same way back. Between two steps a worker, a broker or a
writer is killed with -9. What is on the stream of events, what workers scored and what is in the
database are compared with the same clips through a stream and a watcher in this process. The edge
plays a bundled scene: its events begin and end, each once. The exit code tells whether all is well.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import random
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stepvad.fleet.broker.nats import connected
from tests.fleet.brokers import Broker, bus_settings, cluster
from tests.fleet.comparison import table, windows_of, wrong_events, wrong_rows, wrong_windows
from tests.fleet.fleets import ROOT, Heard, Player, WorkerProcess, settled, source_path
from tests.fleet.long_scripts import AGAIN_S, long_scripts
from tests.fleet.postgres import postgres_server
from tests.fleet.quiet import quiet
from tests.fleet.roles import Role
from tests.fleet.rows import nothing_waits, stored

BEFORE = "cd6ae69"
"""The last commit before partitions and tenants."""
WORKER: dict[str, object] = {"silent_s": 60, "shed_s": 60}
EDGE = "edge/yard"
SETTLE_S = 120


def checkout(commit: str, directory: Path) -> Path:
    """The sources and tests of a commit."""
    made = subprocess.run(
        ["git", "archive", commit, "src", "tests"],  # noqa: S607  whichever git there is
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as files:
        files.extractall(directory, filter="data")
    return directory


@dataclass(slots=True)
class Part:
    """A role that is replaced by one of another commit."""

    name: str
    make: Callable[[Path], WorkerProcess | Role]
    running: WorkerProcess | Role

    def replace(self, root: Path) -> None:
        """SIGTERM, and the other one starts."""
        self.running.stop()
        self.running = self.make(root)
        self.start()

    def start(self) -> None:
        """Start it without waiting."""
        one = self.running
        one.launch() if isinstance(one, WorkerProcess) else one.start()

    def kill(self) -> None:
        """Kill it with -9."""
        self.running.kill()

    def again(self) -> None:
        """Kill it with -9 and start it again."""
        self.kill()
        self.start()


def command(root: Path, *words: str | Path, **environment: str) -> None:
    """A command of a commit, which has to succeed."""
    verb, settings, *more = map(str, words)
    role = Role(verb, Path(settings), *more, PYTHONPATH=source_path(root), **environment)
    with role:
        assert role.process is not None
        code = role.process.wait(60)
    assert code == 0, role.log.read_text()[-2000:]


def parts(directory: Path, brokers: Sequence[Broker], dsn: str, old: Path) -> list[Part]:
    """Workers, writers and an edge; each is made again for another commit."""
    servers = ", ".join(f'"{one.address}"' for one in brokers)
    bus = f"servers = [{servers}]\nshards = 4\nreplicas = 3\n"
    fleet = directory / "fleet.toml"
    fleet.write_text(f'[bus]\n{bus}[events]\ndsn = "env:DSN"\nbatch = 7\nretention_days = 1e5\n')
    site = directory / "edge.toml"
    site.write_text(
        'name = "edge"\ndata = "edge-data"\n'
        '[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 12.5\n'
        f"[web]\nenabled = false\n[fleet.bus]\n{bus}"
    )

    def worker(n: int) -> Callable[[Path], WorkerProcess]:
        return lambda root: WorkerProcess(directory, brokers, f"w{n}", worker=WORKER, root=root)

    def writer(n: int) -> Callable[[Path], Role]:
        own = directory / f"writer{n}.toml"
        own.write_text(fleet.read_text())
        return lambda root: Role("events", own, DSN=dsn, PYTHONPATH=source_path(root))

    makes: list[tuple[str, Callable[[Path], WorkerProcess | Role]]] = [
        *((f"worker {n}", worker(n)) for n in range(3)),
        *((f"writer {n}", writer(n)) for n in range(2)),
        ("edge", lambda root: Role("edge", site, PYTHONPATH=source_path(root))),
    ]
    return [Part(name, make, make(old)) for name, make in makes]


async def upgrade(
    given: argparse.Namespace, fleet: list[Part], brokers: Sequence[Broker], old: Path, dsn: str
) -> Counter[str]:
    """There and back, with a kill between two steps."""
    rng, done = random.Random(given.seed), Counter[str]()
    directory = Path(fleet[-1].running.log).parent
    settings = directory / "fleet.toml"
    pause_s = given.minutes * 60 / (2 * len(fleet) + 4)

    async def kill() -> None:
        some: list[Part | Broker] = [*fleet[:5], *brokers]
        one = rng.choice(some)
        if isinstance(one, Part):
            await asyncio.to_thread(one.again)
        else:
            one.kill()
            await asyncio.sleep(2)
            await asyncio.to_thread(one.start)
        done[f"kill {'broker' if isinstance(one, Broker) else one.name.split()[0]}"] += 1

    async def step(name: str, do: Callable[[], None]) -> None:
        await asyncio.sleep(pause_s / 2)
        print(name, file=sys.stderr, flush=True)
        await asyncio.to_thread(do)
        done[name.split(" of ")[0].rstrip(" 0123456789")] += 1
        await asyncio.sleep(pause_s / 2)
        await kill()

    await step("new tables", lambda: command(ROOT, "events", settings, "--migrate", DSN=dsn))
    for part in fleet[:5]:
        await step(f"new {part.name}", partial(part.replace, ROOT))
    await step("setup", lambda: command(ROOT, "setup", settings))
    await step("new edge", lambda: fleet[5].replace(ROOT))
    for part in reversed(fleet):
        await step(f"old {part.name}", partial(part.replace, old))
    return done


def without_edge(heard: Heard) -> tuple[Heard, Heard]:
    """What the scripted cameras caused, and what the edge did."""
    pairs = [*zip(heard.told, heard.at, strict=True)]
    found = []
    for is_edge in (False, True):
        some = [one for one in pairs if (one[0].after.camera == EDGE) is is_edge]
        found.append(Heard([told for told, _ in some], [at for _, at in some]))
    return found[0], found[1]


def scripted_windows(workers: Sequence[WorkerProcess]) -> set[str]:
    """The windows of the scripted cameras, whose people have numbers from 1,000 on."""
    return {line for line in windows_of(workers) if int(line.partition(" ")[0]) >= 1000}


async def run(given: argparse.Namespace, directory: Path) -> bool:
    """The run, and whether all was as in a quiet one."""
    old = checkout(given.before, directory / "before")
    scripts = long_scripts(given.minutes * 60 + 40)
    expected = quiet(scripts)
    with ExitStack() as stack:
        brokers = stack.enter_context(cluster(directory))
        database = stack.enter_context(postgres_server("fsync=on", "full_page_writes=on"))
        time.sleep(3.0)  # they elect one of them
        fleet = parts(directory, brokers, database.dsn, old)
        settings = bus_settings(brokers)
        for part in fleet:
            stack.callback(part.kill)
            part.start()
            if part.name == "worker 0":
                assert isinstance(part.running, WorkerProcess)
                await asyncio.to_thread(part.running.wait_for, "started")
        async with connected(settings, "player") as bus:
            playing = Player(bus, again_s=AGAIN_S, ids=True).play(scripts)
            _, done = await asyncio.gather(
                playing, upgrade(given, fleet, brokers, old, database.dsn)
            )
        fleet[-1].running.stop()
        ended = sum(kind == "end" for kind, _ in expected.changes)
        scripted, edge = without_edge(await settled(settings, ended, SETTLE_S))
        all_written = await nothing_waits(settings, 60)
        rows = await stored(database.dsn)
    workers = [part.running for part in fleet if isinstance(part.running, WorkerProcess)]
    new, end = Counter(edge.ids("new")), Counter(edge.ids("end"))
    of_edge = [row for row in rows if f"{row['site']}/{row['camera']}" == EDGE]
    wrong = {
        **wrong_events(scripted, expected),
        **wrong_windows(scripted_windows(workers), expected),
        **wrong_rows([row for row in rows if row not in of_edge], expected),
        "events of the edge twice": sum(n > 1 for n in (new + end).values()) - len(new & end),
        "events of the edge not ended": len(set(new) - set(end)),
        "events of the edge not stored": len(set(new) - {row["id"] for row in of_edge}),
        "events not written": int(not all_written),
    }
    facts = {
        "steps and kills": ", ".join(f"{n} x {kind}" for kind, n in sorted(done.items())),
        "events expected": len(expected.heard().ids("new")),
        "events of the edge": len(new),
        "windows expected": len(expected.windows),
        "rows in PostgreSQL": len(rows),
    }
    print(table(facts | wrong))
    return bool(new) and not any(wrong.values())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--before", default=BEFORE, help="the older commit")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory to leave logs in")
    given = parser.parse_args(arguments)
    if given.keep is not None:
        given.keep.mkdir(parents=True)
        sys.exit(0 if asyncio.run(run(given, given.keep)) else 1)
    with tempfile.TemporaryDirectory() as directory:
        sys.exit(0 if asyncio.run(run(given, Path(directory))) else 1)
