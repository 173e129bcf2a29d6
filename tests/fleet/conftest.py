"""What tests of a fleet share: clips in which something happens, and databases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from stepvad.benchmark.walkers import make_clips
from stepvad.poses import Clip
from tests.fleet.fleets import WorkerProcess
from tests.fleet.postgres import PostgresServer, postgres_server

_numbers = count()


@pytest.fixture(scope="session")
def scenes() -> list[Clip]:
    """Clips of twelve seconds; in most somebody does what is unusual."""
    return [clip for clip, _ in make_clips(6, seed=5, seconds=12.0, anomalies=True)]


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


@pytest.fixture
def workers() -> Iterator[list[WorkerProcess]]:
    """Workers that a test makes and starts; whatever happens, they end here."""
    made: list[WorkerProcess] = []
    yield made
    for one in made:
        one.kill()
