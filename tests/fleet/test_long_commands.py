"""Commands over a large table, which take longer than the limit of all others."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stepvad.fleet.events import migrations, postgres
from stepvad.fleet.events.migrations import LOCK, TABLES
from stepvad.fleet.events.postgres import connect
from stepvad.fleet.events.wanted import Wanted
from stepvad.fleet.events.writer import checked
from tests.fleet.messages import change, event, over
from tests.video.servers import SLOWER


COMMAND_S, LONGER_S = 0.5, 1.0
SLEEPING = """
SELECT count(*) FROM pg_stat_activity
WHERE state = 'active' AND query LIKE 'SELECT pg_sleep%' AND pid <> pg_backend_pid()
"""


@asynccontextmanager
async def session(dsn: str) -> AsyncIterator[Any]:
    import asyncpg

    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def migrated(dsn: str) -> None:
    async with connect(dsn) as events:
        await events.migrate()
        await events.write([change("end", over(event(1)))])


def test_a_migration_may_take_longer_than_other_commands_and_is_logged(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(migrations, "TABLES", f"SELECT pg_sleep({LONGER_S}); {TABLES}")
    monkeypatch.setattr(postgres, "COMMAND_S", COMMAND_S)
    caplog.set_level("INFO", "stepvad")

    async def run() -> bool:
        async with connect(dsn) as events, asyncio.timeout(10 * SLOWER):
            return await checked(events, asyncio.Event())

    assert asyncio.run(run())
    assert "retrying" not in caplog.text
    assert re.search(r"database: created the tables of version 1 in [\d.]+ s", caplog.text)


def test_commands_over_the_whole_table_wait_longer_than_others(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock that somebody else holds makes each of them take long."""
    asyncio.run(migrated(dsn))
    monkeypatch.setattr(postgres, "COMMAND_S", COMMAND_S)
    caplog.set_level("INFO", "stepvad")

    async def run() -> dict[str, Any]:
        async with session(dsn) as other, connect(dsn) as one, connect(dsn) as two:
            await other.execute(
                "BEGIN; LOCK stepvad.events, stepvad.forgotten; "
                f"SELECT pg_advisory_xact_lock({LOCK})"
            )
            works = {
                "migrate": one.migrate(),
                "scrub": one.scrub(),
                "retain": one.retain(),
                "delete": two.delete(Wanted(camera="a/b")),
                "events": two.events(Wanted(), limit=None),
                "reviews": two.reviews(),
            }
            tasks = [asyncio.create_task(work) for work in works.values()]
            await asyncio.sleep(LONGER_S)
            await other.execute("COMMIT")
            found = await asyncio.gather(*tasks, return_exceptions=True)
            return dict(zip(works, found, strict=True))

    failed = {name: one for name, one in asyncio.run(run()).items() if isinstance(one, Exception)}
    assert failed == {}
    assert "database: another program migrates it; waiting" in caplog.text


def test_a_server_that_vanishes_is_noticed_long_before_the_limit_of_a_long_command(
    dsn: str,
) -> None:
    async def run() -> tuple[int, int]:
        async with connect(dsn) as events, events._connection() as connection:
            line = connection._transport.get_extra_info("socket")
            return (
                line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                line.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
            )

    assert asyncio.run(run()) == (1, 10)


def test_a_table_that_is_in_use_is_not_scrubbed_and_nobody_waits_behind_it_for_long(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(migrated(dsn))
    monkeypatch.setattr(postgres, "SCRUB_LOCKED_S", 1)

    async def run() -> None:
        async with session(dsn) as other, connect(dsn) as events:
            await other.execute("BEGIN; LOCK stepvad.events IN ACCESS SHARE MODE")
            async with asyncio.timeout(10 * SLOWER):
                with pytest.raises(postgres.LockedError):
                    await events.scrub()
            await other.execute("COMMIT")

    asyncio.run(run())


def test_a_writer_that_is_stopped_in_a_migration_cancels_it(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "TABLES", f"SELECT pg_sleep(600); {TABLES}")

    async def run() -> None:
        async with session(dsn) as other, connect(dsn) as events:
            stopping = asyncio.Event()
            task = asyncio.create_task(checked(events, stopping))
            while await other.fetchval(SLEEPING) == 0:
                await asyncio.sleep(0.02)
            stopping.set()
            began = time.monotonic()
            assert not await task
            assert time.monotonic() - began < 5 * SLOWER
            while await other.fetchval(SLEEPING):
                assert time.monotonic() - began < 5 * SLOWER
                await asyncio.sleep(0.02)
            assert await migrations.version(other) == 0

    asyncio.run(run())
