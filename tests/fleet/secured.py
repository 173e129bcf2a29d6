"""The servers of a fleet as they are shipped: TLS, certificates, accounts, roles."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepvad.fleet.broker.accounts import accounts
from stepvad.fleet.settings import BusSettings, FleetSettings, TenantSettings
from stepvad.fleet.subjects import Subjects
from tests.fleet.brokers import PROGRAM
from tests.fleet.postgres import SUPERUSER, PostgresServer
from tests.video.servers import SLOWER, free_port, wait_until

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
        self.tenants = [TenantSettings(name=site, sites=[site]) for site in sites]
        self.write_accounts()
        self.process: subprocess.Popen[bytes] | None = None

    def write_accounts(self) -> None:
        """The accounts of the tenants; the server takes them when it is reloaded."""
        (self._directory / "tenants.conf").write_text(accounts(self.tenants, Subjects()))

    def reload(self) -> None:
        """Tell the server to read its settings again, and wait until it has."""
        assert self.process is not None
        before = self.log().count("Reloaded server configuration")
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.log().count("Reloaded server configuration") > before)

    def admin_settings(self) -> FleetSettings:
        """What stepvad fleet setup is given."""
        facts = self.settings("admin").model_dump(exclude_none=True)
        return FleetSettings.model_validate(
            {"bus": facts, "tenants": [one.model_dump() for one in self.tenants]}
        )

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
