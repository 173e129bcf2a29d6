"""The files of deploy/fleet: chart, dashboard, and compose's services without containers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.fleet.servers import PROGRAM, PostgresServer
from tests.pages import ROOT
from tests.requirements import python_of
from tests.video.servers import free_port, wait_until

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
        with patch("tests.fleet.servers.SUPERUSER", "postgres"):
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


CHART = FLEET / "chart"
VARIANTS = {
    "as it comes": (),
    "scaled by Kubernetes": ("--set", "autoscaling.kind=hpa"),
    "not scaled, open to edges": (
        *("--set", "autoscaling.kind=none,nats.public.type=LoadBalancer"),
        *("--set", "nats.storage.className=fast,imagePullSecrets[0].name=registry"),
    ),
    "with a database and a Prometheus of others": (
        *("--set", "postgres.enabled=false,prometheus.enabled=false,database.host=stepvad-rw"),
        *("--set", "networkPolicy.enabled=false"),
    ),
}


def tool(name: str) -> str:
    """A program beside Python or on the path; without it, a test is skipped."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"no {name}")
    return found


def said(*words: str | Path, code: int = 0) -> str:
    """What a program says."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@cache
def rendered(*more: str) -> str:
    """The manifests, as one text."""
    command = [tool("helm"), "template", "fleet", str(CHART), "--namespace", "stepvad", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def manifests(*more: str) -> list[dict[str, Any]]:
    """All resources; not to be changed."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(rendered(*more), loader) if one]


def of_kind(kind: str, *more: str) -> dict[str, dict[str, Any]]:
    """Resources of a kind, by name."""
    return {one["metadata"]["name"]: one for one in manifests(*more) if one["kind"] == kind}


def pods(*more: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod that the chart makes: its part, and its template."""
    for kind in ("Deployment", "StatefulSet", "Job"):
        for one in of_kind(kind, *more).values():
            template = one["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        (FLEET / "grafana" / "dashboard.json").read_text("utf-8")
    )["panels"]
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


class Prometheus:
    """A server that scrapes some addresses every second, with the rules of the fleet."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression; one that cannot be evaluated raises."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{query}", timeout=5) as page:
            told = json.load(page)
        found: list[dict[str, Any]] = told["data"]["result"]
        return found

    def value(self, expression: str) -> float | None:
        """The value of the first series; None without one."""
        found = self.ask(expression)
        return float(found[0]["value"][1]) if found else None

    def is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"{self._url}/-/ready", timeout=1).close()
        except OSError:
            return False
        return True


@contextmanager
def prometheus(directory: Path, jobs: Mapping[str, str]) -> Iterator[Prometheus]:
    """A server with jobs by name, each with an address."""
    program, port = tool("prometheus"), free_port()
    directory.mkdir()
    config = directory / "prometheus.yml"
    scraped = [
        {"job_name": name, "static_configs": [{"targets": [address]}]}
        for name, address in jobs.items()
    ]
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(FLEET / "prometheus" / "rules.yaml")],
                "scrape_configs": scraped,
            }
        )
    )
    words = [f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=log)
    made = Prometheus(port)
    try:
        wait_until(made.is_ready)
        yield made
    finally:
        process.terminate()
        process.wait(20)
