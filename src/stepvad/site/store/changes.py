"""Changes of events on their way to the disk; sinks take them from memory if it refuses them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from stepvad.events.camera import in_words
from stepvad.events.record import Record, SinkMessage, message
from stepvad.events.rules import ChangeKind
from stepvad.poses import Clip
from stepvad.site.store.positions import PositionBatch

PATIENCE_S = 5.0
"""Once the disk has refused a change for so long, sinks take changes from memory."""
MOST_POSES = 100
"""Queued changes that keep their poses, the latest; others keep about 2 kB each."""
MOST_KNOWN = 1000
"""Events whose state and words are remembered for later changes of them, about 2 kB each."""
ChangeKey = tuple[str, ChangeKind, int]
"""Event, kind and version of a change: what names a message."""


@dataclass(slots=True, eq=False)
class PendingChange:
    """An event change, the arrival time of its frame, and the poses of its people."""

    kind: ChangeKind
    record: Record
    arrived: float
    """Monotonic time."""
    poses: EventPoses | None = None
    words: tuple[str, str | None] | None = None
    """An explanation, and how strange the event was: all that an update with them changes."""
    is_news: bool = True
    """False if it changes nothing: it has poses to explain, and no message."""
    before: Record | None = None
    """The event as it was queued last."""
    queued: float = 0.0
    """Monotonic time."""
    number: int = 0
    """Counts the changes queued."""
    is_told: bool = False
    """True once it was logged, counted and explained."""

    @property
    def key(self) -> ChangeKey:
        """What names its message."""
        return self.record.id, self.kind, self.record.version

    @property
    def message(self) -> SinkMessage:
        """Its message while it is not stored."""
        return replace(message(self.kind, self.before, self.record), stored=False)


@dataclass(frozen=True, slots=True, eq=False)
class EventPoses:
    """The people of an event: their poses, and the frame of the peak."""

    clip: Clip
    peak_frame: int
    track: int


class ChangeQueue:
    """Queue of changes to be written; thread-safe.

    Starts and ends of events are never dropped. Of the updates of an event only the last is kept,
    and only the latest `MOST_POSES` changes keep their poses: the size is bounded by the number of
    events that start while the disk is unavailable.
    """

    def __init__(
        self,
        next_version: Callable[[], int] = lambda: 0,
        *,
        refused_s: Callable[[], float] = lambda: 0.0,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`next_version` numbers the changes; `refused_s`: how long the disk has refused writes."""
        self.on_overdue: Callable[[], None] = lambda: None
        """Called when a change is queued that sinks may take at once."""
        self._next_version, self._refused_s = next_version, refused_s
        self._patience_s, self._clock = patience_s, clock
        self._waiting: deque[PendingChange] = deque()
        self._number = 0
        self._batches: deque[PositionBatch] = deque()
        self._known: dict[str, Record] = {}
        """The events changed last, as they are to be stored, by id."""
        self._words: dict[str, tuple[str, str | None]] = {}
        """The words of their explanations."""
        self._news = threading.Condition(threading.RLock())

    def put(self, change: PendingChange) -> None:
        """Add a change, with the next version and in the latest words of its event."""
        with self._news:
            id, record = change.record.id, change.record
            known = self._known.pop(id, None)
            # words alone leave the rest of an event as it was, all else leaves its words
            if change.words is not None:
                self._words[id], record = change.words, known or record
            if id in self._words:
                record = in_words(record, *self._words[id])
            change.is_news = known is None or replace(record, version=known.version) != known
            if known is None or change.is_news:
                record = replace(record, version=self._next_version())
            else:
                record = known
            change.record, change.before, change.queued = record, known, self._clock()
            self._known[id] = record
            if len(self._known) > MOST_KNOWN:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._words.pop(oldest, None)
            if not change.is_news and change.poses is None:
                return
            # of the updates of an event only the latest counts; the oldest change may be on its
            # way to the disk: it is never replaced
            for earlier in islice(self._waiting, 1, None) if change.is_news else ():
                if change.kind == earlier.kind == "update" and earlier.record.id == id:
                    change.poses = change.poses or earlier.poses
                    self._waiting.remove(earlier)
                    break
            self._number += 1
            change.number = self._number
            self._waiting.append(change)
            # poses are what takes memory
            if len(self._waiting) > MOST_POSES:
                self._waiting[-MOST_POSES - 1].poses = None
            self._news.notify_all()
        if self.is_overdue:
            self.on_overdue()

    def first(self, timeout_s: float) -> PendingChange | None:
        """The oldest change, without removing it; None if there is none before the timeout.

        None as well if positions are due: they are stored before it.
        """
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._batches, timeout_s)
            return self._waiting[0] if self._waiting and not self._has_due() else None

    def done(self) -> None:
        """Remove the oldest change, once it is stored."""
        with self._news:
            self._waiting.popleft()

    def put_positions(self, batch: PositionBatch) -> None:
        """Add positions that follow from all changes queued so far, and come before all others."""
        with self._news:
            batch.after = self._number
            self._batches.append(batch)
            self._news.notify_all()

    def due_positions(self) -> PositionBatch | None:
        """Take the oldest positions if the changes that they follow from are stored."""
        with self._news:
            return self._batches.popleft() if self._has_due() else None

    def _has_due(self) -> bool:
        if not self._batches:
            return False
        return not self._waiting or self._waiting[0].number > self._batches[0].after

    def give_up(self) -> None:
        """Let sinks take at once what is left: nothing more will be stored."""
        self._patience_s = 0.0
        self.on_overdue()

    @property
    def is_overdue(self) -> bool:
        """True if the disk has refused the oldest change, or any write, for too long."""
        return self.due_s() == 0.0

    def due_s(self) -> float:
        """Seconds until sinks may take what waits; 0 from then on, infinite if nothing waits."""
        with self._news:
            if not self._waiting:
                return math.inf
            waited_s = max(self._clock() - self._waiting[0].queued, self._refused_s())
            return max(self._patience_s - waited_s, 0.0)

    def age_s(self, change: PendingChange) -> float:
        """Seconds since a change was queued."""
        return self._clock() - change.queued

    def waiting(self) -> list[PendingChange]:
        """All changes, the oldest first."""
        with self._news:
            return [*self._waiting]

    def records(self) -> dict[str, Record]:
        """Events of which a change waits, by id, as they will be stored."""
        return {one.record.id: one.record for one in self.waiting()}

    def __len__(self) -> int:
        """Number of queued changes."""
        with self._news:
            return len(self._waiting)
