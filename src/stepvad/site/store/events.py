"""The event store of a site: events are on disk before they are delivered, and expire by age."""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from stepvad.codec import decode, encode
from stepvad.errors import DataError
from stepvad.events.ledger import HOUR_S
from stepvad.events.record import (
    DAY_S,
    EVERY,
    KINDS,
    MOST_COUNTED,
    Deleted,
    Inventory,
    Kept,
    Mark,
    Record,
    Review,
    Search,
    camera_key,
    message,
)
from stepvad.events.rules import ChangeKind
from stepvad.explain.event import EventExplanation
from stepvad.files import remove_leftovers, replacing
from stepvad.site.settings.sections import RetentionSettings
from stepvad.site.store.changes import PATIENCE_S, ChangeQueue
from stepvad.site.store.database import BUSY_S, EVENT_STORE, Database, StoreError
from stepvad.site.store.outbox import Outbox
from stepvad.site.store.positions import Positions

logger = logging.getLogger(__name__)
FILE_NAME = "events.db"
"""File name of the store in the data directory."""
Outcome = Literal["stored", "repeated", "ended"]
"""Outcome of a change: written; already known; refused because the event has ended."""
_Attached = Literal["poses", "explanations"]
"""Tables of data attached to an event."""

LAST_VERSION = "SELECT max(json_extract(body, '$.version')) FROM events WHERE json_valid(body)"
SILENT = "the disk does not answer"
WATCHED_DAYS = 30
"""Days for which the time watched is kept."""
_TEXT = (
    "lower(coalesce(json_extract(body, '$.why'), '') || ' ' || label || ' ' || camera || ' ' || "
    "coalesce(json_extract(body, '$.zones'), ''))"
)
Conditions = tuple[list[str], list[Any]]


@contextmanager
def open_store(data: Path) -> Iterator[Store]:
    """Open the store in a data directory; raise if no site has run there."""
    store = Store(data / FILE_NAME, create=False)
    try:
        yield store
    finally:
        store.close()


class Store:
    """The events of a site and the pending messages for its sinks; thread-safe."""

    def __init__(
        self,
        path: Path,
        sinks: Iterable[str] = (),
        *,
        create: bool = True,
        later: bool = False,
        busy_s: float = BUSY_S,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`later` and `busy_s` are those of a `Database`, `patience_s` that of a `ChangeQueue`."""
        self.path, self.sinks = Path(path), tuple(sinks)
        self._clock, self._time = clock, StoreClock(monotonic)
        self._database = Database(self.path, EVENT_STORE, create=create, later=later, busy_s=busy_s)
        self._counting, self._version, self._epochs = threading.Lock(), 0, dict[str, int]()
        with suppress(StoreError):  # the time is above almost all versions
            ((last,),) = self._database.rows(LAST_VERSION)
            self._version = int(last or 0)
        self._began, self._is_resumed = self.next_version(), False
        self.changes = ChangeQueue(
            self.next_version, refused_s=self._database.refused_s, patience_s=patience_s
        )
        """Changes that are not stored yet."""
        self.outbox = Outbox(self._database, self.changes, clock)
        self.positions = Positions(self._database)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def trouble(self) -> str:
        """The reason why events cannot be stored now; empty if they can."""
        if self.changes.is_overdue:  # a damaged page may take other writes
            return self._database.last_trouble or SILENT
        return self._database.trouble

    def check(self) -> None:
        """Write a little, so that a disk that fails is noticed before an event comes.

        The first time, end the events that were open when the last run ended.
        """
        with suppress(StoreError):
            with self._database.transaction() as connection:
                self._time.stamp(connection, self._clock())
            if not self._is_resumed:
                self.end_interrupted(self._clock())

    def now(self) -> float:
        """Current time by the store's wall clock."""
        return self._clock()

    def next_version(self) -> int:
        """The version of the next change: above all before it, even if the clock is set back."""
        with self._counting:
            self._version = max(self._version + 1, int(1000 * self._clock()))
            return self._version

    def next_epoch(self, camera: str) -> int:
        """A unique number for a connection of this camera.

        The time in seconds if that is larger than the last number, so it is unique even after an
        older store was restored; without a disk it is larger than the last of this run.
        """
        key = camera_key(camera)
        with self._counting:
            epoch = max(self._epochs.get(key, 0) + 1, int(self._clock()))
        with suppress(StoreError), self._database.transaction() as connection:
            (epoch,) = connection.execute(
                "INSERT INTO epochs VALUES (?1, ?2) ON CONFLICT (camera_key) "
                "DO UPDATE SET last = max(last + 1, ?2) RETURNING last",
                (key, epoch),
            ).fetchone()
        with self._counting:
            self._epochs[key] = int(epoch)
        return int(epoch)

    def change(self, kind: ChangeKind, record: Record) -> Outcome:
        """Store a change of an event and a message about it for every sink.

        Both are on disk when it returns. A repeated change is stored and announced once. Of an
        event that has ended only an update is stored that leaves its end as it is: late words.
        """
        if record.is_open if kind == "end" else kind == "new" and not record.is_open:
            raise DataError(
                f"event {record.id}: expected an end time with an end and none with a new event, "
                f"got {kind} {'without' if record.is_open else 'with'} one"
            )
        # the event and the messages about it in one transaction: none without the other
        with self._database.transaction() as connection:
            before = _find(connection, record.id)
            outcome = _outcome(kind, before, record)
            if outcome == "stored":
                self._write(connection, kind, before, record)
        if outcome == "stored":
            self.outbox.ring()
        elif outcome == "ended":
            logger.warning("event %s is over; a later %s of it is refused", record.id, kind)
        return outcome

    def _write(
        self,
        connection: sqlite3.Connection,
        kind: ChangeKind,
        before: Record | None,
        record: Record,
    ) -> None:
        with self._counting:
            self._version = max(self._version, record.version)
        connection.execute(
            "INSERT INTO events (id, camera, label, start_time, end_time, changed, stored, body) "
            "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO UPDATE SET camera = ?2, "
            "label = ?3, start_time = ?4, end_time = ?5, changed = ?6, stored = ?7, body = ?8",
            (
                *(record.id, record.camera, record.label, record.start_time, record.end_time),
                *(self._clock(), self._time.stamp(connection, self._clock())),
                encode(record).decode(),
            ),
        )
        self.outbox.put(connection, self.sinks, record.id, kind, message(kind, before, record))

    def end_interrupted(self, now: float, camera: str | None = None) -> list[Record]:
        """End events left open by the last run; of one with a position only if it is `camera`."""
        ended, goes_on = [], self.positions.loaded - {camera}
        with self._database.transaction() as connection:
            rows = connection.execute(
                "SELECT body, changed FROM events WHERE end_time IS NULL ORDER BY start_time, id"
            ).fetchall()
            for body, changed in rows:
                before = decode(Record, body, "event")
                if before.version > self._began or before.camera in goes_on:
                    continue
                after = before.ended("interrupted", min(now, changed))
                after = replace(after, version=self.next_version())
                self._write(connection, "end", before, after)
                ended.append(after)
                logger.warning("event %s was interrupted", after.id)
        self._is_resumed = True
        self.outbox.ring()
        return ended

    def event(self, id: str) -> Record | None:
        """The event with this id, also while it waits for the disk."""
        waiting = self.changes.records()
        if id in waiting:
            return waiting[id]
        with self._database.snapshot() as connection:
            return _find(connection, id)

    def events(
        self,
        *,
        camera: str | None = None,
        since: float | None = None,
        until: float | None = None,
        open: bool | None = None,
        limit: int | None = 100,
        before_id: str | None = None,
        search: Search = EVERY,
    ) -> list[Record]:
        """Events that start at or after `since` and before `until`, newest first.

        `before_id` is the last event of the previous page. Without it and without a search, events
        that wait for the disk are among them.
        """
        parts, values = where(camera=camera, before=until, starts_after=since, search=search)
        if open is not None:
            parts = [*parts, f"end_time IS {'' if open else 'NOT '}NULL"]
        with self._database.snapshot(search.within_s) as connection:
            # a page goes on after the last event of the one before it
            if before_id is not None:
                last = _find(connection, before_id)
                if last is None:
                    raise DataError(
                        f"before_id: expected the id of a stored event, got {before_id!r}",
                        hint="start again from the newest event",
                    )
                parts = [*parts, "(start_time, id) < (?, ?)"]
                values = [*values, last.start_time, last.id]
            rows = connection.execute(
                f"SELECT body FROM events WHERE {' AND '.join(parts)} "  # noqa: S608  constant parts
                "ORDER BY start_time DESC, id DESC LIMIT ?",
                (*values, -1 if limit is None else limit),
            ).fetchall()
        found = [decode(Record, body, "event") for (body,) in rows]
        waiting = self.changes.records() if before_id is None and search == EVERY else {}
        if not waiting:
            return found
        kept = [
            one
            for one in ({one.id: one for one in found} | waiting).values()
            if camera in (None, one.camera)
            and (since is None or one.start_time >= since)
            and (until is None or one.start_time < until)
            and open in (None, one.is_open)
        ]
        return sorted(kept, key=lambda one: (one.start_time, one.id), reverse=True)[:limit]

    def put_poses(self, id: str, body: bytes) -> bool:
        """Store the poses around an event; False if the event no longer exists."""
        return self._attach("poses", id, body)

    def poses(self, id: str) -> bytes | None:
        """The poses around an event."""
        return self._attached("poses", id)

    def put_explanation(self, id: str, explanation: EventExplanation) -> bool:
        """Store the explanation of an event; False if the event no longer exists."""
        return self._attach("explanations", id, encode(explanation).decode())

    def explanation(self, id: str) -> EventExplanation:
        """The explanation of an event; raise `DataError` if there is none."""
        found = self.explained(id)
        if found is None:
            raise DataError(
                f"event {id}: expected an explanation, got none",
                hint="it follows the event within moments, and is deleted with its poses",
            )
        return found

    def explained(self, id: str) -> EventExplanation | None:
        """The explanation of an event."""
        body = self._attached("explanations", id)
        return None if body is None else decode(EventExplanation, body, "explanation")

    def _attach(self, table: _Attached, id: str, body: bytes | str) -> bool:
        statement = (
            f"INSERT OR REPLACE INTO {table} (id, stored, body) "  # noqa: S608  one of two tables
            "SELECT id, ?, ? FROM events WHERE id = ?"
        )
        return self._database.change(statement, self._clock(), body, id) > 0

    def _attached(self, table: _Attached, id: str) -> Any:
        query = f"SELECT body FROM {table} WHERE id = ?"  # noqa: S608  one of two tables
        rows = self._database.rows(query, id)
        return rows[0][0] if rows else None

    def mark(self, id: str, mark: Mark | None, now: float, by: str = "") -> None:
        """Judge an event, or take the judgement back; it counts as seen either way."""
        found = self._database.change(
            "UPDATE events SET marked = ?1, marked_at = CASE WHEN ?1 IS NOT NULL THEN ?2 END, "
            "reviewed_at = ?2, reviewed_by = ?3 WHERE id = ?4",
            *(mark, now, by, id),
        )
        _check_found(found, id)

    def see(self, id: str, now: float, by: str = "") -> None:
        """Note that somebody has seen an event; the first look counts."""
        found = self._database.change(
            "UPDATE events SET reviewed_at = coalesce(reviewed_at, ?1), reviewed_by = CASE "
            "WHEN reviewed_at IS NULL THEN ?2 ELSE reviewed_by END WHERE id = ?3",
            *(now, by, id),
        )
        _check_found(found, id)

    def reviews(self, ids: Sequence[str] | None = None) -> dict[str, Review]:
        """Reviews of events that somebody has seen; of all, or of those with these ids."""
        rows = self._database.rows(
            "SELECT id, marked, reviewed_at, reviewed_by FROM events WHERE reviewed_at IS NOT NULL "
            "AND (?1 IS NULL OR id IN (SELECT value FROM json_each(?1))) ORDER BY reviewed_at, id",
            None if ids is None else json.dumps([*ids]),
        )
        return {id: Review(mark, at, by) for id, mark, at, by in rows}

    def to_review(self) -> int:
        """Number of events that nobody has seen, `MOST_COUNTED` at most."""
        ((count,),) = self._database.rows(
            "SELECT (SELECT count(*) FROM events) "
            "- (SELECT count(*) FROM events WHERE reviewed_at IS NOT NULL)"
        )
        return min(int(count), MOST_COUNTED)

    def add_watched(self, seconds: Mapping[tuple[str, int], float]) -> None:
        """Add to the time for which cameras were watched, by camera and Unix hour."""
        rows = [(camera, hour, some) for (camera, hour), some in seconds.items()]
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT INTO watched VALUES (?1, ?2, ?3) ON CONFLICT (camera, hour) "
                "DO UPDATE SET seconds = min(seconds + ?3, 3600.0)",
                rows,
            )
            oldest = (self._clock() - WATCHED_DAYS * DAY_S) // HOUR_S
            connection.execute("DELETE FROM watched WHERE hour < ?", (oldest,))

    def watched(self, since: float = 0.0) -> dict[str, dict[float, float]]:
        """Seconds for which each camera was watched, by the time at which their hour began."""
        rows = self._database.rows(
            "SELECT camera, hour, seconds FROM watched WHERE hour > ?", since / HOUR_S - 1
        )
        found: dict[str, dict[float, float]] = {}
        for camera, hour, seconds in rows:
            found.setdefault(camera, {})[hour * HOUR_S] = seconds
        return found

    def marked(self) -> dict[str, tuple[Mark, float, float | None]]:
        """The mark on each judged event, its time, and when the poses of the event were stored."""
        rows = self._database.rows(
            "SELECT e.id, marked, marked_at, p.stored FROM events e LEFT JOIN poses p USING (id) "
            "WHERE marked IS NOT NULL"
        )
        return {id: (mark, at, stored) for id, mark, at, stored in rows}

    def delete(
        self,
        *,
        camera: str | None = None,
        before: float | None = None,
        after: float | None = None,
        ids: Sequence[str] | None = None,
        include_open: bool = False,
    ) -> Deleted:
        """Delete the events that overlap a time range, with poses, explanations and messages.

        No trace of them is left in the files. Open events are kept unless `include_open` is set.
        """
        # open events are counted, and kept unless they are asked for
        parts, values = where(camera=camera, before=before, ends_after=after, ids=ids)
        with self._database.transaction() as connection:
            kept = 0
            if not include_open:
                (kept,) = connection.execute(
                    f"SELECT count(*) FROM events WHERE {' AND '.join(parts)} AND end_time IS NULL",  # noqa: S608  constant parts
                    values,
                ).fetchone()
                parts = [*parts, "end_time IS NOT NULL"]
            events = connection.execute(
                f"DELETE FROM events WHERE {' AND '.join(parts)}",  # noqa: S608  constant parts
                values,
            ).rowcount
        self._database.scrub()
        return Deleted(events=events, poses=0, kept_open=kept)

    def retain(self, retention: RetentionSettings, now: float) -> Deleted:
        """Delete expired data unless the clock is in doubt; age counts from the last change."""
        deleted = Deleted(events=0, poses=0, kept_open=0)
        with self._database.transaction() as connection:
            time = self._time.stamp(connection, now)
            if not self.clock_doubt:
                deleted = delete_old(connection, retention, time)
        if deleted.events or deleted.poses or not self._database.is_clean:
            self._database.scrub()
        return deleted

    @property
    def clock_doubt(self) -> str:
        """The reason why nothing is deleted by age; empty if the wall clock is believed."""
        return self._time.doubt

    def stored(self) -> Inventory:
        """Inventory of the store: counts, sizes and time ranges."""
        kept = []
        with self._database.snapshot() as connection:
            for table, holds in KINDS.items():
                key = "event_id" if table == "outbox" else "id"
                count, first, last, size = connection.execute(
                    "SELECT count(*), min(e.start_time), max(e.start_time), "  # noqa: S608  tables of KINDS
                    "coalesce(sum(length(CAST(t.body AS BLOB))), 0) "
                    f"FROM {table} t JOIN events e ON e.id = t.{key}"
                ).fetchone()
                what = table.replace("_", " ")
                kept.append(
                    Kept(what=what, holds=holds, count=count, first=first, last=last, bytes=size)
                )
            cameras = connection.execute("SELECT camera, count(*) FROM events GROUP BY camera")
            return Inventory(
                kept=tuple(kept),
                files={path: path.stat().st_size for path in self._database.files()},
                cameras=dict(cameras.fetchall()),
            )

    def backup(self, path: Path) -> None:
        """Write a consistent snapshot atomically while the site keeps running."""
        if path.exists() and any(path.samefile(file) for file in self._database.files()):
            raise DataError(
                f"{path}: expected a file other than the store itself, got the store",
                hint="write the backup to another disk",
            )
        remove_leftovers(path.parent)  # of backups with other names, such as dates
        with replacing(path, DataError) as temporary:
            self._database.copy(temporary)


def file_sizes(data: Path) -> dict[Path, int]:
    """Size in bytes of each entry of a data directory; directories include all files below."""
    return {
        path: sum(one.stat().st_size for one in (path, *path.rglob("*")) if one.is_file())
        for path in sorted(data.iterdir())
    }


def where(
    *,
    camera: str | None,
    before: float | None,
    starts_after: float | None = None,
    ends_after: float | None = None,
    ids: Sequence[str] | None = None,
    search: Search = EVERY,
) -> Conditions:
    """Conditions that all have to hold, and their values."""
    parts = [
        ("camera = ?", camera),
        ("start_time < ?", before),
        ("start_time >= ?", starts_after),
        ("coalesce(end_time, 9e99) >= ?", ends_after),
        ("id IN (SELECT value FROM json_each(?))", None if ids is None else json.dumps([*ids])),
        *_found_by(search),
    ]
    given = [(part, value) for part, value in parts if value is not None]
    return ["1", *(part for part, _ in given)], [value for _, value in given]


def _find(connection: sqlite3.Connection, id: str) -> Record | None:
    row = connection.execute("SELECT body FROM events WHERE id = ?", (id,)).fetchone()
    return None if row is None else decode(Record, row[0], "event")


def _check_found(found: int, id: str) -> None:
    if not found:
        raise DataError(
            f"event {id}: expected the id of a stored event, got an unknown id",
            hint="run stepvad events list to see the ids",
        )


def _outcome(kind: ChangeKind, before: Record | None, record: Record) -> Outcome:
    if before == record:
        return "repeated"
    if kind == "update" and not record.is_open:  # words that came after the end
        is_over = before is not None and before.end_time == record.end_time
        return "stored" if is_over else "ended"
    if before is None:
        return "stored"
    if not before.is_open:
        return "ended"
    if kind == "new" and before.start_time == record.start_time:  # its frames are scored again
        return "repeated"
    if kind == "new":
        raise DataError(f"event {record.id}: expected an update, got new for an event that is open")
    return "stored"


def _found_by(search: Search) -> list[tuple[str, Any]]:
    terms = search.terms
    return [
        ("(reviewed_at IS NOT NULL) = ?", search.is_seen),
        ("marked = ?", search.mark),
        ("EXISTS (SELECT 1 FROM json_each(body, '$.zones') WHERE value = ?)", search.zone),
        ("json_extract(body, '$.top_score') >= ?", search.min_score),
        (
            "json_extract(body, '$.top_score') >= ? * json_extract(body, '$.threshold')",
            search.min_times,
        ),
        (
            f"(SELECT min(instr({_TEXT}, value)) FROM json_each(?)) > 0",  # noqa: S608  constant
            None if terms is None else json.dumps(terms),
        ),
    ]


JUMP_S = DAY_S
"""A wall clock that differs by more from the saved time and the time since is in doubt."""
CONFIRM_S = 3 * DAY_S
"""Time for which a site runs until it believes a clock in doubt."""


class StoreClock:
    """Time by which rows get old: the wall clock, unless it jumped in the last days."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic, self._read_at = monotonic, monotonic()
        self.doubt = ""
        """The reason why nothing is deleted by age; empty if the clock is believed."""

    def stamp(self, connection: sqlite3.Connection, wall: float) -> float:
        """The time of the store, to stamp rows with; save it in the caller's transaction."""
        # the saved time with what has passed since, and for how long the clock has differed from it
        row = connection.execute("SELECT time, held_s FROM clock").fetchone()
        expected, held_s = row or (wall, 0.0)
        passed_s = self._monotonic() - self._read_at
        self._read_at += passed_s
        ahead_s = wall - expected - passed_s
        is_near = abs(ahead_s) <= JUMP_S
        held_s = 0.0 if is_near else held_s + passed_s
        is_held = held_s >= CONFIRM_S
        doubt = ""
        if not (is_near or is_held):
            days = f"{abs(ahead_s) / DAY_S:.0f} days {'ahead of' if ahead_s > 0 else 'behind'}"
            doubt = (
                f"the wall clock is {days} the time that has passed: nothing is deleted by age "
                f"until it is right, or has run for {CONFIRM_S / DAY_S:.0f} days"
            )
        follows = is_near or (is_held and ahead_s > 0)  # a slow clock is never followed
        expected, held_s = (wall, 0.0) if follows else (expected + passed_s, held_s)
        if bool(doubt) != bool(self.doubt):
            logger.warning("%s", doubt or "the wall clock is believed again")
        self.doubt = doubt
        connection.execute("INSERT OR REPLACE INTO clock VALUES (1, ?, ?)", (expected, held_s))
        return max(wall, expected)


def delete_old(
    connection: sqlite3.Connection, retention: RetentionSettings, time: float
) -> Deleted:
    """Delete ended events, and poses and explanations, that have expired by the store's time.

    Rows with the stamp of a clock that was ahead are as old as this moment.
    """
    connection.execute("UPDATE events SET stored = ?1 WHERE stored > ?1", (time,))
    old = "SELECT id FROM events WHERE stored < ? AND end_time IS NOT NULL"
    # poses of judged events stay with them: exceptions and their guard are made of them
    unjudged = {"explanations": old, "poses": f"{old} AND marked IS NULL"}
    events = connection.execute(
        f"DELETE FROM events WHERE id IN ({old})",  # noqa: S608  constant parts
        (time - retention.events_days * DAY_S,),
    ).rowcount
    poses = 0
    for table, expired in unjudged.items():
        poses = connection.execute(
            f"DELETE FROM {table} WHERE id IN ({expired})",  # noqa: S608  one of two tables
            (time - retention.poses_days * DAY_S,),
        ).rowcount
    return Deleted(events=events, poses=poses, kept_open=0)
