"""A real PostgreSQL on the loopback interface, which tests may kill and start again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.video.servers import SLOWER, free_port

SUPERUSER = "admin"
_FAST = ("fsync=off", "full_page_writes=off")


def binaries() -> Path | None:
    """Where initdb and postgres are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    there = shutil.which("initdb")
    return None if there is None else Path(there).parent


needs_postgres = pytest.mark.skipif(binaries() is None, reason="needs PostgreSQL's initdb")


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
    """A server that runs; its directory is short, because a socket's path is."""
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
