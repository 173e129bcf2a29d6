"""Synchronous access to the events of a fleet, for the page."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from stepvad.errors import DataError
from stepvad.events.record import (
    EVERY,
    KINDS,
    Deleted,
    Inventory,
    Kept,
    Mark,
    Record,
    Review,
    Search,
)
from stepvad.fleet.event_loop import CLOSE_S, EventLoopThread
from stepvad.fleet.events.postgres import (
    COMMAND_S,
    CONNECT_S,
    FleetEvents,
    NoDatabaseError,
    Wanted,
    connect,
)

if TYPE_CHECKING:
    from stepvad.explain.event import EventExplanation

T = TypeVar("T")
WITHIN_S = COMMAND_S + CONNECT_S
STALE_S = 3600.0
COUNT_S = 2.0
"""Shortest time between two counts of all events, regardless of the number of viewers."""


class EventReader:
    """Reads a fleet's events for a page; `site/` as a camera selects the whole site."""

    def __init__(self, dsn: str) -> None:
        self._thread = EventLoopThread("events")
        self._open = AsyncExitStack()
        self._counted: tuple[float, Inventory | None] = 0.0, None
        """When events were last counted, and the result."""
        try:
            self._events: FleetEvents = self._thread.wait(
                self._open.enter_async_context(connect(dsn)), WITHIN_S
            )
        except BaseException:
            self._thread.close()
            raise

    def close(self) -> None:
        """Close the database connections."""
        self._thread.wait(self._open.aclose(), CLOSE_S)
        self._thread.close()

    def check(self) -> None:
        """Reject a database of another version."""
        self._wait(self._events.check())

    def event(self, id: str) -> Record | None:
        """The event with this id."""
        return self._wait(self._events.event(id))

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
        """Events, newest first."""
        site, camera = Wanted.parts(camera)
        wanted = Wanted(
            site=site, camera=camera, since=since, until=until, open=open, search=search
        )
        return self._wait(self._events.events(wanted, limit=limit, before_id=before_id))

    def to_review(self) -> int:
        """Number of events that nobody has seen, `MOST_COUNTED` at most."""
        return self._wait(self._events.to_review())

    def mark(self, id: str, mark: Mark | None, by: str = "") -> None:
        """Judge an event, or take the judgement back."""
        self._wait(self._events.mark(id, mark, by))

    def see(self, id: str, now: float, by: str = "") -> None:
        """Note that somebody has seen an event; the time is the database's."""
        self._wait(self._events.see(id, by))

    def reviews(self, ids: Sequence[str] | None = None) -> Mapping[str, Review]:
        """What was said of events that somebody has seen; of all, or of those with these ids."""
        return self._wait(self._events.reviews(ids))

    def delete(
        self,
        *,
        camera: str | None = None,
        before: float | None = None,
        after: float | None = None,
        ids: Sequence[str] | None = None,
    ) -> Deleted:
        """Delete ended events."""
        site, camera = Wanted.parts(camera)
        wanted = Wanted(site=site, camera=camera, until=before, ends_after=after, ids=ids)
        done = self._wait(self._events.delete(wanted))
        self._counted = 0.0, None
        return done

    def stored(self) -> Inventory:
        """What is stored: counts, bytes and time range."""
        at, known = self._counted
        if known is not None and time.monotonic() - at < COUNT_S:
            return known
        found = self._wait(self._events.totals(stale_s=STALE_S))
        kept = Kept(
            what="events",
            holds=KINDS["events"],
            count=found.events,
            first=found.first,
            last=found.last,
            bytes=found.bytes,
        )
        made = Inventory(kept=(kept,), files={}, cameras=found.cameras)
        self._counted = time.monotonic(), made
        return made

    def explanation(self, id: str) -> EventExplanation:
        """Always raise `DataError`: a fleet stores no poses with its events."""
        raise DataError(f"event {id}: expected its poses, got none: a fleet keeps no poses")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._thread.wait(work, WITHIN_S)
        except TimeoutError:
            raise NoDatabaseError("database: expected an answer in time, got none") from None
