"""PostgreSQL tables of a fleet's events, and their migrations.

Programs of two versions share the tables during a rolling upgrade. `stepvad.schema_version` holds
the migrations that older programs do not survive: its highest number is the oldest program that
works. `stepvad.additions` holds those that they do survive.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from stepvad.errors import ConfigError
from stepvad.fleet.events.tenant_tables import GRANTS, TENANTS

if TYPE_CHECKING:
    from asyncpg import Connection

logger = logging.getLogger(__name__)

LOCK = 0x53564144
"""Key of the advisory lock held during a migration."""
LONG_COMMAND_S = 6 * 3600.0
"""Limit of a command that may read or rewrite a whole table, of hundreds of millions of events.

A limit that such a command exceeds is worse than none: it is rolled back and begins again, without
end, and holds its locks meanwhile.
"""

_FIRST = """
CREATE TABLE stepvad.events (
    id text PRIMARY KEY,
    site text NOT NULL,
    camera text NOT NULL,
    label text NOT NULL,
    severity text NOT NULL,
    start_time timestamptz NOT NULL,
    end_time timestamptz,
    top_score double precision NOT NULL,
    record jsonb NOT NULL,
    rank integer NOT NULL,
    turn bigint NOT NULL,
    first_sequence bigint NOT NULL,
    last_sequence bigint NOT NULL,
    changed timestamptz NOT NULL DEFAULT now(),
    marked timestamptz,
    CHECK ((rank = 2) = (end_time IS NOT NULL))
);
CREATE INDEX events_by_time ON stepvad.events (start_time, id);
CREATE INDEX events_by_camera ON stepvad.events (site, camera, start_time, id);
CREATE INDEX events_by_end ON stepvad.events (end_time);
CREATE INDEX events_open ON stepvad.events (changed) WHERE end_time IS NULL;
CREATE INDEX events_marked ON stepvad.events (marked) WHERE marked IS NOT NULL;
CREATE TABLE stepvad.forgotten (
    id text PRIMARY KEY,
    deleted timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX forgotten_by_time ON stepvad.forgotten (deleted);
"""

_QUICK = """
CREATE INDEX events_by_site ON stepvad.events (site, start_time, id);
CREATE INDEX events_by_place ON stepvad.events (site, camera);
"""
"""For the page: the latest events of a site with few, and the count per camera."""

_REVIEWS = """
ALTER TABLE stepvad.events ADD COLUMN mark text CHECK (mark IN ('normal', 'right'));
ALTER TABLE stepvad.events ADD COLUMN reviewed timestamptz;
ALTER TABLE stepvad.events ADD COLUMN reviewed_by text NOT NULL DEFAULT '';
UPDATE stepvad.events SET mark = 'normal', reviewed = marked WHERE marked IS NOT NULL;
CREATE INDEX events_reviewed ON stepvad.events (reviewed) WHERE reviewed IS NOT NULL;
DROP INDEX stepvad.events_marked;
ALTER TABLE stepvad.events DROP COLUMN marked;
"""
"""What was said of an event, when and by whom."""

_TO_REVIEW = """
CREATE INDEX events_to_review ON stepvad.events (start_time, id) WHERE reviewed IS NULL;
"""
"""Events that nobody has seen are counted and listed without reading the others."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the tables."""

    script: str
    is_additive: bool = False
    """Whether programs that do not know it go on working."""


MIGRATIONS: tuple[Migration, ...] = (
    Migration(_FIRST),
    Migration(_QUICK),
    Migration(_REVIEWS),
    Migration(_TO_REVIEW),
    Migration(TENANTS, is_additive=True),
)
"""Each upgrades the database by one version; the version is the number applied."""

_VERSIONS = """
CREATE SCHEMA IF NOT EXISTS stepvad;
CREATE TABLE IF NOT EXISTS stepvad.schema_version
    (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS stepvad.additions
    (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now());
"""
_SAFELY = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '20s'"
"""Names mean the same whoever migrates; a lock that somebody holds for long stops nobody else."""


class TablesVersion(NamedTuple):
    """What was applied to a database."""

    applied: int
    """The number of migrations."""
    oldest: int
    """The oldest program, by the number of migrations it knows, that works with the tables."""


async def version(connection: Connection[Any]) -> TablesVersion:
    """What was applied to the database."""
    found = []
    for table in ("schema_version", "additions"):
        is_there = await connection.fetchval(f"SELECT to_regclass('stepvad.{table}')")
        highest = f"SELECT max(version) FROM stepvad.{table}"  # noqa: S608  constant parts
        found.append(await connection.fetchval(highest) if is_there else None)
    oldest, added = (int(one or 0) for one in found)
    return TablesVersion(max(oldest, added), oldest)


async def check(connection: Connection[Any]) -> None:
    """Reject a database that this program does not work with."""
    found, known = await version(connection), len(MIGRATIONS)
    if found.oldest > known:
        raise ConfigError(
            f"database: expected tables for version {known}, got {found.applied}, "
            f"which need {found.oldest} or newer",
            hint="install the version of stepvad that created it, or a newer one",
        )
    if found.applied < known:
        raise ConfigError(
            f"database: expected tables of version {known}, got {found.applied or 'none'}",
            hint="run stepvad fleet events SETTINGS --migrate as a role that may create tables",
        )


async def migrate(connection: Connection[Any]) -> int:
    """Migrate the tables under a lock; return the number of steps.

    A program that is older than the tables leaves them, and their privileges, alone.
    """
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
        logger.info("database: another program migrates it; waiting")
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK, timeout=LONG_COMMAND_S)
    try:
        async with connection.transaction():
            await connection.execute(_SAFELY)
            done = (await version(connection)).applied
            if done < len(MIGRATIONS):
                await _upgrade(connection, done)
            await check(connection)
            if done <= len(MIGRATIONS):
                await _grant(connection)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", LOCK)
    steps = max(len(MIGRATIONS) - done, 0)
    if steps:
        logger.info("database migrated from version %d to %d", done, len(MIGRATIONS))
    return steps


async def _upgrade(connection: Connection[Any], done: int) -> None:
    await connection.execute(_VERSIONS)
    for number, step in enumerate(MIGRATIONS[done:], start=done + 1):
        logger.info("database: migration %d of %d started", number, len(MIGRATIONS))
        began = time.monotonic()
        await connection.execute(step.script, timeout=LONG_COMMAND_S)
        took_s = time.monotonic() - began
        logger.info("database: migration %d of %d took %.1f s", number, len(MIGRATIONS), took_s)
        table = "additions" if step.is_additive else "schema_version"
        await connection.execute(
            f"INSERT INTO stepvad.{table} (version) VALUES ($1)",  # noqa: S608  one of two tables
            number,
        )


async def _grant(connection: Connection[Any]) -> None:
    rows = await connection.fetch("SELECT rolname FROM pg_roles WHERE rolname LIKE 'stepvad_%'")
    for (role,) in rows:
        if role in GRANTS:
            await connection.execute(GRANTS[role])
