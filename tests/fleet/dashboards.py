"""The dashboard of a fleet, and a real Prometheus to ask its questions."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fleet.charts import tool
from tests.fleet.deployed import FLEET
from tests.video.servers import free_port, wait_until


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
