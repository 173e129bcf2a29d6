"""The centre of a fleet and a site in containers, as the chart runs them."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepvad.fleet import plan
from tests.fleet.servers import Broker, PostgresServer, postgres_server
from tests.fleet.test_deploy import FLEET, certificates
from tests.video.servers import wait_until

IMAGE = "localhost/stepvad-fleet:0.1.0"
PODMAN = shutil.which("podman")
RUN = [
    *("--runtime", "runc", "--cgroup-manager=cgroupfs", "run", "--rm", "--network=host"),
    *("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--user=10001:10001"),
    *("--tmpfs=/tmp", "--tmpfs=/cache:mode=1777"),
]


def missing() -> str:
    """Why containers cannot run here; empty if they can."""
    if PODMAN is None or os.geteuid() != 0:
        return "needs podman, as root"
    there = subprocess.run([PODMAN, "image", "exists", IMAGE], capture_output=True)
    return f"needs the image {IMAGE}, built with deploy/Dockerfile" if there.returncode else ""


def command(directory: Path, name: str, *words: str, **env: str) -> list[str]:
    facts = [f"--env={key}={value}" for key, value in env.items()]
    mounts = [f"--volume={directory}:/fleet", "--workdir=/fleet", f"--name=stepvad-test-{name}"]
    return [f"{PODMAN}", *RUN, *facts, *mounts, IMAGE, *words]


@contextmanager
def container(directory: Path, name: str, *words: str, **env: str) -> Iterator[Path]:
    """A container that runs until the end of the block; its log."""
    log = directory / f"{name}.log"
    with log.open("wb") as file:
        words = (*command(directory, name, *words, **env),)
        process = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        yield log
    finally:
        subprocess.run(
            [f"{PODMAN}", "stop", "-t", "10", f"stepvad-test-{name}"], capture_output=True
        )
        process.wait(30)


def secured(directory: Path) -> Broker:
    """A broker with the shipped rights: a certificate for everyone."""
    text = (FLEET / "nats" / "nats.conf").read_text("utf-8")
    start = text.index("tls {")
    tls = text[start : text.index("}", start) + 1].replace("certs/", f"{directory}/certs/")
    return Broker(directory, more=tls + "\n" + (directory / "accounts.conf").read_text("utf-8"))


async def ended(dsn: str) -> int:
    import asyncpg

    db = await asyncpg.connect(dsn)
    try:
        query = "SELECT count(*) FROM stepvad.events WHERE site = 'north' AND end_time IS NOT NULL"
        return int(await db.fetchval(query))
    finally:
        await db.close()


@pytest.mark.long
def test_an_event_of_the_demo_reaches_the_database_through_containers(tmp_path: Path) -> None:
    if problem := missing():
        pytest.skip(problem)
    with postgres_server() as server:
        play(tmp_path, server)


def play(directory: Path, server: PostgresServer) -> None:
    sites = plan.read_cameras(FLEET / "cameras.csv")
    certificates(directory, "north")
    plan.write_plan(directory, sites, ["tls://localhost:4222"])
    broker = secured(directory)
    servers = [f"tls://localhost:{broker.port}"]
    (directory / "fleet.toml").unlink()
    plan.write_plan(directory, sites, servers)
    path = directory / "sites" / "north.toml"
    text = path.read_text().replace('"certs/', '"../certs/')
    # Debian's Python in the image of a test is of another version
    packages = "/opt/stepvad/lib/python3.11/site-packages"
    text = re.sub(r"/opt/stepvad/lib/python3\.\d+/site-packages", packages, text)
    path.write_text(text + "[web]\nenabled = false\n")
    for one in [directory, *directory.rglob("*")]:
        os.chown(one, 10001, 10001)
    broker.start()
    try:
        dsn = {"STEPVAD_EVENTS_DSN": server.dsn}
        setup = command(directory, "setup", "fleet", "setup", "fleet.toml", **dsn)
        done = subprocess.run(setup, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        page = ("fleet", "serve", "fleet.toml")
        with (
            container(directory, "serve", *page, **dsn),
            container(directory, "site", "watch", "sites/north.toml"),
        ):
            wait_until(lambda: asyncio.run(ended(server.dsn)) > 0, 180)
    finally:
        broker.kill()
