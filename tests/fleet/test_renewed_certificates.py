"""Certificates of a new authority while everything runs: nobody is restarted."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.events.postgres import NoDatabaseError, Wanted, connect
from tests.fleet.servers import (
    PostgresServer,
    SecuredBroker,
    dsn,
    make_certificates,
    make_roles,
    postgres_server,
    secure,
    secured_broker,
)
from tests.video.servers import SLOWER


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    return make_certificates(tmp_path, "north")


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """Of another authority, with other keys."""
    return make_certificates(tmp_path / "next", "north")


@pytest.fixture
def server(tmp_path: Path, certs: Path) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path, certs, "north") as made:
        yield made


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + 15 * SLOWER
    while not await happened():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.1)


def renew(here: Path, others: Path, *names: str) -> None:
    for name in names:
        shutil.copy(others / name, here / name)


def reload(server: SecuredBroker, others: Path) -> None:
    """New files, and what an operator sends."""
    assert server.process is not None
    renew(server._directory / "certs", others, "ca.pem", "nats.pem", "nats.key")
    os.kill(server.process.pid, signal.SIGHUP)


async def answers(bus: NatsBus) -> bool:
    try:
        await bus.lags()
    except UnavailableError:
        return False
    return True


def test_a_client_whose_connection_is_cut_is_back_with_new_certificates(
    server: SecuredBroker, certs: Path, others: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        async with connected(server.settings("admin"), "admin") as bus:
            await bus.setup()
            before = server.log().count("Reloaded server configuration")
            reload(server, others)

            async def reloaded() -> bool:
                return server.log().count("Reloaded server configuration") > before

            await until(reloaded)
            assert await answers(bus)  # the connection that there is goes on
            renew(certs, others, "ca.pem", "admin.pem", "admin.key")
            bus.client.abort()

            async def is_back() -> bool:
                return bus.connections > 0 and await answers(bus)

            await until(is_back)

    with caplog.at_level(logging.INFO):
        asyncio.run(go())
    assert "certificates renewed" in caplog.text


def test_a_file_that_is_half_written_changes_nothing(
    server: SecuredBroker, certs: Path, others: Path, caplog: pytest.LogCaptureFixture
) -> None:
    half = (others / "admin.pem").read_bytes()[:200]

    async def go() -> None:
        async with connected(server.settings("admin"), "admin") as bus:
            await bus.setup()
            breaks: list[Callable[[], object]] = [
                lambda: (certs / "admin.pem").write_bytes(half),
                lambda: renew(certs, others, "admin.pem"),  # the key is still the old one
                lambda: (certs / "ca.pem").write_bytes(b""),
                lambda: (certs / "admin.key").unlink(),
            ]
            for number, broken in enumerate(breaks):
                broken()
                bus.client.abort()

                async def is_back(number: int = number) -> bool:
                    return bus.connections > number and await answers(bus)

                await until(is_back)
            reload(server, others)
            renew(certs, others, "ca.pem", "admin.pem", "admin.key")
            bus.client.abort()

            async def is_back_again() -> bool:
                return bus.connections > 4 and await answers(bus)

            await until(is_back_again)

    with caplog.at_level(logging.INFO):
        asyncio.run(go())
    said = [
        one.getMessage() for one in caplog.records if "previous certificates" in one.getMessage()
    ]
    assert len(said) == 4
    assert not any(str(certs / "admin.key") in words and "BEGIN" in words for words in said)


@pytest.fixture
def database(certs: Path) -> Iterator[PostgresServer]:
    with postgres_server(prepare=lambda made: secure(made, certs)) as made:
        make_roles(made)
        yield made


def test_new_connections_to_the_database_use_new_certificates(
    database: PostgresServer, certs: Path, others: Path
) -> None:
    async def go() -> None:
        async with connect(dsn(database, certs, "stepvad_owner")) as events:
            await events.migrate()
            there = database.data / "certs"
            for name in ("ca.pem", "postgres.pem", "postgres.key"):
                (there / name).write_bytes((others / name).read_bytes())  # whose they are stays
            assert database.process is not None
            os.kill(database.process.pid, signal.SIGHUP)
            await asyncio.sleep(1)
            await events.check()  # the connection that there is goes on
            await cut(database)
            with pytest.raises(NoDatabaseError):
                await events.check()
            renew(certs, others, "stepvad_owner.pem")  # the key is still the old one
            with pytest.raises(NoDatabaseError):
                await events.check()
            renew(certs, others, "ca.pem", "stepvad_owner.key")
            assert await events.events(Wanted()) == []

    asyncio.run(go())


async def cut(database: PostgresServer) -> None:
    """End all other sessions."""
    connection = await asyncpg.connect(
        host=str(database.directory), port=database.port, user="admin", database="postgres"
    )
    try:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'stepvad_owner'"
        )
    finally:
        await connection.close()
