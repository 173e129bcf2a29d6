"""PostgreSQL tables of a fleet's events, and their migrations."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from stepvad.errors import ConfigError

if TYPE_CHECKING:
    from asyncpg import Connection

logger = logging.getLogger(__name__)

LOCK = 0x53564144
"""Key of the advisory lock held during a migration."""

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

MIGRATIONS: tuple[str, ...] = (_FIRST, _QUICK, _REVIEWS, _TO_REVIEW)
"""Each upgrades the database by one version; the version is the number applied."""

GRANTS = {
    "stepvad_writer": """
GRANT USAGE ON SCHEMA stepvad TO stepvad_writer;
GRANT SELECT ON stepvad.schema_version TO stepvad_writer;
GRANT SELECT, INSERT, UPDATE, DELETE ON stepvad.events, stepvad.forgotten TO stepvad_writer;
""",
    "stepvad_reader": """
GRANT USAGE ON SCHEMA stepvad TO stepvad_reader;
GRANT SELECT ON stepvad.schema_version, stepvad.events TO stepvad_reader;
GRANT UPDATE (mark, reviewed, reviewed_by) ON stepvad.events TO stepvad_reader;
""",
}
"""Privileges of each role, if it exists: the reader may only review events."""


async def version(connection: Connection[Any]) -> int:
    """The number of migrations applied to the database."""
    if await connection.fetchval("SELECT to_regclass('stepvad.schema_version')") is None:
        return 0
    found = await connection.fetchval("SELECT max(version) FROM stepvad.schema_version")
    return int(found or 0)


async def check(connection: Connection[Any]) -> None:
    """Reject a database of another version."""
    found = await version(connection)
    if found > len(MIGRATIONS):
        raise ConfigError(
            f"database: expected tables of version {len(MIGRATIONS)} or older, got {found}",
            hint="install the version of stepvad that created it, or a newer one",
        )
    if found < len(MIGRATIONS):
        raise ConfigError(
            f"database: expected tables of version {len(MIGRATIONS)}, got {found or 'none'}",
            hint="run stepvad fleet events SETTINGS --migrate as a role that may create tables",
        )


async def migrate(connection: Connection[Any]) -> int:
    """Migrate the tables under a lock; return the number of steps."""
    await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
    try:
        async with connection.transaction():
            done = await version(connection)
            if done > len(MIGRATIONS):
                await check(connection)
            if done == 0:
                await connection.execute(
                    "CREATE SCHEMA IF NOT EXISTS stepvad; "
                    "CREATE TABLE IF NOT EXISTS stepvad.schema_version "
                    "(version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
                )
            for number, script in enumerate(MIGRATIONS[done:], start=done + 1):
                await connection.execute(script)
                await connection.execute(
                    "INSERT INTO stepvad.schema_version (version) VALUES ($1)", number
                )
            await _grant(connection)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", LOCK)
    steps = len(MIGRATIONS) - done
    if steps:
        logger.info("database migrated from version %d to %d", done, len(MIGRATIONS))
    return steps


async def _grant(connection: Connection[Any]) -> None:
    rows = await connection.fetch("SELECT rolname FROM pg_roles WHERE rolname LIKE 'stepvad_%'")
    for (role,) in rows:
        if role in GRANTS:
            await connection.execute(GRANTS[role])
