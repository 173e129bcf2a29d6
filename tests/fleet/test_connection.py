"""Connections to brokers: certificates, passwords, and brokers that refuse them."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.connection import Connection, UnavailableError, connected, tls_context
from stepvad.site.settings.sections import BrokerSettings, TlsFiles
from tests.fleet.servers import Broker, broker
from tests.fleet.test_deploy import certificates
from tests.video.servers import SLOWER


def tls_of(certs: Path) -> str:
    files = (
        f'cert_file: "{certs}/nats.pem", key_file: "{certs}/nats.key", ca_file: "{certs}/ca.pem"'
    )
    return f"tls {{ {files}, verify: true, timeout: 2 }}\n"


def settings(server: Broker, certs: Path, user: str | None = "north") -> BrokerSettings:
    files = {"ca": certs / "ca.pem"}
    if user is not None:
        files |= {"cert": certs / f"{user}.pem", "key": certs / f"{user}.key"}
    address = server.address.replace("nats://127.0.0.1", "tls://localhost")
    return BrokerSettings(servers=[address], tls=TlsFiles.model_validate(files))


def asked(server: Broker, certs: Path, user: str | None) -> bytes:
    """What a connection with the certificate of a user is answered."""

    async def ask() -> bytes:
        async with connected(settings(server, certs, user), "north") as connection:
            return await connection.request("$JS.API.INFO", b"")

    return asyncio.run(ask())


@pytest.mark.slow
def test_a_broker_that_refuses_the_certificate_is_said_to_be_unavailable(tmp_path: Path) -> None:
    certs = certificates(tmp_path / "ours", "north")
    others = certificates(tmp_path / "others", "north")
    shutil.copy(certs / "ca.pem", others / "ca.pem")
    with broker(tmp_path / "broker", tls_of(certs)) as server:
        assert b"limits" in asked(server, certs, "north")
        for of, user in ((certs, None), (others, "north")):
            with pytest.raises(UnavailableError, match="broker: expected an answer"):
                asked(server, of, user)


@pytest.mark.slow
def test_a_password_is_not_sent_to_a_broker_without_tls(tmp_path: Path, server: Broker) -> None:
    certs = certificates(tmp_path, "north")
    with pytest.raises(UnavailableError, match="got"):
        asked(server, certs, "north")


@pytest.mark.slow
def test_certificates_that_were_renewed_are_used_and_damaged_ones_are_not(tmp_path: Path) -> None:
    certs, renewed = (certificates(tmp_path / name, "north") for name in ("first", "second"))

    async def comes_back(server: Broker, connection: Connection) -> None:
        server.kill()
        server.start()
        for _ in range(round(100 * SLOWER)):
            with suppress(UnavailableError):
                assert await connection.request("$JS.API.INFO", b"")
                return
            await asyncio.sleep(0.1)
        pytest.fail("it did not come back")

    async def go(server: Broker) -> None:
        async with connected(settings(server, certs), "north") as connection:
            (certs / "north.key").write_text("damaged")
            await comes_back(server, connection)
            shutil.copytree(renewed, certs, dirs_exist_ok=True)
            await comes_back(server, connection)

    with broker(tmp_path / "broker", tls_of(certs)) as server:
        asyncio.run(go(server))


def test_a_certificate_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tls\.ca: expected a file that can be read"):
        tls_context(TlsFiles(ca=tmp_path / "ca.pem"))
