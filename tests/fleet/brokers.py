"""Real NATS servers on the loopback interface, alone and as a cluster of three."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from stepvad.fleet.settings import BusSettings
from tests.video.servers import free_port, wait_until

HERE = Path(sys.executable).parent / "nats-server"
PROGRAM = str(HERE) if HERE.exists() else shutil.which("nats-server") or "nats-server"


class Broker:
    """A server in a process of its own, which may be killed, paused and started again."""

    def __init__(
        self,
        directory: Path,
        name: str = "n1",
        more: str = "",
        *,
        store: Path | None = None,
        payload: str = "16MB",
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name, self.port = name, free_port()
        self._log = directory / f"{name}.log"
        self._config = directory / f"{name}.conf"
        self._config.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{self.port}"\nmax_payload: {payload}\n'
            f'jetstream {{ store_dir: "{store or directory / name}", max_mem: 1GB, max_file: 4GB, '
            f"sync_interval: always }}\n{more}"
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "-c", str(self._config)], stdout=log, stderr=log
            )
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """kill -9, and nothing else than this process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)


@contextmanager
def broker(
    directory: Path, more: str = "", *, store: Path | None = None, payload: str = "16MB"
) -> Iterator[Broker]:
    """A server alone."""
    made = Broker(directory, more=more, store=store, payload=payload)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@contextmanager
def cluster(directory: Path, n: int = 3) -> Iterator[list[Broker]]:
    """Servers that replicate what they keep."""
    routes = [free_port() for _ in range(n)]
    known = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
    made = [
        Broker(
            directory,
            f"n{i + 1}",
            f'cluster {{ name: fleet, listen: "127.0.0.1:{port}", routes: [{known}] }}\n',
        )
        for i, port in enumerate(routes)
    ]
    try:
        for one in made:
            one.start()
        yield made
    finally:
        for one in made:
            with suppress(OSError):
                one.kill()


def bus_settings(brokers: Sequence[Broker], **more: object) -> BusSettings:
    """How to reach these servers."""
    facts: dict[str, object] = {
        "servers": [one.address for one in brokers],
        "replicas": 3 if len(brokers) == 3 else 1,
        "shards": 4,
        **more,
    }
    return BusSettings.model_validate(facts)
