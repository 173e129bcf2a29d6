"""The events of a fleet in PostgreSQL: tables set up and checked, connections, errors in words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import resources
from typing import Any

# Loaded by the fleet alone, where the database is spoken to.
import asyncpg  # noqa: TID253

from stepvad.errors import ConfigError, StepvadError

VERSION = 1
"""Version of the tables and functions in events.sql."""
CONNECT_S, COMMAND_S = 10.0, 60.0
"""Longest time to connect, and to do one thing."""
CLOSE_S = 2.0
LONG_S = 3600.0
"""Longest time for what reads whole tables."""
SESSION = {
    "application_name": "stepvad",
    # a client that was cut off must not keep what others wait for
    "idle_in_transaction_session_timeout": "10s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
LOCK = 0x53564144
"""Key of the advisory lock of whoever sets up."""
NEEDS_AN_OPERATOR = ("3D", "3F", "42")
"""Classes of errors: no such database, no such schema or table, no right to it."""
_FAILED = (
    *(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError),
    *(OSError, TimeoutError),
)

_GRANTS = """
SELECT rolname FROM pg_roles WHERE rolname = 'stepvad_writer'
    AND NOT has_function_privilege(rolname, 'stepvad.put(text[], text[])', 'EXECUTE')
UNION SELECT rolname FROM pg_roles WHERE rolname = 'stepvad_reader'
    AND NOT has_table_privilege(rolname, 'stepvad.events', 'SELECT')
"""
_MONTHS = """
SELECT to_char(month, 'YYYY-MM') FROM (
    SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date AS month) AS this
WHERE NOT EXISTS (SELECT FROM stepvad.months AS m WHERE m.month = this.month)
"""
_TWICE = """
SELECT count(*) FROM (
    SELECT FROM stepvad.events GROUP BY site, id HAVING count(*) > 1) AS twice
"""


class NoDatabaseError(StepvadError):
    """The database does not answer, or cannot do that now; try again later."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise errors of the database as ours: `ConfigError` if only an operator can end them."""
    try:
        yield
    except _FAILED as error:
        words = (error.strerror if isinstance(error, OSError) else str(error)) or repr(error)
        words = f"database: {words[:200]}"
        state = getattr(error, "sqlstate", None) or ""
        if state[:2] in NEEDS_AN_OPERATOR:
            hint = "run stepvad fleet setup as the owner; is events.dsn that of the right role?"
            raise ConfigError(words, hint=hint) from None
        if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
            raise ConfigError(
                f"events.dsn: expected postgresql://USER:PASSWORD@HOST/DATABASE, got: {error}",
                hint="special characters of a password are written as %XX",
            ) from None
        raise NoDatabaseError(words, hint="is it up, and is events.dsn right?") from None


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection for a block; raise `NoDatabaseError` if the database does not answer."""
    with translated():
        connection = await asyncpg.connect(
            dsn, timeout=CONNECT_S, command_timeout=COMMAND_S, server_settings=SESSION
        )
    try:
        yield connection
    finally:
        with suppress(*_FAILED):
            await connection.close(timeout=CLOSE_S)
        connection.terminate()


async def set_up(dsn: str, retention_days: float, *, check: bool = False) -> list[str]:
    """Make tables, functions, partitions and grants, as the owner; what was done, in words.

    `check`: change nothing; what is to be done, and events in two months.
    """
    async with connected(dsn) as connection:
        with translated():
            if not check:
                await connection.execute("SELECT pg_advisory_lock($1)", LOCK, timeout=LONG_S)
            found = await _missing(connection, retention_days)
            if found and not check:
                async with connection.transaction():
                    script = resources.files("stepvad.fleet").joinpath("events.sql").read_text()
                    await connection.execute(script, timeout=LONG_S)
                    await connection.execute("DELETE FROM stepvad.about")
                    about = "INSERT INTO stepvad.about VALUES ($1, $2)"
                    await connection.execute(about, VERSION, retention_days)
                    await connection.execute("SELECT stepvad.retain()", timeout=LONG_S)
            # the start of an event, which is part of its key, never changes at a site
            if check and await _version(connection):
                n = await connection.fetchval(_TWICE, timeout=LONG_S)
                found += [f"{n} events are in two months"] if n else []
    return [f"database: {one}" for one in found]


async def check_version(connection: asyncpg.Connection[Any]) -> None:
    """Raise `ConfigError` unless the tables are there, in the version that this program uses."""
    with translated():
        found = await _version(connection)
    if found != VERSION:
        raise ConfigError(
            f"database: expected tables of version {VERSION}, got {found or 'none'}",
            hint="run stepvad fleet setup, of the newest version installed, as the owner",
        )


async def _version(connection: asyncpg.Connection[Any]) -> int:
    """The version of the tables; 0 without tables."""
    if not await connection.fetchval("SELECT to_regclass('stepvad.about')"):
        return 0
    return await connection.fetchval("SELECT max(version) FROM stepvad.about") or 0


async def _missing(connection: asyncpg.Connection[Any], retention_days: float) -> list[str]:
    version = await _version(connection)
    if version == 0:
        return [f"tables of version {VERSION}"]
    if version > VERSION:
        await check_version(connection)
    kept = await connection.fetchval("SELECT retention_days FROM stepvad.about")
    found = [f"tables of version {VERSION} instead of {version}"] * (version != VERSION)
    if kept != retention_days:
        found.append(f"events kept for {retention_days:g} days instead of {kept:g}")
    found += [f"grants of {role}" for (role,) in await connection.fetch(_GRANTS)]
    found += [f"a partition of {month}" for (month,) in await connection.fetch(_MONTHS)]
    return found
