"""What tests of a fleet share: clips in which something happens, and databases."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from stepvad.cli import main
from stepvad.evaluation.walkers import make_clips
from stepvad.poses import Clip
from tests.fleet.fleets import FleetCommand, WorkerProcess, several
from tests.fleet.results import Quiet, quiet
from tests.fleet.servers import PostgresServer, postgres_server

_numbers = count()


@pytest.fixture(scope="session")
def scenes() -> list[Clip]:
    """Clips of twelve seconds; in most somebody does what is unusual."""
    return [clip for clip, _ in make_clips(6, seed=5, seconds=12.0, anomalies=True)]


@pytest.fixture(scope="session")
def undisturbed(scenes: list[Clip]) -> list[Quiet]:
    """For each camera of `several` what it should say, which tests only read."""
    return [quiet([one]) for one in several(scenes)]


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> FleetCommand:
    """`stepvad` in this process: how a command ended, and what it said."""

    def run(*words: str | Path, **environment: str) -> tuple[int, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["stepvad", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), "".join(capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for those that leave it running."""
    with postgres_server() as server:
        yield server


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


@pytest.fixture
def workers() -> Iterator[list[WorkerProcess]]:
    """Workers that a test makes and starts; whatever happens, they end here."""
    made: list[WorkerProcess] = []
    yield made
    for one in made:
        one.kill()
