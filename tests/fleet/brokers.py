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
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

from stepvad.fleet.settings import BusSettings
from tests.video.servers import free_port, wait_until

HERE = Path(sys.executable).parent / "nats-server"
PROGRAM = str(HERE) if HERE.exists() else shutil.which("nats-server") or "nats-server"

JETSTREAM = "jetstream {"
RELOADED = "Reloaded server configuration"


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
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        """`inside`: words before the command, which run it on another host."""
        directory.mkdir(parents=True, exist_ok=True)
        self.name, self.port = name, port or free_port()
        self._monitor = free_port()
        self._host, self._inside = host, inside
        self.log = directory / f"{name}.log"
        self._config = directory / f"{name}.conf"
        self._config.write_text(
            f'server_name: {name}\nlisten: "{host}:{self.port}"\nmax_payload: {payload}\n'
            f'http: "{host}:{self._monitor}"\n'
            f'{JETSTREAM} store_dir: "{store or directory / name}", max_mem: 1GB, max_file: 4GB, '
            f"sync_interval: always }}\n{more}"
        )
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"nats://{self._host}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it listens."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self._inside, PROGRAM, "-c", str(self._config)], stdout=log, stderr=log
            )
        wait_until(self._listens)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex((self._host, self.port)) == 0

    def is_healthy(self) -> bool:
        """Whether it has caught up with all its streams; until then its copies count as lost."""
        try:
            with urlopen(f"http://{self._host}:{self._monitor}/healthz", timeout=2) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9, and nothing else than this process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def restart_jetstream(self) -> None:
        """Switch JetStream off and on again by two reloads; clients stay connected.

        One without a change is enough for a broker that switched JetStream off by itself.
        """
        told = self._config.read_text()
        reloads = self.log.read_text().count(RELOADED)
        for n, words in enumerate(
            (told.replace(JETSTREAM, f"{JETSTREAM} enabled: false,"), told), 1
        ):
            self._config.write_text(words)
            self.send(signal.SIGHUP)
            wait_until(lambda n=n: self.log.read_text().count(RELOADED) == reloads + n)  # type: ignore[misc]

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
def cluster(
    directory: Path, n: int = 3, *, first_store: Path | None = None
) -> Iterator[list[Broker]]:
    """Servers that replicate what they keep; the first may keep it elsewhere."""
    routes = [free_port() for _ in range(n)]
    known = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in routes)
    made = [
        Broker(
            directory,
            f"n{i + 1}",
            f'cluster {{ name: fleet, listen: "127.0.0.1:{port}", routes: [{known}] }}\n',
            store=None if i else first_store,
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
