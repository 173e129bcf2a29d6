"""The events of a fleet for its page: searched, judged and erased in PostgreSQL."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

# Loaded by the fleet alone, where the database is spoken to.
import asyncpg  # noqa: TID253

from stepvad.codec import decode, encode
from stepvad.errors import DataError
from stepvad.events import record as records
from stepvad.events.record import Mark, Record, Review, Search
from stepvad.explain.event import EventExplanation
from stepvad.fleet import database
from stepvad.fleet.connection import CLOSE_S, LoopThread
from stepvad.fleet.database import COMMAND_S, CONNECT_S
from stepvad.site.stages import Repeats
from stepvad.site.store.database import SlowQueryError

logger = logging.getLogger(__name__)
CONNECTIONS = 4
COUNT_S = 10.0
"""Shortest time between two counts of all events, however many look."""
BATCH = 1000
"""Events erased by one command."""

Condition = tuple[str, Any]
"""A part of a condition, and its value; None if it does not apply."""

_HAS_ALL = """
(SELECT bool_and(position(term IN lower(concat_ws(' ',
    record ->> 'why', label, site || '/' || camera, record ->> 'zones'))) > 0)
FROM unnest(${}::text[]) AS term)
"""
_CAMERAS = """
SELECT site || '/' || camera AS camera, count(*) AS events,
    extract(epoch FROM min(start_time))::float8 AS first,
    extract(epoch FROM max(start_time))::float8 AS last
FROM stepvad.events WHERE record IS NOT NULL GROUP BY site, camera ORDER BY site, camera
"""
_BYTES = """
SELECT sum(pg_total_relation_size(relid))::bigint AS bytes
FROM pg_partition_tree('stepvad.events') WHERE isleaf
"""
_HAS_ID = """(site, id) IN (SELECT split_part(one, ':', 1), substr(one, strpos(one, ':') + 1)
FROM unnest(${}::text[]) AS one)"""
_BY_SITE = """
SELECT site, array_agg(id), end_time IS NULL FROM stepvad.events WHERE {}
GROUP BY site, end_time IS NULL
"""
_IS_BEFORE = """ AND (start_time, site, id) < (
    (SELECT start_time FROM stepvad.events WHERE site = {0} AND id = {1}), {0}, {1})"""
_REVIEWS = """
SELECT site, id, mark, extract(epoch FROM reviewed)::float8, reviewed_by FROM stepvad.events
"""


def site_and_id(id: str) -> tuple[str, str]:
    """The site of an event, and its id there; on the page it is `SITE:ID`."""
    site, _, own = id.partition(":")  # no site has an empty name
    return site, own


class EventStore:
    """Stored events as the page shows them: ids are `SITE:ID`, cameras `SITE/CAMERA`.

    `SITE/` as a camera stands for all cameras of a site. Threads may share it.
    """

    def __init__(self, dsn: str) -> None:
        """`dsn`: address of the database, which may be away for now."""
        self._thread, self._lines = LoopThread("events"), Repeats()
        self._counted: tuple[float, records.Inventory] | None = None
        """When all events were last counted, and the result."""
        try:
            self._pool = self._thread.wait(_pool(dsn), CONNECT_S)
        except BaseException:
            self._thread.close()
            raise

    def close(self) -> None:
        """Close the connections."""

        async def close() -> None:
            self._pool.terminate()

        self._thread.wait(close(), CLOSE_S)
        self._thread.close()

    def event(self, id: str) -> Record | None:
        """The event with this id."""
        rows = self._fetch(
            "SELECT site, record FROM stepvad.events "
            "WHERE site = $1 AND id = $2 AND record IS NOT NULL",
            *site_and_id(id),
        )
        return next(self._records(rows), None)

    def events(
        self,
        *,
        camera: str | None = None,
        since: float | None = None,
        until: float | None = None,
        open: bool | None = None,
        limit: int | None = 100,
        before_id: str | None = None,
        search: Search = records.EVERY,
    ) -> list[Record]:
        """Events that start at or after `since` and before `until`, newest first.

        `before_id` is the last event of the previous page.
        """
        where, values = _where(
            *_of_camera(camera),
            *_between(since, until),
            ("(reviewed IS NOT NULL) = ${}", search.is_seen),
            ("mark = ${}", search.mark),
            ("record -> 'zones' ? ${}", search.zone),
            ("top_score >= ${}", search.min_score),
            ("top_score >= ${}::float8 * (record ->> 'threshold')::float8", search.min_times),
            (_HAS_ALL, search.terms),
        )
        if open is not None:
            where += f" AND end_time IS {'' if open else 'NOT '}NULL"
        if before_id is not None:
            values += site_and_id(before_id)
            where += _IS_BEFORE.format(f"${len(values) - 1}", f"${len(values)}")
        rows = self._fetch(
            f"SELECT site, record FROM stepvad.events WHERE {where} "  # noqa: S608  constant parts
            f"ORDER BY start_time DESC, site DESC, id DESC LIMIT ${len(values) + 1}",
            *(*values, limit),
            within_s=search.within_s,
        )
        return [*self._records(rows)]

    def to_review(self) -> int:
        """Number of events that nobody has seen, `MOST_COUNTED` at most."""
        rows = self._fetch(
            "SELECT count(*) FROM (SELECT FROM stepvad.events "
            "WHERE reviewed IS NULL AND record IS NOT NULL LIMIT $1) AS unseen",
            records.MOST_COUNTED,
        )
        return int(rows[0][0])

    def reviews(self, ids: Sequence[str] | None = None) -> Mapping[str, Review]:
        """What was said of events that somebody has seen; of all, or of those with these ids."""
        where, values = _where((_HAS_ID, ids and [*ids]))
        rows = self._fetch(f"{_REVIEWS} WHERE {where} AND reviewed IS NOT NULL", *values)
        return {f"{site}:{id}": Review(mark, at, by) for site, id, mark, at, by in rows}

    def mark(self, id: str, mark: Mark | None, by: str) -> float:
        """Judge an event, or take the judgement back; return the time by which it counts."""
        judged = "SELECT stepvad.judge($1, $2, $3, $4, now()), extract(epoch FROM now())::float8"
        return float(self._change(id, judged, mark, by)[1])

    def see(self, id: str, now: float, by: str = "") -> None:
        """Note that somebody has seen an event; the first look counts, by the database's clock."""
        self._change(id, "SELECT stepvad.see($1, $2, $3, now())", by)

    def explanation(self, id: str) -> EventExplanation | None:
        """The explanation that was kept of an event."""
        kept = "SELECT explanation FROM stepvad.events WHERE site = $1 AND id = $2"
        rows = self._fetch(kept, *site_and_id(id))
        body = rows[0][0] if rows else None
        return None if body is None else decode(EventExplanation, body, "explanation")

    def keep_explanation(self, id: str, explanation: EventExplanation) -> None:
        """Keep the explanation of an event."""
        body = encode(explanation).decode()
        self._change(id, "SELECT stepvad.explain($1, $2, $3::jsonb)", body)

    def delete(
        self,
        *,
        camera: str | None = None,
        before: float | None = None,
        after: float | None = None,
        ids: Sequence[str] | None = None,
    ) -> records.Deleted:
        """Erase events that have ended; an empty row of each keeps late messages out."""
        where, values = _where(
            *_of_camera(camera),
            *_between(None, before),
            ("coalesce(end_time, 'infinity') >= to_timestamp(${}::float8)", after),
            (_HAS_ID, ids and [*ids]),
        )
        count = kept = 0
        for site, own, is_open in self._fetch(_BY_SITE.format(where), *values):
            if is_open:
                kept += len(own)
                continue
            for at in range(0, len(own), BATCH):
                erase = "SELECT stepvad.erase($1, $2, false)"
                count += self._fetch(erase, site, own[at : at + BATCH])[0][0]
        self._counted = None
        return records.Deleted(events=count, poses=0, kept_open=kept)

    def stored(self) -> records.Inventory:
        """Inventory of the store: counts, sizes and time ranges."""
        if self._counted is not None and time.monotonic() - self._counted[0] < COUNT_S:
            return self._counted[1]
        rows, size = self._fetch(_CAMERAS), self._fetch(_BYTES)[0][0]
        kept = records.Kept(
            what="events",
            holds=records.KINDS["events"],
            count=sum(row["events"] for row in rows),
            first=min((row["first"] for row in rows), default=None),
            last=max((row["last"] for row in rows), default=None),
            bytes=int(size or 0),
        )
        cameras = {row["camera"]: row["events"] for row in rows}
        found = records.Inventory(kept=(kept,), files={}, cameras=cameras)
        self._counted = time.monotonic(), found
        return found

    def end_session(self, id: str, until: float) -> None:
        """Note that a session of the page has ended, for all replicas of the page."""
        self._fetch("SELECT stepvad.end_session($1, to_timestamp($2))", id, until)

    def has_ended(self, id: str) -> bool:
        """Whether a session was ended."""
        return bool(self._fetch("SELECT 1 FROM stepvad.ended_sessions WHERE session = $1", id))

    def _records(self, rows: Iterable[Any]) -> Iterator[Record]:
        """Stored events with the ids and cameras of the page, without those that are none."""
        for site, body in rows:
            try:
                found = decode(Record, body, "event")
            except DataError as error:  # one site must not keep those of others from the page
                what = "site %s: an event is left out: %s"
                self._lines.log(logger.warning, site, what, site, error)
                continue
            yield replace(found, id=f"{site}:{found.id}", camera=f"{site}/{found.camera}")

    def _change(self, id: str, statement: str, *values: Any) -> Any:
        """Call a function with site and id of an event; it says first whether it did something."""
        row = self._fetch(statement, *site_and_id(id), *values)[0]
        if not row[0]:
            raise DataError(f"event {id}: expected the id of a stored event, got an unknown id")
        return row

    def _fetch(self, statement: str, *values: Any, within_s: float = math.inf) -> list[Any]:
        """The rows of a statement; raise `SlowQueryError` if a search takes too long."""
        began, limit_s = time.monotonic(), min(within_s, COMMAND_S)

        async def fetched() -> list[Any]:
            async with self._pool.acquire(timeout=CONNECT_S) as connection:
                return list(await connection.fetch(statement, *values, timeout=limit_s))

        try:
            with database.translated():
                return self._thread.wait(fetched(), limit_s + CONNECT_S)
        except database.NoDatabaseError:
            if time.monotonic() - began < within_s:
                raise
            raise SlowQueryError(
                f"search: expected it to take at most {within_s:g} s, got a longer one",
                hint="narrow it: by a camera, by time, or by fewer words",
            ) from None


async def _pool(dsn: str) -> Any:
    with database.translated():
        return await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=CONNECTIONS,
            timeout=CONNECT_S,
            command_timeout=COMMAND_S,
            server_settings=database.SESSION,
        )


def _where(*conditions: Condition) -> tuple[str, list[Any]]:
    """The conditions that apply, of rows that have an event, and their values."""
    given = [(part, value) for part, value in conditions if value is not None]
    parts = [part.format(n) for n, (part, _) in enumerate(given, start=1)]
    return " AND ".join(["record IS NOT NULL", *parts]), [value for _, value in given]


def _of_camera(camera: str | None) -> tuple[Condition, ...]:
    """Events of `SITE/CAMERA`, or of `SITE/`."""
    site, _, own = (camera or "/").partition("/")
    return ("site = ${}", None if camera is None else site), ("camera = ${}", own or None)


def _between(since: float | None, until: float | None) -> tuple[Condition, ...]:
    """Events by their start; the months tell which partitions need not be read."""
    month = "date_trunc('month', to_timestamp(${}::float8) AT TIME ZONE 'UTC')"
    return (
        ("start_time >= to_timestamp(${}::float8)", since),
        (f"month >= {month}", since),
        ("start_time < to_timestamp(${}::float8)", until),
        (f"month <= {month}", until),
    )
