"""What tests of a fleet share: a database of their own on a server that all use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from tests.fleet.postgres import PostgresServer, postgres_server

_numbers = count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for those that leave it running."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def dsn(postgres: PostgresServer) -> str:
    """An empty database."""
    name = f"test_{next(_numbers)}"
    asyncio.run(_create(postgres.dsn, name))
    return f"{postgres.dsn.rpartition('/')[0]}/{name}"


async def _create(dsn: str, name: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()
