"""Hosts on one machine: namespaces with addresses, and cables to one switch.

The switch runs in a process of its own:

    python -m studies.simulated.network SEED FD...
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

TUN = Path("/dev/net/tun")
_TUNSETIFF, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000
_CLONE_NEWNET = 0x40000000
_ANSWER_S = 10.0
_NAMESERVER = "10.213.0.250"
"""Packets to this address go nowhere: a name that is not in the file waits for its time-out."""
_NAMES = Path("/etc/netns")
Pair = tuple[str, str]


def missing() -> str:
    """Why this machine cannot have hosts; empty if it can."""
    if shutil.which("ip") is None:
        return "needs iproute2"
    if not os.access(TUN, os.R_OK | os.W_OK):
        return f"needs {TUN}"
    name = f"probe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"needs network namespaces: {made.stderr.strip()}"
    _run("ip", "netns", "del", name)
    return ""


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace with an address of its own."""

    name: str
    namespace: str
    port: int

    @property
    def address(self) -> str:
        return f"10.213.0.{self.port + 1}"

    @property
    def inside(self) -> Sequence[str]:
        """What a command begins with to run on this host."""
        return ("ip", "netns", "exec", self.namespace)

    @property
    def hosts_file(self) -> Path:
        return _NAMES / self.namespace / "hosts"

    def forget_names(self) -> None:
        """No name can be resolved; written in place, because the file is mounted."""
        self.hosts_file.write_text("127.0.0.1 localhost\n")

    def learn_names(self, hosts: Iterable[Host]) -> None:
        lines = ["127.0.0.1 localhost", *(f"{one.address} {one.name}" for one in hosts)]
        self.hosts_file.write_text("\n".join(lines) + "\n")

    def enter(self) -> None:
        """Make this thread, and those it starts, a part of the host's network."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/run/netns/{self.namespace}").open() as file:
            if libc.setns(file.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")


class Network:
    """Hosts and the switch between them."""

    def __init__(self, hosts: Sequence[Host], switch: subprocess.Popen[bytes]) -> None:
        self.hosts = {host.name: host for host in hosts}
        self._switch = switch

    def set(self, cut: Iterable[Pair] = (), slow: Iterable[Pair] = ()) -> dict[str, int]:
        """From now on these links are cut and these are slow, and no others; packets so far."""
        links = {"cut": [*map(self._ports, cut)], "slow": [*map(self._ports, slow)]}
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(json.dumps(links).encode() + b"\n")
        self._switch.stdin.flush()
        if not select.select([self._switch.stdout], [], [], _ANSWER_S)[0]:
            raise TimeoutError(f"switch: expected an answer within {_ANSWER_S:g} s, got none")
        counts: dict[str, int] = json.loads(self._switch.stdout.readline())
        return counts

    def _ports(self, pair: Pair) -> list[int]:
        return [self.hosts[name].port for name in pair]


@contextmanager
def network(names: Sequence[str], seed: int) -> Iterator[Network]:
    """Hosts of these names; all of it is gone at the end."""
    hosts = [Host(name, f"cut{os.getpid()}-{name}", port) for port, name in enumerate(names)]
    with ExitStack() as stack:
        cables = []
        for host in hosts:
            _run("ip", "netns", "add", host.namespace)
            stack.callback(_run, "ip", "netns", "del", host.namespace)
            stack.callback(shutil.rmtree, host.hosts_file.parent, ignore_errors=True)
            cables.append(_cable(host, f"cut{os.getpid()}.{host.port}"))
            stack.callback(os.close, cables[-1])
            host.hosts_file.parent.mkdir(parents=True)
            host.learn_names(hosts)
            resolver = f"nameserver {_NAMESERVER}\noptions timeout:3 attempts:2\n"
            host.hosts_file.with_name("resolv.conf").write_text(resolver)
        switch = subprocess.Popen(
            [sys.executable, "-m", "studies.simulated.network", str(seed), *map(str, cables)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=cables,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # Ctrl-C is for the run, which ends it
        )
        stack.callback(_end, switch)
        made = Network(hosts, switch)
        made.set()
        yield made


def _end(switch: subprocess.Popen[bytes]) -> None:
    with switch:  # which closes its pipes, and waits
        switch.kill()


def _cable(host: Host, name: str) -> int:
    """A TAP device in the host's namespace; its other end."""
    cable = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(cable, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
    _run("ip", "link", "set", name, "netns", host.namespace)
    mac, nowhere = mac_of(host.port), mac_of(250)
    for words in (
        f"link set {name} name eth0",
        f"link set eth0 address {mac}",
        f"addr add {host.address}/24 dev eth0",
        "link set eth0 up",
        "link set lo up",
        f"neigh add {_NAMESERVER} lladdr {nowhere} dev eth0 nud permanent",
    ):
        _run("ip", "-n", host.namespace, *words.split())
    return cable


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


def both_ways(some: Sequence[str], others: Sequence[str]) -> frozenset[Pair]:
    """The links between some hosts and others."""
    return frozenset(
        (a, b) for x, y in ((some, others), (others, some)) for a in x for b in y if a != b
    )


DELAY_S = 0.3
LOSS = 0.05
FRAME_BYTES = 65_536
BURST = 64
"""Most packets read of one host before the others have their turn."""
VENDOR = b"\x02\x00\x00\x00\x00"
Link = tuple[int, int]


def mac_of(port: int) -> str:
    """The hardware address that the host at a port must have."""
    return ":".join(f"{part:02x}" for part in (*VENDOR, port))


@dataclass(slots=True)
class Switch:
    """Passes packets between ports; each direction of a link has its own state."""

    cables: Sequence[int]
    random: random.Random
    cut: frozenset[Link] = frozenset()
    slow: frozenset[Link] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    _later: list[tuple[float, int, int, bytes]] = field(default_factory=list)

    def take(self, source: int, packet: bytes) -> None:
        """Pass a packet on to the port of its address, or to all."""
        for target in self._targets(source, packet):
            link = (source, target)
            if link in self.cut or (link in self.slow and self.random.random() < LOSS):
                self.counts["dropped"] += 1
            elif link in self.slow:
                self.counts["delayed"] += 1
                order = self.counts["delayed"]
                heapq.heappush(self._later, (time.monotonic() + DELAY_S, order, target, packet))
            else:
                self._send(target, packet)

    def send_due(self) -> float | None:
        """Send what waited long enough; seconds until the next packet is due."""
        while self._later and self._later[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(self._later)
            self._send(target, packet)
        return max(self._later[0][0] - time.monotonic(), 0.0) if self._later else None

    def _targets(self, source: int, packet: bytes) -> Iterable[int]:
        if packet[0] & 1:  # to all
            return (port for port in range(len(self.cables)) if port != source)
        port = packet[5]
        return (port,) if packet[:5] == VENDOR and port < len(self.cables) else ()

    def _send(self, target: int, packet: bytes) -> None:
        try:
            os.write(self.cables[target], packet)
            self.counts["passed"] += 1
        except OSError:  # the host is not up
            self.counts["dropped"] += 1


def serve(switch: Switch) -> None:
    """Pass packets until stdin ends."""
    poll = select.epoll()
    ports = {cable: port for port, cable in enumerate(switch.cables)}
    for cable in (*switch.cables, 0):
        poll.register(cable, select.EPOLLIN)
    commands = b""
    while True:
        wait_s = switch.send_due()
        for cable, _ in poll.poll(wait_s):
            if cable == 0:
                more = os.read(0, FRAME_BYTES)
                if not more:
                    return
                *lines, commands = (commands + more).split(b"\n")
                for line in lines:
                    _obey(switch, line)
                continue
            for _ in range(BURST):
                try:
                    packet = os.read(cable, FRAME_BYTES)
                except OSError:  # none for now
                    break
                switch.take(ports[cable], packet)


def _obey(switch: Switch, line: bytes) -> None:
    links = json.loads(line)
    switch.cut = frozenset((a, b) for a, b in links["cut"])
    switch.slow = frozenset((a, b) for a, b in links["slow"])
    os.write(1, json.dumps(switch.counts).encode() + b"\n")


if __name__ == "__main__":
    seed, *cables = map(int, sys.argv[1:])
    serve(Switch(cables, random.Random(seed)))
