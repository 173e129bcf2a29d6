"""A network switch in a process of its own, whose links can be cut, slow and lossy.

    python -m tests.fleet.switch SEED FD...

Each FD is an open TAP device, the cable of one host; the kernel needs neither bridge nor netem. A
line of JSON on stdin sets which links are `cut` and which `slow`, as pairs of ports, source first;
the switch answers with the number of packets it passed, dropped and delayed so far. It ends with
its stdin.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import select
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
