"""Events of a fleet in PostgreSQL, stored once despite duplicate, late or unordered messages."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from stepvad.codec import decode, encode
from stepvad.errors import ConfigError, DataError
from stepvad.events.record import EVERY, MOST_COUNTED, Deleted, Mark, Record, Review, Search
from stepvad.fleet.event_message import FleetChange
from stepvad.fleet.events.migrations import LONG_COMMAND_S, check, migrate
from stepvad.fleet.events.postgres_errors import expected, is_read_only, meaning, words

if TYPE_CHECKING:
    from asyncpg import Connection, Pool

logger = logging.getLogger(__name__)


_HAS_ALL = """
(SELECT bool_and(position(term IN lower(concat_ws(' ',
    record ->> 'why', label, site || '/' || camera, record ->> 'zones'))) > 0)
FROM unnest(${}::text[]) AS term)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Filter for events; all given conditions must hold."""

    site: str | None = None
    camera: str | None = None
    """`site/camera`."""
    since: float | None = None
    """Starts at this time or later."""
    until: float | None = None
    """Starts before this time."""
    ends_after: float | None = None
    label: str | None = None
    open: bool | None = None
    ids: Sequence[str] | None = None
    search: Search = EVERY

    @staticmethod
    def parts(camera: str | None) -> tuple[str | None, str | None]:
        """Split a camera filter into site and camera: `site/` selects all cameras of a site."""
        if camera is not None and camera.endswith("/"):
            return camera[:-1], None
        return None, camera

    def where(self) -> tuple[str, list[Any]]:
        """The SQL condition and its parameters."""
        site, _, camera = (self.camera or "").partition("/")
        named = self.camera is not None
        parts: list[tuple[str, Any]] = [
            ("site = ${}", self.site),
            ("site = ${}", site if named else None),
            ("camera = ${}", camera if named else None),
            ("start_time >= to_timestamp(${})", self.since),
            ("start_time < to_timestamp(${})", self.until),
            ("coalesce(end_time, 'infinity') >= to_timestamp(${})", self.ends_after),
            ("label = ${}", self.label),
            ("(end_time IS NULL) = ${}", self.open),
            ("id = ANY(${}::text[])", None if self.ids is None else [*self.ids]),
            *_found_by(self.search),
        ]
        given = [(part, value) for part, value in parts if value is not None]
        words = [part.format(number) for number, (part, _) in enumerate(given, start=1)]
        return " AND ".join(["true", *words]), [value for _, value in given]


def _found_by(search: Search) -> list[tuple[str, Any]]:
    """The conditions of a search, and their parameters."""
    return [
        ("(reviewed IS NOT NULL) = ${}", search.is_seen),
        ("mark = ${}", search.mark),
        ("record -> 'zones' ? ${}", search.zone),
        ("top_score >= ${}", search.min_score),
        ("top_score >= ${}::float8 * (record ->> 'threshold')::float8", search.min_times),
        (_HAS_ALL, search.terms),
    ]


CONNECT_S = 10.0
COMMAND_S = 30.0
"""Limit of a command, unless it may read or rewrite the whole table: see `LONG_COMMAND_S`."""
IDLE_S = 10
"""The server ends a transaction whose client is silent for so long: a client that was cut off would
otherwise keep its rows locked, for hours, and the writer that takes over waits for them."""
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""A server that vanished is noticed after 30 s, also by a command whose limit is hours away."""
CONNECTIONS = 4
LOCKED_S = 2
SCRUB_LOCKED_S = 20
"""Everybody else waits behind a scrub that waits for its lock."""
LOCAL = (None, "localhost", "127.0.0.1", "::1")

_WRITE = """
INSERT INTO stepvad.events AS old (id, site, camera, label, severity, start_time, end_time,
    top_score, record, rank, turn, first_sequence, last_sequence)
SELECT $1, $2, $3, $4, $5, to_timestamp($6), to_timestamp($7), $8, $9, $10, $11, $12, $12
WHERE NOT EXISTS (SELECT FROM stepvad.forgotten WHERE id = $1)
ON CONFLICT (id) DO UPDATE SET label = excluded.label, severity = excluded.severity,
    start_time = excluded.start_time, end_time = excluded.end_time,
    top_score = excluded.top_score, record = excluded.record,
    rank = excluded.rank, turn = excluded.turn,
    first_sequence = least(old.first_sequence, excluded.first_sequence),
    last_sequence = greatest(old.last_sequence, excluded.last_sequence), changed = now()
WHERE old.site = excluded.site AND old.camera = excluded.camera AND CASE
    WHEN old.rank = 2 THEN excluded.rank = 2
        AND (excluded.record ->> 'version')::bigint > (old.record ->> 'version')::bigint
    ELSE (excluded.rank, excluded.turn, excluded.last_sequence)
        > (old.rank, old.turn, old.last_sequence) END
"""
_FORGET = """
WITH gone AS (DELETE FROM stepvad.events WHERE {where} RETURNING id)
INSERT INTO stepvad.forgotten (id) SELECT id FROM gone ON CONFLICT DO NOTHING
"""
_RETAIN = "SELECT stepvad.retain($1, $2)"
RETAINED = 5000
"""Most events deleted at a time by retention."""

_TOTALS = """
SELECT count(*), count(*) FILTER (WHERE changed < now() - make_interval(secs => $1)),
    pg_total_relation_size('stepvad.events'),
    extract(epoch FROM (SELECT min(start_time) FROM stepvad.events))::float8,
    extract(epoch FROM (SELECT max(start_time) FROM stepvad.events))::float8
FROM stepvad.events WHERE end_time IS NULL
"""
_CAMERAS = """
SELECT site || '/' || camera, count(*) FROM stepvad.events
GROUP BY site, camera ORDER BY site, camera
"""


_UNSEEN = """
SELECT count(*) FROM (SELECT FROM stepvad.events WHERE reviewed IS NULL LIMIT $1) AS unseen
"""


class NoDatabaseError(DataError):
    """The database is unreachable; retry later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts and sizes of the stored events."""

    events: int
    open: int
    stale: int
    """Open events without a recent update."""
    bytes: int
    first: float | None
    last: float | None
    cameras: dict[str, int]
    """Number of events of each `site/camera`."""


class FleetEvents:
    """The event store of a fleet; open it with `connect`."""

    def __init__(self, pool: Pool[Any]) -> None:
        self._pool = pool

    async def write(self, changes: Iterable[FleetChange]) -> None:
        """Store changes in one transaction, committed when it returns.

        Duplicate or outdated changes are ignored; an ended event takes only words that its site
        found later.
        Rows are locked in the order of their ids, so two writers cannot deadlock. A reviewer who
        keeps one locked is met with an error, after `LOCKED_S`.
        """
        rows = [_row(change) for change in sorted(changes, key=lambda one: one.record.id)]
        async with self._connection() as connection, connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCKED_S}s'")
            await connection.executemany(_WRITE, rows)

    async def event(self, id: str) -> Record | None:
        """The event with this id."""
        async with self._connection() as connection:
            row = await connection.fetchrow("SELECT record FROM stepvad.events WHERE id = $1", id)
        return None if row is None else decode(Record, row[0], "event")

    async def events(
        self, wanted: Wanted, *, limit: int | None = 100, before_id: str | None = None
    ) -> list[Record]:
        """Events, newest first; `before_id` is the last id of the previous page."""
        where, values = wanted.where()
        async with self._connection() as connection:
            if before_id is not None:
                last = await connection.fetchval(
                    "SELECT start_time FROM stepvad.events WHERE id = $1", before_id
                )
                if last is None:
                    raise DataError(
                        f"before_id: expected the id of a stored event, got {before_id!r}",
                        hint="start again from the newest event",
                    )
                values += [last, before_id]
                where += f" AND (start_time, id) < (${len(values) - 1}, ${len(values)})"
            values.append(limit)
            rows = await connection.fetch(
                f"SELECT record FROM stepvad.events WHERE {where} "  # noqa: S608  constant parts
                f"ORDER BY start_time DESC, id DESC LIMIT ${len(values)}",
                *values,
                timeout=LONG_COMMAND_S if limit is None else None,
            )
        return [decode(Record, body, "event") for (body,) in rows]

    async def mark(self, id: str, mark: Mark | None, by: str = "") -> None:
        """Judge an event, or take the judgement back; it counts as seen either way."""
        await self._review(
            "UPDATE stepvad.events SET mark = $2, reviewed = now(), reviewed_by = $3 WHERE id = $1",
            *(id, mark, by),
        )

    async def see(self, id: str, by: str = "") -> None:
        """Note that somebody has seen an event; the first look counts."""
        await self._review(
            "UPDATE stepvad.events SET reviewed = coalesce(reviewed, now()), "
            "reviewed_by = CASE WHEN reviewed IS NULL THEN $2 ELSE reviewed_by END WHERE id = $1",
            *(id, by),
        )

    async def _review(self, statement: str, id: str, *values: str | None) -> None:
        async with self._connection() as connection:
            done = await connection.execute(statement, id, *values)
        if _count(done) == 0:
            raise DataError(f"event {id}: expected the id of a stored event, got an unknown id")

    async def reviews(self, ids: Sequence[str] | None = None) -> dict[str, Review]:
        """What was said of events that somebody has seen; of all, or of those with these ids."""
        async with self._connection() as connection:
            rows = await connection.fetch(
                "SELECT id, mark, extract(epoch FROM reviewed)::float8, reviewed_by "
                "FROM stepvad.events "
                "WHERE reviewed IS NOT NULL AND ($1::text[] IS NULL OR id = ANY($1)) "
                "ORDER BY reviewed, id",
                None if ids is None else [*ids],
                timeout=LONG_COMMAND_S if ids is None else None,
            )
        return {id: Review(mark, at, by) for id, mark, at, by in rows}

    async def to_review(self) -> int:
        """Number of events that nobody has seen, `MOST_COUNTED` at most."""
        async with self._connection() as connection:
            found = await connection.fetchval(_UNSEEN, MOST_COUNTED)
        return int(found)

    async def delete(self, wanted: Wanted, *, include_open: bool = False) -> Deleted:
        """Delete events for good; open ones only with `include_open`.

        The ids are kept, and redelivered messages of deleted events are ignored.
        """
        where, values = wanted.where()
        async with self._connection() as connection, connection.transaction():
            kept = 0
            if not include_open:
                kept = await connection.fetchval(
                    f"SELECT count(*) FROM stepvad.events WHERE {where} AND end_time IS NULL",  # noqa: S608  constant parts
                    *values,
                    timeout=LONG_COMMAND_S,
                )
                where += " AND end_time IS NOT NULL"
            forget = _FORGET.format(where=where)
            done = await connection.execute(forget, *values, timeout=LONG_COMMAND_S)
        return Deleted(events=_count(done), poses=0, kept_open=int(kept))

    async def retain(self, asked_days: float | None = None) -> int:
        """Delete events that ended longer ago than the owner keeps them; return how many.

        `asked_days` keeps them for longer, never shorter.
        """
        async with self._connection() as connection:
            done = await connection.fetchval(_RETAIN, asked_days, RETAINED, timeout=LONG_COMMAND_S)
            return int(done)

    async def retention(self) -> float | None:
        """Days that events are kept."""
        async with self._connection() as connection:
            found: float | None = await connection.fetchval("SELECT days FROM stepvad.retention")
            return found

    async def set_retention(self, days: float) -> None:
        """Keep events for so many days; only the owner may decide that."""
        async with self._connection() as connection:
            await connection.execute("UPDATE stepvad.retention SET days = $1", days)

    async def scrub(self) -> None:
        """Rewrite the table to purge deleted rows from its file; locks the table."""
        async with self._connection() as connection:
            await connection.execute(f"SET lock_timeout = '{SCRUB_LOCKED_S}s'")
            await connection.execute("VACUUM (FULL) stepvad.events", timeout=LONG_COMMAND_S)
            await connection.execute("CHECKPOINT", timeout=LONG_COMMAND_S)

    async def totals(self, *, stale_s: float) -> Totals:
        """Counts and sizes, including how many open events are stale."""
        async with self._connection() as connection:
            row = await connection.fetchrow(_TOTALS, stale_s)
            cameras = dict(await connection.fetch(_CAMERAS))
        return Totals(
            events=sum(cameras.values()),
            open=row[0],
            stale=row[1],
            bytes=row[2],
            first=row[3],
            last=row[4],
            cameras=cameras,
        )

    async def going_on(self, *, stale_s: float) -> tuple[int, int, int]:
        """Estimated number of events, open events, and stale open events.

        Unlike `totals` it reads only the rows of open events.
        """
        async with self._connection() as connection:
            row = await connection.fetchrow(
                "SELECT greatest((SELECT reltuples FROM pg_class "
                "WHERE oid = 'stepvad.events'::regclass), 0)::bigint, count(*), "
                "count(*) FILTER (WHERE changed < now() - make_interval(secs => $1)) "
                "FROM stepvad.events WHERE end_time IS NULL",
                stale_s,
            )
        return row[0], row[1], row[2]

    async def migrate(self) -> int:
        """Migrate the tables; return the number of steps."""
        async with self._connection() as connection:
            return await migrate(connection)

    async def check(self) -> None:
        """Reject a database of another version."""
        async with self._connection() as connection:
            await check(connection)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection[Any]]:
        try:
            async with self._pool.acquire(timeout=CONNECT_S) as connection:
                yield connection
        except Exception as error:
            found = meaning(error)
            if found not in ("retry", "settings"):
                raise
            if is_read_only(error):  # after a failover, a new connection finds the primary
                await self._pool.expire_connections()
            problem, hint = expected(error)
            kind = ConfigError if found == "settings" else NoDatabaseError
            raise kind(f"{problem}, got: {words(error)}", hint=hint) from None


@asynccontextmanager
async def connect(dsn: str) -> AsyncIterator[FleetEvents]:
    """Open the event store at a connection string; the database may be unreachable at first."""
    import asyncpg

    _check_dsn(dsn)
    pool = asyncpg.create_pool(
        dsn,
        min_size=0,
        max_size=CONNECTIONS,
        command_timeout=COMMAND_S,
        timeout=CONNECT_S,
        max_inactive_connection_lifetime=60.0,
        init=_keep_alive,
        server_settings={"idle_in_transaction_session_timeout": f"{IDLE_S}s"},
    )
    await pool
    try:
        yield FleetEvents(pool)
    finally:
        pool.terminate()


async def _keep_alive(connection: Connection[Any]) -> None:
    """Probe an idle connection, as PostgreSQL's own clients do; a local socket needs none."""
    line = connection._transport.get_extra_info("socket")
    if line is None or line.family == socket.AF_UNIX:
        return
    line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # Linux
            line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _check_dsn(dsn: str) -> None:
    """Reject an invalid connection string, without showing it: it may hold a password."""
    try:
        parts = urlsplit(dsn)
        sound = parts.scheme in ("postgres", "postgresql") and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound:
        raise ConfigError(
            "events.dsn: expected postgresql://USER:PASSWORD@HOST/DATABASE, got something else",
            hint="special characters of a password are written as %XX",
        )
    for name, path in parse_qsl(parts.query):
        if name in ("sslrootcert", "sslcert", "sslkey") and not Path(path).is_file():
            raise ConfigError(
                f"events.dsn: expected {name} to name a file, got {path}",
                hint="the path is relative to where stepvad is started",
            )
    if parts.hostname not in LOCAL and "sslmode=verify-full" not in parts.query:
        logger.warning(
            "events.dsn: the database server is not verified; add sslmode=verify-full "
            "and sslrootcert"
        )


def _row(change: FleetChange) -> tuple[Any, ...]:
    record = change.record
    return (
        *(record.id, change.site, change.camera, record.label, record.severity),
        *(record.start_time, record.end_time, record.top_score, encode(record).decode()),
        *(change.rank, change.turn, change.sequence),
    )


def _count(tag: str) -> int:
    """Number of rows affected, from the command tag."""
    return int(tag.rpartition(" ")[2])
