"""What tests of a fleet share: brokers, and databases."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from stepvad.codec import encode
from stepvad.events.record import Record
from stepvad.fleet import database
from stepvad.fleet.outbox import EventMessage
from tests.fleet.served import Put, put_bodies
from tests.fleet.servers import Broker, PostgresServer, broker, postgres_server, set_up

_numbers = count()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Broker]:
    """A broker alone."""
    with broker(tmp_path / "broker") as made:
        yield made


@pytest.fixture
def fleet(server: Broker) -> Broker:
    """A broker with the streams of a fleet."""
    asyncio.run(set_up([server]))
    return server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for those that leave it running."""
    with postgres_server() as made:
        yield made


@pytest.fixture
def dsns(postgres: PostgresServer) -> Callable[[], str]:
    """Makes empty databases."""

    def make() -> str:
        name = f"test_{next(_numbers)}"
        asyncio.run(_create(postgres.dsn, name))
        return f"{postgres.dsn.rpartition('/')[0]}/{name}"

    return make


@pytest.fixture
def dsn(dsns: Callable[[], str]) -> str:
    """An empty database."""
    return dsns()


async def _create(dsn: str, name: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests run in loops of asyncio."""
    return "asyncio"


@pytest.fixture
def put(dsn: str) -> Put:
    """Stores events of a site, as the writer does."""
    asyncio.run(database.set_up(dsn, 90.0))

    def stored(site: str, *events: Record) -> None:
        bodies = [
            encode(EventMessage(type="new" if one.is_open else "end", site=site, event=one))
            for one in events
        ]
        asyncio.run(put_bodies(dsn, site, bodies))

    return stored
