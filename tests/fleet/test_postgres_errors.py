"""Every error of PostgreSQL that the table knows; the worst of them from a real server."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import asyncpg
import pytest

from stepvad.fleet.events.postgres import FleetEvents, NoDatabaseError, connect
from stepvad.fleet.events.postgres_errors import BY_SQLSTATE, PostgresMeaning, by_class, meaning
from stepvad.fleet.events.wanted import Wanted
from tests.fleet.messages import change, event
from tests.video.servers import SLOWER

SERVER: tuple[tuple[type[Exception], PostgresMeaning | None], ...] = (
    (asyncpg.ConnectionFailureError, "retry"),
    (asyncpg.DatetimeFieldOverflowError, "data"),
    (asyncpg.NotNullViolationError, "data"),
    (asyncpg.ReadOnlySQLTransactionError, "retry"),
    (asyncpg.IdleInTransactionSessionTimeoutError, "retry"),
    (asyncpg.exceptions.TransactionTimeoutError, "retry"),
    (asyncpg.InvalidPasswordError, "retry"),
    (asyncpg.InvalidCatalogNameError, "settings"),
    (asyncpg.DeadlockDetectedError, "retry"),
    (asyncpg.SerializationError, "retry"),
    (asyncpg.InsufficientPrivilegeError, "settings"),
    (asyncpg.DiskFullError, "retry"),
    (asyncpg.TooManyConnectionsError, "retry"),
    (asyncpg.LockNotAvailableError, "retry"),
    (asyncpg.CannotConnectNowError, "retry"),
    (asyncpg.QueryCanceledError, "retry"),
    (asyncpg.PostgresIOError, "retry"),
    (asyncpg.UndefinedTableError, None),
    (asyncpg.InFailedSQLTransactionError, None),
)
CLIENT: tuple[tuple[Exception, PostgresMeaning | None], ...] = (
    (ConnectionRefusedError(111, "refused"), "retry"),
    (TimeoutError(), "retry"),
    (ssl.SSLCertVerificationError("not trusted"), "retry"),
    (asyncpg.exceptions.ClientConfigurationError("sslmode"), "settings"),
    (asyncpg.exceptions._base.DataError("an integer is required"), "data"),
    (ValueError("a string with a zero"), "data"),
    (asyncpg.InterfaceError("connection is closed"), "retry"),
    (asyncpg.exceptions.ProtocolError("unexpected"), "retry"),
    (KeyError("a fault of ours"), None),
)


@pytest.mark.parametrize(("kind", "wanted"), SERVER, ids=lambda one: getattr(one, "__name__", one))
def test_an_error_of_the_server_means_what_the_table_says(
    kind: type[Exception], wanted: PostgresMeaning | None
) -> None:
    assert meaning(kind("words")) == wanted


@pytest.mark.parametrize(("error", "wanted"), CLIENT, ids=lambda one: type(one).__name__)
def test_an_error_of_the_client_means_what_the_table_says(
    error: Exception, wanted: PostgresMeaning | None
) -> None:
    assert meaning(error) == wanted


def test_every_entry_of_the_tables_is_tried() -> None:
    states = {str(getattr(kind, "sqlstate", "")) for kind, _ in SERVER}
    tried = {state if state in BY_SQLSTATE else state[:2] for state in states}
    assert tried >= set(BY_SQLSTATE)
    first = {next((kind for kind, _ in by_class() if isinstance(e, kind)), None) for e, _ in CLIENT}
    # a TimeoutError is an OSError: its own line says so for those who read the table
    assert first >= {kind for kind, _ in by_class()} - {TimeoutError}


async def _rival(dsn: str) -> Any:
    """Another session, which never gives up first."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("SET deadlock_timeout = '1min'")
    await connection.execute("BEGIN")
    return connection


async def _lock(connection: Any, id: str) -> None:
    await connection.execute("UPDATE stepvad.events SET changed = now() WHERE id = $1", id)


async def _is_waiting(dsn: str) -> None:
    """Until another session waits for a row."""
    looking = await asyncpg.connect(dsn)
    try:
        async with asyncio.timeout(10 * SLOWER):
            while not await looking.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            ):
                await asyncio.sleep(0.02)
    finally:
        await looking.close()


def test_the_victim_of_a_deadlock_may_try_again(dsn: str) -> None:
    first, second = sorted([event(1), event(2)], key=lambda one: one.id)

    async def go() -> None:
        async with connect(dsn) as events:
            await events.migrate()
            changes = [change("new", first), change("new", second)]
            await events.write(changes)
            rival = await _rival(dsn)
            try:
                await _lock(rival, second.id)
                writing = asyncio.create_task(events.write(_later(changes)))
                await _is_waiting(dsn)
                await asyncio.wait_for(_lock(rival, first.id), 20 * SLOWER)
                with pytest.raises(NoDatabaseError, match="deadlock"):
                    await writing
            finally:
                await rival.close()
            await events.write(_later(changes))

    asyncio.run(go())


def test_two_writers_lock_their_rows_in_one_order(dsn: str) -> None:
    first, second = sorted([event(1), event(2)], key=lambda one: one.id)

    async def go() -> None:
        async with connect(dsn) as events:
            await events.migrate()
            changes = [change("new", second), change("new", first)]
            await events.write(changes)
            rival = await _rival(dsn)
            try:
                await _lock(rival, first.id)
                writing = asyncio.create_task(events.write(_later(changes)))
                await _is_waiting(dsn)
                await asyncio.wait_for(_lock(rival, second.id), 20 * SLOWER)
                await rival.execute("COMMIT")
                await asyncio.wait_for(writing, 20 * SLOWER)
            finally:
                await rival.close()

    asyncio.run(go())


def _later(changes: list[Any]) -> list[Any]:
    """Updates of the same events."""
    return [change("update", one.record, sequence=9, turn=5) for one in changes]


def test_a_server_that_only_reads_is_asked_again_over_new_connections(dsn: str) -> None:
    """As after a failover: old connections lead to the server that was demoted."""

    async def go() -> None:
        async with connect(dsn) as events:
            await events.migrate()
            before = await _sessions(events)
            await _set_read_only(dsn, True)
            await events._pool.expire_connections()
            with pytest.raises(NoDatabaseError, match="a server that writes"):
                await events.write([change("new", event(1))])
            await _set_read_only(dsn, False)
            await events.write([change("new", event(1))])
            assert await _sessions(events) != before
            assert len(await events.events(Wanted())) == 1

    asyncio.run(go())


async def _sessions(events: FleetEvents) -> int:
    async with events._pool.acquire() as connection:
        return connection.get_server_pid()


async def _set_read_only(dsn: str, on: bool) -> None:
    """For sessions that begin from now on; those that go on stay as they are."""
    name = dsn.rpartition("/")[2]
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute("SET default_transaction_read_only = off")
        value = "on" if on else "off"
        await connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only={value}")
    finally:
        await connection.close()
