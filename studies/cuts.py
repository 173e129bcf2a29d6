"""Cut the network of a fleet, at random, and compare its events with a quiet run.

    python -m studies cuts [--minutes 20] [--seed 1] [--workers 3] [--keep DIRECTORY]

Three brokers, some workers, two writers of events, PostgreSQL, a player of cameras and an edge,
each on a host of its own: a network namespace, with a cable to a switch that this run makes and
removes. Nothing is killed. One network fault follows another: a host cut off alone, the cluster in
halves, packets that pass in one direction only, 300 ms of delay each way with 5 % loss, names that
cannot be resolved, a link that flaps. The seed sets which, when and for how long.

At the end the network is whole again. What brokers acknowledged is compared with what is stored;
every event must come from the worker that had claimed its shard; events, windows and rows are
compared with a quiet run, as the study `chaos` does. The exit code is 0 if nothing differs. Needs
root, `ip` and /dev/net/tun.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from stepvad.fleet import wire
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.worker.checkpoint import ShardCheckpoint
from stepvad.fleet.worker.owned_shard import key_of
from studies.simulated.comparison import table, windows_of, wrong_events, wrong_rows, wrong_windows
from studies.simulated.long_scripts import FRAMES, PLAYING, long_scripts
from tests.fleet.fleets import Role, Script, WorkerProcess, settled
from tests.fleet.network import Fault, Host, Network, Roles, missing, network, plan
from tests.fleet.results import (
    NO_ID,
    Quiet,
    acknowledged,
    forgotten,
    joined,
    last_change,
    lost,
    nothing_waits,
    of_others,
    quiet,
    stored,
    stored_events,
    twice,
)
from tests.fleet.servers import Broker, PostgresServer, bus_settings, postgres_server
from tests.video.servers import wait_until

WORKER: dict[str, object] = {"silent_s": 60, "shed_s": 60}
PORT, ROUTES = 4222, 6222
SETTLE_S = 120
CAUGHT_UP_S = 30
"""After the last fault."""
LATE_S = 120
"""The player may end so much later than its scripts."""
NICE = 15
"""The quiet run is computed beside the other one, and gives way to it."""
SITE, CAMERA = "real", "yard"


@dataclass(frozen=True, slots=True)
class Fleet:
    """What runs, and where its traces are."""

    network: Network
    brokers: Sequence[Broker]
    workers: Sequence[WorkerProcess]
    writers: Sequence[Role]
    edge: Role
    player: subprocess.Popen[bytes]
    database: PostgresServer
    directory: Path

    @property
    def processes(self) -> list[subprocess.Popen[bytes] | None]:
        """Those that run until the end."""
        workers, writers = [w.process for w in self.workers], [w.process for w in self.writers]
        return [*workers, *writers, *(one.process for one in self.brokers)]

    @property
    def settings(self) -> BusSettings:
        """Of this process, which knows no names."""
        return bus_settings(self.brokers)


def named(port: int, names: Iterable[str], scheme: str = "nats") -> list[str]:
    """Addresses of hosts by their names."""
    return [f"{scheme}://{name}:{port}" for name in names]


def start_brokers(stack: ExitStack, directory: Path, hosts: Sequence[Host]) -> list[Broker]:
    """A cluster whose members know each other by name."""
    routes = json.dumps(named(ROUTES, (one.name for one in hosts), "nats-route"))
    made = []
    for host in hosts:
        more = f'cluster {{ name: fleet, listen: "{host.address}:{ROUTES}", routes: {routes} }}\n'
        one = Broker(directory, host.name, more, host=host.address, inside=host.inside, port=PORT)
        stack.callback(one.kill)
        one.start()
        made.append(one)
    return made


def bus_section(servers: Sequence[str], name: str = "bus") -> str:
    """The settings of the bus."""
    return f"[{name}]\nservers = {json.dumps(servers)}\nshards = 4\nreplicas = 3\n"


def start_writers(
    stack: ExitStack, directory: Path, hosts: Sequence[Host], servers: Sequence[str], dsn: str
) -> list[Role]:
    """Some that share the events among themselves, few at a time."""
    made = []
    for host in hosts:
        settings = directory / f"{host.name}.toml"
        own = '[events]\ndsn = "env:DSN"\nbatch = 7\nretention_days = 1e5\n'
        settings.write_text(bus_section(servers) + own)
        one = Role("events", settings, inside=host.inside, DSN=dsn)
        stack.callback(one.kill)
        one.start()
        made.append(one)
    return made


def edge(directory: Path, host: Host, servers: Sequence[str]) -> Role:
    """A real edge with the camera of the demo."""
    settings = directory / "edge.toml"
    settings.write_text(
        f'name = "{SITE}"\ndata = "{directory}/edge-data"\n'
        f'[[cameras]]\nname = "{CAMERA}"\nurl = "demo:"\nrate = 12.5\n[web]\nenabled = false\n'
        + bus_section(servers, "fleet.bus")
    )
    acks = str(directory / "edge.acks")
    program = ("studies.simulated.recording_edge",)
    return Role("edge", settings, inside=host.inside, program=program, ACKS=acks)


def start_player(
    stack: ExitStack, directory: Path, host: Host, servers: Sequence[str], seconds: float
) -> subprocess.Popen[bytes]:
    """The cameras; they play as soon as this returns."""
    facts, log = directory / "player.json", directory / "player.log"
    facts.write_text(json.dumps({"servers": servers, "shards": 4, "replicas": 3}))
    words = [str(facts), str(seconds), str(directory / "player.acks")]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*host.inside, sys.executable, "-m", "studies.simulated.long_scripts", *words],
            stdout=file,
            stderr=file,
            cwd=Path(__file__).parents[1],
        )
    stack.callback(_end, process)
    wait_until(lambda: PLAYING in log.read_text())
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def allow_network(server: PostgresServer) -> None:
    """Let hosts other than its own connect."""
    with (server.data / "pg_hba.conf").open("a") as file:
        file.write("host all all 10.213.0.0/24 trust\n")


def start(stack: ExitStack, directory: Path, roles: Roles, given: argparse.Namespace) -> Fleet:
    """Every part on its host."""
    net = stack.enter_context(network(roles.all, given.seed))
    hosts = net.hosts
    hosts[roles.operator].enter()
    brokers = start_brokers(stack, directory, [hosts[name] for name in roles.brokers])
    where = hosts["postgres"]
    database = stack.enter_context(
        postgres_server(
            *("fsync=on", "full_page_writes=on"),
            prepare=allow_network,
            host=where.address,
            inside=where.inside,
        )
    )
    time.sleep(3.0)  # they elect one of them
    servers = named(PORT, roles.brokers)
    workers = []
    for name in roles.workers:
        one = WorkerProcess(
            directory, brokers, name, worker=WORKER, inside=hosts[name].inside, servers=servers
        )
        stack.callback(one.kill)
        one.start()
        workers.append(one)
    dsn = database.dsn.replace(where.address, where.name)
    writers = start_writers(stack, directory, [hosts[name] for name in roles.writers], servers, dsn)
    sends = edge(directory, hosts["edge"], servers)
    stack.callback(sends.kill)
    sends.start()
    seconds = given.minutes * 60
    player = start_player(stack, directory, hosts["player"], servers, seconds)
    return Fleet(net, brokers, workers, writers, sends, player, database, directory)


def strike(net: Network, fault: Fault) -> None:
    """Let a fault happen, then end it."""
    time.sleep(fault.rest_s)
    now = time.strftime("%H:%M:%S")
    print(f"{now} {fault.kind}: {fault.words}, {fault.lasts_s:.1f} s", file=sys.stderr, flush=True)
    hosts = net.hosts
    for name in fault.nameless:
        hosts[name].forget_names()
    try:
        for is_on, lasts_s in fault.phases():
            net.set(fault.cut, fault.slow) if is_on else net.set()
            time.sleep(lasts_s)
    finally:
        net.set()
        for name in fault.nameless:
            hosts[name].learn_names(hosts.values())


def sent_by_edge(fleet: Fleet) -> Script:
    """What the edge sent, each message once."""
    found = {one.id: one for one in acknowledged([fleet.directory / "edge.acks"])}
    messages = tuple((one.time, wire.decode(one.data)) for one in found.values())
    return Script(SITE, CAMERA, messages)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is to be shown, and what must be zero of it."""

    facts: dict[str, object]
    wrong: dict[str, int]


async def show_owners(bus: NatsBus) -> None:
    """Who holds which shard, and who is on record as its owner: for whoever looks for a fault."""
    with suppress(UnavailableError):
        print(f"leases: {await bus.leases()}", file=sys.stderr)
        for number in range(bus.subjects.shards):
            entry = await bus.read(key_of(number))
            owner = entry and ShardCheckpoint.unpack(entry.value).owner
            print(f"shard {number}: {owner}", file=sys.stderr)


async def audit(fleet: Fleet, expected: Quiet, faults: Sequence[Fault], ended_at: float) -> Outcome:
    """Everything that the run left, beside what it should have; the last fault ended at a time."""
    ended = sum(kind == "end" for kind, _ in expected.changes)
    settings = fleet.settings
    heard = await settled(settings, ended, SETTLE_S)
    all_written = await nothing_waits(settings, 60)
    rows = await stored(fleet.database.dsn)
    caught_up_s = max(*heard.at, await last_change(fleet.database.dsn)) - ended_at
    async with connected(settings, "auditor") as bus:
        kept = await stored_events(bus)
        await show_owners(bus)
    of_workers = [one.windows.with_name(f"{one.windows.name}.acks") for one in fleet.workers]
    events = [one for one in acknowledged(of_workers) if one.id != NO_ID]
    poses = acknowledged([fleet.directory / name for name in ("player.acks", "edge.acks")])
    for one in lost(events, kept):
        print(f"lost: {one}", file=sys.stderr)
    for other in of_others(kept):
        print(f"of another worker: {other}", file=sys.stderr)
    known = len(expected.heard().ids("new"))
    facts: dict[str, object] = {
        "faults": ", ".join(
            f"{n} x {kind}" for kind, n in sorted(Counter(one.kind for one in faults).items())
        ),
        "packets dropped": fleet.network.set()["dropped"],
        "events expected": known,
        "windows expected": len(expected.windows),
        "poses acknowledged": len({one.id for one in poses}),
        "poses that brokers lost after that, and got again": len(forgotten(poses)),
        "changes of events acknowledged": len({one.id for one in events}),
        "claims of shards": heard.claims,
        "rows in PostgreSQL": len(rows),
        "caught up after the last fault, s": f"{caught_up_s:.1f}",
    }
    wrong = {
        "acknowledged changes of events lost": len(lost(events, kept)),
        "changes of events stored twice": len(twice(kept)),
        "events of a worker that was not the owner": len(of_others(kept)),
        **wrong_events(heard, expected),
        **wrong_windows(windows_of(fleet.workers), expected),
        **wrong_rows(rows, expected),
        "events not written": 0 if all_written else 1,
        "processes that died": sum(
            process is None or process.poll() is not None for process in fleet.processes
        ),
        "too late": int(caught_up_s > CAUGHT_UP_S),
    }
    return Outcome(facts, wrong)


def run(given: argparse.Namespace, directory: Path) -> bool:
    """The run, and whether all was as it should be."""
    workers = tuple(f"w{i}" for i in range(given.workers))
    others = ("postgres", "player", "edge")
    roles = Roles(("n1", "n2", "n3"), workers, ("events0", "events1"), others, "operator")
    seconds = given.minutes * 60
    faults = plan(roles, given.seed, seconds)
    with ExitStack() as stack:
        pool = stack.enter_context(multiprocessing.Pool(1, os.nice, (NICE,)))  # ended with the run
        expected = pool.apply_async(quiet, (long_scripts(seconds, FRAMES),))
        fleet = start(stack, directory, roles, given)
        for fault in faults:
            strike(fleet.network, fault)
        last = time.time()
        code = fleet.player.wait(seconds + LATE_S)
        if code:
            print(f"player: exit code {code}", file=sys.stderr)
        print(f"the player ended {time.time() - last:.1f} s after the last fault", file=sys.stderr)
        code = fleet.edge.stop() or code
        whole = joined([expected.get(seconds + LATE_S), quiet([sent_by_edge(fleet)])])
        found = asyncio.run(audit(fleet, whole, faults, last))
    print(table(found.facts | found.wrong))
    return not code and not any(found.wrong.values())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="leave logs and traces in this directory")
    given = parser.parse_args(arguments)
    if problem := missing():
        sys.exit(f"error: {problem}")
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    with tempfile.TemporaryDirectory() as temporary:
        directory = given.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        sys.exit(0 if run(given, directory) else 1)
