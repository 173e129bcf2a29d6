"""The network of a fleet fails: hosts that are cut off, and what is kept of what they promised."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from stepvad.fleet.broker.bus import Delivery
from stepvad.fleet.event_message import ID
from stepvad.fleet.worker.owned_shard import WORKER
from tests.fleet.network import (
    END_S,
    Network,
    Roles,
    Switch,
    both_ways,
    mac_of,
    missing,
    network,
    plan,
)
from tests.fleet.results import Acknowledged, forgotten, lost, of_others, twice

ROOT = Path(__file__).parents[2]
NO_HOSTS = missing()
needs_hosts = pytest.mark.skipif(bool(NO_HOSTS), reason=NO_HOSTS or "has hosts")
ROLES = Roles(("n1", "n2", "n3"), ("w0", "w1"), ("e0", "e1"), ("postgres", "player"), "operator")


def test_a_plan_is_that_of_its_seed_and_ends_before_the_cameras_do() -> None:
    found = plan(ROLES, 1, 1200)
    assert found == plan(ROLES, 1, 1200)
    assert found != plan(ROLES, 2, 1200)
    lasts_s = sum(one.rest_s + one.lasts_s for one in found)
    assert lasts_s == pytest.approx(1200 - END_S)
    kinds = Counter(one.kind for one in found)
    assert {"cluster in halves", "one way", "flapping link", "names gone"} < kinds.keys()
    assert min(kinds.values()) >= 2
    for one in found:
        assert sum(for_s for _, for_s in one.phases()) == pytest.approx(one.lasts_s)


def claim(sequence: int, worker: str) -> Delivery:
    return Delivery(
        "events.0", json.dumps({"type": "claim", "worker": worker}).encode(), sequence, 0.0
    )


def event(sequence: int, id: str, worker: str, subject: str = "events.0") -> Delivery:
    return Delivery(subject, b'{"type": "new"}', sequence, 0.0, headers={ID: id, WORKER: worker})


def ack(id: str, sequence: int, *, is_duplicate: bool = False) -> Acknowledged:
    return Acknowledged(0.0, "events.0", id, sequence, is_duplicate, b"")


def test_events_of_a_worker_that_is_not_the_owner_are_found() -> None:
    stored = [claim(1, "a"), event(2, "x", "a"), claim(3, "b"), event(4, "y", "a")]
    assert of_others(stored) == stored[3:]
    assert of_others([*stored[:3], event(4, "y", "b")]) == []
    assert of_others([claim(1, "a"), event(2, "x", "a", "events.1")])


def test_what_was_acknowledged_and_is_not_stored_is_found() -> None:
    stored = [event(2, "x", "a"), event(4, "y", "a"), event(5, "y", "a")]
    assert lost([ack("x", 2), ack("y", 4), ack("z", 3), ack("x", 4)], stored) == [
        ack("z", 3),
        ack("x", 4),
    ]
    assert twice(stored) == ["y"]


def test_what_a_broker_stored_anew_after_it_had_acknowledged_it_was_lost() -> None:
    acks = [ack("x", 2), ack("x", 2, is_duplicate=True), ack("y", 3), ack("y", 7), ack("y", 7)]
    assert forgotten(acks) == {"y": [3, 7]}


def test_a_switch_drops_what_is_cut_and_only_in_that_direction() -> None:
    ours, theirs = zip(*(socket.socketpair(type=socket.SOCK_DGRAM) for _ in range(3)), strict=True)
    for one in theirs:
        one.settimeout(0.0)
    switch = Switch([one.fileno() for one in ours], random.Random(1), cut=frozenset([(0, 1)]))

    def sent(source: int, target: int) -> list[int]:
        """The ports that got the packet."""
        address = mac_of(target) if target < 3 else "ff:ff:ff:ff:ff:ff"
        switch.take(source, bytes.fromhex(address.replace(":", "")) + b"packet")
        return [port for port, one in enumerate(theirs) if _has(one)]

    assert (sent(0, 1), sent(1, 0), sent(0, 2), sent(0, 9)) == ([], [0], [2], [2])
    for one in (*ours, *theirs):
        one.close()


def _has(one: socket.socket) -> bool:
    try:
        return bool(one.recv(100))
    except BlockingIOError:
        return False


def reached(net: Network, source: str, target: str) -> float | None:
    """Seconds until a host answers a connection to a closed port; None if it does not."""
    words = (
        "import socket, sys, time; s = socket.socket(); s.settimeout(1.5); t = time.monotonic()\n"
        "try: s.connect_ex((sys.argv[1], 9)) == 111 and print(time.monotonic() - t)\n"
        "except OSError: pass"
    )
    command = [*net.hosts[source].inside, sys.executable, "-c", words, target]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    return float(said) if said else None


@pytest.mark.slow
@needs_hosts
def test_hosts_reach_each_other_by_name_unless_they_are_cut_off() -> None:
    with network(["a", "b", "c"], 1) as net:
        names = [one.namespace for one in net.hosts.values()]
        assert reached(net, "a", "b") is not None
        net.set(cut=both_ways(["a"], ["b", "c"]))
        assert reached(net, "a", "b") is None
        assert reached(net, "b", "c") is not None
        net.set(cut=[("b", "a")])
        assert reached(net, "a", "b") is None
        net.set(slow=both_ways(["a"], ["b"]))
        assert (reached(net, "a", "b") or 1.0) >= 0.6
        net.set()
        net.hosts["a"].forget_names()
        assert reached(net, "a", "b") is None
        net.hosts["a"].learn_names(net.hosts.values())
        assert reached(net, "a", "b") is not None
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert not any(name in left for name in names)
    assert not any(Path("/etc/netns", name).exists() for name in names)


@pytest.mark.long
@pytest.mark.slow
@needs_hosts
def test_a_run_that_is_interrupted_leaves_no_host_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies", "cuts", "--minutes", "0.5", "--keep", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
        hosts = f"cut{process.pid}-"
        deadline = time.monotonic() + 60
        while not (tmp_path / "n3.log").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        there = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
        process.terminate()
        process.wait(60)
    assert hosts in there
    assert hosts not in subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout


@pytest.mark.long
@pytest.mark.slow
@needs_hosts
def test_nothing_is_lost_or_twice_while_hosts_are_cut_off() -> None:
    command = [sys.executable, "-m", "studies", "cuts", "--minutes", "0.75", "--seed", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
