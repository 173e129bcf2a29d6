"""The fleet of the compose file without containers: its commands and files on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.fleet.brokers import PROGRAM
from tests.fleet.postgres import PostgresServer
from tests.images import python_of
from tests.pages import ROOT
from tests.video.servers import free_port

yaml = pytest.importorskip("yaml")
FLEET = ROOT / "deploy" / "fleet"
BROKERS = ("nats-0", "nats-1", "nats-2")


@cache
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FLEET / "compose.yaml").read_text("utf-8"))["services"]
    return found


def prepared(directory: Path, *sites: str) -> Path:
    """A copy of deploy/fleet after `prepare SITE ...`."""
    copy = directory / "fleet"
    shutil.copytree(FLEET, copy, ignore=shutil.ignore_patterns("certs", "secrets", "models"))
    prepare(copy, *sites)
    return copy


def prepare(fleet: Path, *sites: str) -> None:
    """What `docker compose run prepare SITE ...` does."""
    environment = {"FLEET": str(fleet), "VOLUMES": f"{fleet}-none", "PYTHON": sys.executable}
    environment["HOSTS"] = "fleet.example.org 192.0.2.7"
    done = subprocess.run(
        [fleet / "prepare", *sites], env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


class Machine:
    """Where everything of a fleet listens, and how its files are rewritten for that."""

    def __init__(self, fleet: Path) -> None:
        self.fleet = fleet
        self.python = python_of("stepvad-fleet", fleet.parent / "image")
        self.client = {name: free_port() for name in BROKERS}
        self.cluster = {name: free_port() for name in BROKERS}
        self.monitor = {name: free_port() for name in BROKERS}
        self.page, self.database = free_port(), 0

    def here(self, text: str) -> str:
        """A text whose addresses and paths are those of this machine."""
        for name in BROKERS:
            text = text.replace(f"{name}.nats:4222", f"127.0.0.1:{self.client[name]}")
            text = text.replace(f"{name}.nats:6222", f"127.0.0.1:{self.cluster[name]}")
        text = text.replace("@postgres:5432/", f"@127.0.0.1:{self.database}/")
        text = text.replace("0.0.0.0:9100", f"127.0.0.1:{free_port()}")
        is_published = 'host = "0.0.0.0"' in text  # the page of the fleet, not that of an edge
        port = self.page if is_published else free_port()
        text = text.replace("port = 8080", f"port = {port}")
        text = text.replace('host = "0.0.0.0"', 'host = "127.0.0.1"')
        text = text.replace("/run/secrets/", f"{self.fleet}/secrets/")
        text = text.replace('"/models/', f'"{self.fleet}/models/')
        text = text.replace('"/data"', f'"{self.fleet.parent}/data"')
        text = text.replace("/etc/nats/", f"{self.fleet}/nats/")
        return text.replace("/etc/stepvad/", f"{self.fleet}/")

    def broker(self, name: str) -> list[str]:
        """The command of a broker in the compose file."""
        words = [self.here(word) for word in services()[name]["command"]]
        assert words[0] == "nats-server"
        words[words.index("-a") + 1] = "127.0.0.1"
        words[words.index("-m") + 1] = str(self.monitor[name])
        more = ["-p", str(self.client[name]), "--cluster", f"tls://127.0.0.1:{self.cluster[name]}"]
        return [PROGRAM, *words[1:], *more]

    def role(self, service: str, settings: str) -> tuple[Path, dict[str, str]]:
        """The settings of a role, and its environment."""
        path = self.fleet / settings
        path.write_text(self.here(path.read_text("utf-8")), "utf-8")
        given = services()[service].get("environment", {})
        return path, {name: self.here(str(value)) for name, value in given.items()}


@contextmanager
def brokers(machine: Machine) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The three brokers."""
    running = []
    try:
        for name in BROKERS:
            place = machine.fleet.parent / name
            place.mkdir()
            (place / "certs").symlink_to(machine.fleet / "certs")
            with (machine.fleet.parent / f"{name}.log").open("wb") as log:
                command = machine.broker(name)
                known = os.environ | services()[name]["environment"]
                running.append(
                    subprocess.Popen(command, cwd=place, env=known, stdout=log, stderr=log)
                )
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


class Database(PostgresServer):
    """PostgreSQL with the files and arguments of the compose file."""

    def __init__(self, directory: Path, fleet: Path) -> None:
        directory.chmod(0o755)
        with patch("tests.fleet.postgres.SUPERUSER", "postgres"):
            super().__init__(directory)
        self.files = directory / "etc"
        shutil.copytree(fleet / "postgres", self.files)
        shutil.copytree(fleet / "certs", self.files / "certs")
        for path in [self.files, *self.files.rglob("*")]:
            if os.geteuid() == 0:
                shutil.chown(path, "postgres", "postgres")
            path.chmod(0o700 if path.is_dir() else 0o600)
        words = services()["postgres"]["command"]
        assert [words[0], *{*words[1::2]}] == ["postgres", "-c"]
        given = [re.sub("^(.*=)/etc/stepvad/", rf"\g<1>{self.files}/", one) for one in words[2::2]]
        given.remove("listen_addresses=*")  # here on this machine alone
        self.settings = given

    def run_sql(self, name: str) -> None:
        """As docker-entrypoint-initdb.d does it: the superuser, on this machine."""
        words = ["-v", "ON_ERROR_STOP=1", "-h", str(self.directory), "-p", str(self.port)]
        words += ["-U", "postgres", "-d", "postgres", "-f", str(self.files / name)]
        command = self._as_user("psql", *words)
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.directory)
        assert done.returncode == 0, done.stderr
