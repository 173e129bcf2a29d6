"""Real servers on the loopback interface: NATS, PostgreSQL, as shipped, too."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from tempfile import mkdtemp
from urllib.request import urlopen

import pytest

from stepvad.fleet import streams
from stepvad.fleet.connection import UnavailableError, connected
from stepvad.fleet.settings import StreamSettings
from stepvad.site.settings.sections import BrokerSettings
from tests.video.servers import SLOWER, free_port, wait_until

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
        self.program = PROGRAM
        self.name, self.port = name, port or free_port()
        self._monitor = free_port()
        self._host, self._inside = host, inside
        self.log = directory / f"{name}.log"
        self._config = directory / f"{name}.conf"
        self._config.write_text(
            f'server_name: {name}\nlisten: "{host}:{self.port}"\nmax_payload: {payload}\n'
            f'http: "{host}:{self._monitor}"\n'
            f'{JETSTREAM} store_dir: "{store or directory / name}", max_mem: 1GB, max_file: 16GB, '
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
                [*self._inside, self.program, "-c", str(self._config)], stdout=log, stderr=log
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


def broker_settings(brokers: Sequence[Broker], **more: object) -> BrokerSettings:
    """How to reach these servers."""
    return BrokerSettings.model_validate({"servers": [one.address for one in brokers], **more})


async def set_up(brokers: Sequence[Broker], **sizes: object) -> None:
    """Make the streams of a fleet, once brokers have found each other."""
    settings = StreamSettings.model_validate({"replicas": len(brokers), **sizes})
    async with connected(broker_settings(brokers), "admin") as admin:
        for _ in range(round(100 * SLOWER)):
            with suppress(UnavailableError):
                await streams.set_up(admin, settings)
                return
            await asyncio.sleep(0.2)
    pytest.fail("the streams of the fleet could not be made")


SUPERUSER = "admin"
_FAST = ("fsync=off", "full_page_writes=off")


def binaries() -> Path | None:
    """Where initdb and postgres are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    there = shutil.which("initdb")
    return None if there is None else Path(there).parent


class PostgresServer:
    """A server in a directory of its own; it refuses root, so another user runs it."""

    def __init__(
        self,
        directory: Path,
        *settings: str,
        host: str = "127.0.0.1",
        inside: Sequence[str] = (),
        env: Sequence[str] = (),
    ) -> None:
        """`inside`: words before the command, which run it on another host; `env`: NAME=VALUE."""
        self.host, self._inside = host, inside
        self._env = ["env", *env] if env else []
        self.directory = directory
        self.data = directory / "data"
        self.port = free_port()
        self.settings = [*_FAST, *settings]
        self.process: subprocess.Popen[bytes] | None = None
        self._programs = binaries() or Path()
        if os.geteuid() == 0:
            shutil.chown(directory, "postgres", "postgres")
        made = subprocess.run(
            self._as_user("initdb", "-D", str(self.data), "-U", SUPERUSER, "-A", "trust", "-N"),
            capture_output=True,
            cwd=directory,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
        )
        assert made.returncode == 0, made.stderr.decode()

    @property
    def dsn(self) -> str:
        return f"postgresql://{SUPERUSER}@{self.host}:{self.port}/postgres"

    def start(self) -> None:
        options = [part for one in self.settings for part in ("-c", one)]
        command = self._as_user(
            *("postgres", "-D", str(self.data), "-p", str(self.port), "-k", str(self.directory)),
            *("-c", f"listen_addresses={self.host}", *options),
        )
        with (self.directory / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)
        ready = [str(self._programs / "pg_isready"), "-q", "-h", self.host, "-p", str(self.port)]
        deadline = time.monotonic() + 20 * SLOWER
        while subprocess.call(ready):
            assert time.monotonic() < deadline, (self.directory / "log.txt").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """As kill -9 does, the server and all that it started; stopped, it starts no more."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGSTOP)
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = [self.process.pid, *map(int, children.read_text().split())]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)  # which ends sessions, too
            self.process.wait(20 * SLOWER)
            self.process = None

    def _as_user(self, program: str, *words: str) -> Sequence[str]:
        command = [*self._env, str(self._programs / program), *words]
        if os.geteuid() != 0:
            return [*self._inside, *command]
        user = pwd.getpwnam("postgres")
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        return [*self._inside, "setpriv", *ids, *command]


@contextmanager
def postgres_server(
    *settings: str,
    prepare: Callable[[PostgresServer], None] = lambda server: None,
    on: Path | None = None,
    host: str = "127.0.0.1",
    inside: Sequence[str] = (),
    env: Sequence[str] = (),
) -> Iterator[PostgresServer]:
    """A server that runs, else a test is skipped; its directory is short as a socket's path is."""
    if binaries() is None:
        pytest.skip("needs PostgreSQL's initdb")
    directory = Path(mkdtemp(prefix="pg-", dir=on))
    directory.chmod(0o755)
    server = PostgresServer(directory, *settings, host=host, inside=inside, env=env)
    try:
        prepare(server)
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
