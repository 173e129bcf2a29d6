"""Changes of events on their way to the disk: in order, and never given up."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from stepvad.events import Kind
from stepvad.live.record import Record
from stepvad.poses import Clip

logger = logging.getLogger(__name__)

RETRY_S = 1.0
FLUSH_S = 5.0


class Changes(Protocol):
    """What stores a change."""

    def change(self, kind: Kind, record: Record) -> object:
        """Return when it is on the disk."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Cast:
    """The people of an event: their poses, and the frame of the peak."""

    clip: Clip
    first_slot: int
    peak_frame: int
    track: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One change, when its frame arrived, and what is known of the people."""

    kind: Kind
    record: Record
    arrived: float
    cast: Cast | None = None


class Ledger:
    """A thread that stores changes one after the other.

    What cannot be stored, on a full disk, waits in memory and is tried again; of updates of one
    event that wait together only the last is kept. `stored` hears of each that is on the disk,
    `trouble` how many wait and why, with no words when all is well again.
    """

    def __init__(
        self,
        store: Changes,
        *,
        stored: Callable[[Entry], None],
        trouble: Callable[[int, str], None],
        retry_s: float = RETRY_S,
    ) -> None:
        self._store, self._stored, self._trouble = store, stored, trouble
        self._retry_s = retry_s
        self._waiting: deque[Entry] = deque()
        self._news = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, within_s: float = FLUSH_S) -> int:
        """Store what waits; how many could not be stored in time."""
        with self._news:
            self._stopping = True
            self._news.notify_all()
        self._thread.join(within_s)
        return len(self)

    def __len__(self) -> int:
        """Changes that wait."""
        with self._news:
            return len(self._waiting)

    def put(self, entry: Entry) -> None:
        """One more change."""
        with self._news:
            latest = self._waiting[-1] if len(self._waiting) > 1 else None
            if (
                latest is not None
                and (latest.kind, entry.kind) == ("update", "update")
                and latest.record.id == entry.record.id
            ):
                self._waiting.pop()
            self._waiting.append(entry)
            self._news.notify_all()

    def _run(self) -> None:
        troubled = False
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return
                entry = self._waiting[0]
            try:
                self._store.change(entry.kind, entry.record)
            except Exception as error:  # a full disk, above all: nothing may be lost
                if not troubled:
                    logger.exception("an event could not be stored, it is tried again")
                troubled = True
                self._trouble(len(self), f"{error}" or type(error).__name__)
                if self._stopping:
                    return
                time.sleep(self._retry_s)
                continue
            with self._news:
                self._waiting.popleft()
            if troubled:
                troubled = False
                logger.warning("events are stored again")
                self._trouble(0, "")
            self._told(entry)

    def _told(self, entry: Entry) -> None:
        try:
            self._stored(entry)
        except Exception:
            logger.exception("event %s is stored, but what follows failed", entry.record.id)
