"""Real servers on the loopback interface: NATS, PostgreSQL, as shipped, too; disks that fill."""

from __future__ import annotations

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
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import mkdtemp
from urllib.request import urlopen

import pytest

from stepvad.fleet.settings import BusSettings, FleetSettings
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
    ) -> None:
        """`inside`: words before the command, which run it on another host."""
        self.host, self._inside = host, inside
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
        command = [str(self._programs / program), *words]
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
) -> Iterator[PostgresServer]:
    """A server that runs, else a test is skipped; its directory is short as a socket's path is."""
    if binaries() is None:
        pytest.skip("needs PostgreSQL's initdb")
    directory = Path(mkdtemp(prefix="pg-", dir=on))
    directory.chmod(0o755)
    server = PostgresServer(directory, *settings, host=host, inside=inside)
    try:
        prepare(server)
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


DEPLOY = Path(__file__).parents[2] / "deploy" / "fleet"


def make_certificates(directory: Path, *sites: str) -> Path:
    """Those of all roles, by the script that is shipped."""
    certs = directory / "certs"
    script = str(DEPLOY / "make-certificates")
    subprocess.run([script, str(certs), "--", *sites], check=True, capture_output=True)
    return certs


class SecuredBroker:
    """nats-server with the shipped configuration; only the port is the test's."""

    def __init__(self, directory: Path, certs: Path, *sites: str) -> None:
        self.certs, self.port = certs, free_port()
        self._directory = directory / "nats"
        shutil.copytree(DEPLOY / "nats", self._directory)
        shutil.copytree(certs, self._directory / "certs")
        self.write_users(*sites)
        self.process: subprocess.Popen[bytes] | None = None

    def write_users(self, *sites: str) -> None:
        """The users of the sites; the server takes them when it is reloaded."""
        done = subprocess.run([DEPLOY / "make-users", *sites], check=True, capture_output=True)
        (self._directory / "sites.conf").write_bytes(done.stdout)

    def reload(self) -> None:
        """Tell the server to read its settings again, and wait until it has."""
        assert self.process is not None
        before = self.log().count("Reloaded server configuration")
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log().count("Reloaded server configuration") > before)

    def admin_settings(self) -> FleetSettings:
        """What stepvad fleet setup is given."""
        return FleetSettings(bus=self.settings("admin"))

    def start(self) -> None:
        command = [PROGRAM, "-c", "nats.conf", "-p", str(self.port)]
        log = self._directory / "log.txt"
        with log.open("ab") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=file, cwd=self._directory)
        deadline = time.monotonic() + 10 * SLOWER
        while "Server is ready" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log(self) -> str:
        return (self._directory / "log.txt").read_text()

    @property
    def address(self) -> str:
        return f"tls://localhost:{self.port}"

    def settings(self, role: str) -> BusSettings:
        """How a role finds it."""
        return BusSettings.model_validate(
            {
                "servers": [self.address],
                "shards": 4,
                "inbox": f"_INBOX.{role}",
                "tls": {
                    "ca": self.certs / "ca.pem",
                    "cert": self.certs / f"{role}.pem",
                    "key": self.certs / f"{role}.key",
                },
            }
        )

    def section(self, role: str, section: str = "bus") -> str:
        """The same as text."""
        files = "\n".join(
            f'{name} = "{self.certs / file}"'
            for name, file in (("ca", "ca.pem"), ("cert", f"{role}.pem"), ("key", f"{role}.key"))
        )
        return (
            f'[{section}]\nservers = ["{self.address}"]\nshards = 4\ninbox = "_INBOX.{role}"\n'
            f"[{section}.tls]\n{files}\n"
        )


@contextmanager
def secured_broker(directory: Path, certs: Path, *sites: str) -> Iterator[SecuredBroker]:
    made = SecuredBroker(directory, certs, *sites)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def secure(server: PostgresServer, certs: Path) -> None:
    """Give a server that is not started yet the shipped settings; its superuser stays local."""
    there = server.data / "certs"
    there.mkdir()
    for name in ("ca.pem", "postgres.pem", "postgres.key"):
        shutil.copy(certs / name, there / name)
    hba = (DEPLOY / "postgres" / "pg_hba.conf").read_text()
    # the superuser of the tests has another name, and no account of the system
    own = f"local all {SUPERUSER} trust\n"
    (server.data / "pg_hba.conf").write_text(own + hba)
    shutil.copy(DEPLOY / "postgres" / "postgresql.conf", server.data / "fleet.conf")
    with (server.data / "postgresql.conf").open("a") as file:
        file.write("\ninclude 'fleet.conf'\n")
    if os.geteuid() == 0:
        for path in (there, *there.iterdir(), server.data / "fleet.conf"):
            shutil.chown(path, "postgres", "postgres")
            path.chmod(0o700 if path.is_dir() else 0o600)


def make_roles(server: PostgresServer) -> None:
    """Roles and database, by the file that is shipped."""
    psql = shutil.which("psql") or "psql"
    subprocess.run(
        [
            *(psql, "-q", "-v", "ON_ERROR_STOP=1", "-h", str(server.directory)),
            *("-p", str(server.port), "-U", SUPERUSER, "-d", "postgres"),
            *("-f", str(DEPLOY / "postgres" / "roles.sql")),
        ],
        check=True,
        capture_output=True,
    )


def dsn(server: PostgresServer, certs: Path, role: str, *, mode: str = "verify-full") -> str:
    """The address of the database for a role."""
    files = f"sslrootcert={certs}/ca.pem&sslcert={certs}/{role}.pem&sslkey={certs}/{role}.key"
    return f"postgresql://{role}@localhost:{server.port}/stepvad?sslmode={mode}&{files}"


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system of a few megabytes."""

    path: Path

    def fill(self) -> None:
        """Leave no byte free."""
        with (self.path / "fills").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        """Give the space back."""
        (self.path / "fills").unlink()


@contextmanager
def small_disk(mb: int) -> Iterator[Disk]:
    """A disk of its own, where mounting is allowed; else the test is skipped."""
    path = Path(mkdtemp(prefix="disk-"))
    path.chmod(0o755)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mb}m,mode=755", "none", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        problem = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        problem = str(error)
    if problem:
        path.rmdir()
        pytest.skip(f"a small disk cannot be mounted: {problem}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()
