"""The shipped fleet really runs: brokers and database with TLS, roles with their own rights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from stepvad.fleet.places import SHARDS
from tests.fleet.deployed import Database, Machine, brokers, prepare, prepared, services
from tests.fleet.roles import Role
from tests.video.servers import SLOWER, wait_until


def asked(url: str, token: str = "") -> Any:
    """What an address answers; None if it does not."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


@contextmanager
def database(machine: Machine) -> Iterator[None]:
    """PostgreSQL with its roles."""
    directory = Path(mkdtemp(prefix="pg-"))  # short, because a socket's path is
    server = Database(directory, machine.fleet)
    machine.database = server.port
    try:
        server.start()
        server.run_sql("roles.sql")
        yield
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def set_up(machine: Machine) -> None:
    """The service `setup`, which ends by itself."""
    _, environment = machine.role("setup", "admin.toml")
    shell, flags, script = services()["setup"]["entrypoint"]
    script = script.replace("stepvad ", f"{machine.python} -m stepvad ")
    done = subprocess.run(
        [shell, flags, script],
        env=os.environ | environment,
        cwd=machine.fleet,
        capture_output=True,
        text=True,
        timeout=60 * SLOWER,
    )
    assert done.returncode == 0, done.stderr


def started(stack: ExitStack, machine: Machine, service: str, settings: str, *words: str) -> Role:
    """A role that goes on."""
    path, environment = machine.role(service, settings)
    return stack.enter_context(
        Role(words[0], path, *words[1:], python=machine.python, **environment)
    )


def logs(machine: Machine) -> str:
    """The last words of everybody."""
    found = [*machine.fleet.glob("*.log"), *machine.fleet.parent.glob("*.log")]
    return "\n".join(f"{path.name}: {path.read_text()[-2500:]}" for path in sorted(found))


def test_prepare_gives_each_key_to_one_user_and_keeps_what_is_there(tmp_path: Path) -> None:
    fleet = prepared(tmp_path, "north")
    keys = [*fleet.glob("certs/*.key"), fleet / "secrets" / "token"]
    before = {path: path.read_bytes() for path in [*keys, *fleet.glob("certs/*.pem")]}
    assert len(keys) == 11
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    if os.geteuid() == 0:
        mine = {"ca.key": fleet.stat().st_uid, "postgres.key": 999}
        owners = {path.name: path.stat().st_uid for path in keys}
        assert owners == {path.name: mine.get(path.name, 10001) for path in keys}
    assert "edge-south" not in (fleet / "nats" / "tenants.conf").read_text()
    prepare(fleet, "north", "south")
    assert {path: path.read_bytes() for path in before} == before
    assert (fleet / "certs" / "edge-south.key").is_file()
    assert "edge-south" in (fleet / "nats" / "tenants.conf").read_text()


def pending(machine: Machine) -> dict[str, int]:
    """What the exporter reads for `jetstream_consumer_num_pending`, by consumer of poses."""
    found: dict[str, int] = {}
    for port in machine.monitor.values():
        told = asked(f"http://127.0.0.1:{port}/jsz?accounts=true&streams=true&consumers=true")
        streams = [one for account in told["account_details"] for one in account["stream_detail"]]
        for stream in streams:
            if stream["name"] == "POSES":
                consumers = stream.get("consumer_detail", [])
                found |= {one["name"]: one["num_pending"] for one in consumers}
    return found


@pytest.mark.slow
def test_the_fleet_of_the_compose_file_stores_the_events_of_its_demo_site(tmp_path: Path) -> None:
    machine = Machine(prepared(tmp_path, "north", "south"))
    with ExitStack() as stack:
        running = stack.enter_context(brokers(machine))
        stack.enter_context(database(machine))
        health = [f"http://127.0.0.1:{port}/healthz" for port in machine.monitor.values()]
        wait_until(lambda: all(asked(one) == {"status": "ok"} for one in health), 30 * SLOWER)
        set_up(machine)
        worker = started(stack, machine, "worker", "worker.toml", "worker")
        started(stack, machine, "events", "events.toml", "events")
        started(stack, machine, "page", "page.toml", "events", "--serve")
        started(stack, machine, "edge", "edge.toml", "edge")
        token = (machine.fleet / "secrets" / "token").read_text().strip()
        events = partial(asked, f"http://127.0.0.1:{machine.page}/api/events", token)
        try:
            wait_until(lambda: bool((events() or {}).get("events")), 60 * SLOWER)
        except AssertionError:
            pytest.fail(logs(machine))
        assert len(pending(machine)) == SHARDS
        assert sum(pending(machine).values()) < 100
        assert worker.stop() == 0, logs(machine)
        prepare(machine.fleet, "north", "south", "west")
        running[0].send_signal(signal.SIGHUP)
        log = machine.fleet.parent / "nats-0.log"
        wait_until(lambda: "Reloaded server configuration" in log.read_text())
        assert "CN=edge-west" in (machine.fleet / "nats" / "tenants.conf").read_text()
        assert "Violation" not in logs(machine)
