"""PostgreSQL tables of a fleet's events: created once, and refused if of another version."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from stepvad.errors import ConfigError

if TYPE_CHECKING:
    from asyncpg import Connection

logger = logging.getLogger(__name__)

VERSION = 1
"""Version of the tables."""
LOCK = 0x53564144
"""Key of the advisory lock held while the tables are created."""
LONG_COMMAND_S = 6 * 3600.0
"""Limit of a command that may read or rewrite a whole table, of hundreds of millions of events.

A limit that such a command exceeds is worse than none: it is rolled back and begins again, without
end, and holds its locks meanwhile.
"""

TABLES = """
CREATE SCHEMA IF NOT EXISTS stepvad;
CREATE TABLE stepvad.schema_version
    (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now());
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
    mark text CHECK (mark IN ('normal', 'right')),
    reviewed timestamptz,
    reviewed_by text NOT NULL DEFAULT '',
    CHECK ((rank = 2) = (end_time IS NOT NULL))
);
CREATE INDEX events_by_time ON stepvad.events (start_time, id);
CREATE INDEX events_by_camera ON stepvad.events (site, camera, start_time, id);
CREATE INDEX events_by_site ON stepvad.events (site, start_time, id);
CREATE INDEX events_by_place ON stepvad.events (site, camera);
CREATE INDEX events_by_end ON stepvad.events (end_time);
CREATE INDEX events_open ON stepvad.events (changed) WHERE end_time IS NULL;
CREATE INDEX events_reviewed ON stepvad.events (reviewed) WHERE reviewed IS NOT NULL;
CREATE INDEX events_to_review ON stepvad.events (start_time, id) WHERE reviewed IS NULL;
CREATE TABLE stepvad.forgotten (
    id text PRIMARY KEY,
    deleted timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX forgotten_by_time ON stepvad.forgotten (deleted);
CREATE TABLE stepvad.retention (
    days double precision NOT NULL CHECK (days > 0 AND days <= 1000000)
);
INSERT INTO stepvad.retention (days) VALUES (30);
CREATE FUNCTION stepvad.retain(asked double precision, most bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM stepvad.forgotten WHERE deleted < now() - make_interval(
    secs => 86400 * greatest(30, asked, (SELECT max(days) FROM stepvad.retention)));
WITH old AS (
    SELECT e.id FROM stepvad.retention, stepvad.events AS e
    WHERE e.end_time < now() - make_interval(secs => 86400 * greatest(days, asked))
    LIMIT greatest(most, 0) FOR UPDATE OF e SKIP LOCKED
), gone AS (
    DELETE FROM stepvad.events AS e USING old WHERE e.id = old.id RETURNING e.id
), noted AS (
    INSERT INTO stepvad.forgotten (id) SELECT id FROM gone ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone
$$;
REVOKE ALL ON FUNCTION stepvad.retain(double precision, bigint) FROM PUBLIC;
"""
"""SQL that creates the tables; the indexes by site and place are for the page.

The owner alone decides how long events are kept: `asked` may lengthen that, never shorten it.
"""
_REVIEWED = "mark, reviewed, reviewed_by"
_KEPT = (
    "label, severity, start_time, end_time, top_score, record, rank, turn, "
    "first_sequence, last_sequence"
)
GRANTS = {
    "stepvad_writer": f"""
REVOKE ALL ON stepvad.events, stepvad.forgotten FROM stepvad_writer;
GRANT USAGE ON SCHEMA stepvad TO stepvad_writer;
GRANT SELECT ON stepvad.schema_version, stepvad.events, stepvad.forgotten,
    stepvad.retention TO stepvad_writer;
GRANT INSERT (id, site, camera, {_KEPT}), UPDATE ({_KEPT}, changed)
    ON stepvad.events TO stepvad_writer;
GRANT EXECUTE ON FUNCTION stepvad.retain(double precision, bigint) TO stepvad_writer;
""",
    "stepvad_reader": f"""
GRANT USAGE ON SCHEMA stepvad TO stepvad_reader;
GRANT SELECT ON stepvad.schema_version, stepvad.events TO stepvad_reader;
GRANT UPDATE ({_REVIEWED}) ON stepvad.events TO stepvad_reader;
""",
}
"""Privileges of each role, if it exists: the writer deletes nothing, the reader only reviews."""
_SAFELY = "SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL lock_timeout = '20s'"
"""Names mean the same whoever migrates; a lock that somebody holds for long stops nobody else."""


async def version(connection: Connection[Any]) -> int:
    """The version of the tables; 0 without tables."""
    if not await connection.fetchval("SELECT to_regclass('stepvad.schema_version')"):
        return 0
    return await connection.fetchval("SELECT max(version) FROM stepvad.schema_version") or 0


async def check(connection: Connection[Any]) -> None:
    """Reject a database whose tables have another version."""
    found = await version(connection)
    if found == 0:
        raise ConfigError(
            f"database: expected tables of version {VERSION}, got none",
            hint="run stepvad fleet events SETTINGS --migrate as a role that may create tables",
        )
    if found != VERSION:
        raise ConfigError(
            f"database: expected tables of version {VERSION}, got {found}",
            hint="install the version of stepvad that created it",
        )


async def migrate(connection: Connection[Any]) -> int:
    """Create missing tables under a lock, and grant the privileges; return the number of steps."""
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK):
        logger.info("database: another program migrates it; waiting")
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK, timeout=LONG_COMMAND_S)
    try:
        async with connection.transaction():
            await connection.execute(_SAFELY)
            is_new = await version(connection) == 0
            if is_new:
                await _create(connection)
            await check(connection)
            await _grant(connection)
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", LOCK)
    return int(is_new)


async def _create(connection: Connection[Any]) -> None:
    began = time.monotonic()
    await connection.execute(TABLES, timeout=LONG_COMMAND_S)
    await connection.execute("INSERT INTO stepvad.schema_version (version) VALUES ($1)", VERSION)
    took_s = time.monotonic() - began
    logger.info("database: created the tables of version %d in %.1f s", VERSION, took_s)


async def _grant(connection: Connection[Any]) -> None:
    rows = await connection.fetch("SELECT rolname FROM pg_roles WHERE rolname LIKE 'stepvad_%'")
    for (role,) in rows:
        if role in GRANTS:
            await connection.execute(GRANTS[role])
