"""Events that a former owner of a shard published after its last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set
from contextlib import suppress

from stepvad.fleet.broker.bus import Position
from stepvad.fleet.wire import EventMessage, UnreadableError, decode_event
from stepvad.fleet.worker.scoring import Announcement

logger = logging.getLogger(__name__)


FORGET_S = 20.0
"""After a takeover frames may still come: edges send their latest again if a broker lost them."""


class RecalledEvents:
    """Those that did not end; replaying the frames recreates most of them."""

    def __init__(self) -> None:
        self._open: dict[str, EventMessage] = {}
        self._since = 0
        self._until = Position()
        """The last message of poses that the former owner can have seen."""
        self._due = 0.0

    def load(self, said: Iterable[bytes], *, since: int, until: Position, now: float) -> None:
        """Read what the former owner published after message `since` of the events."""
        self._since, self._until, self._due = since, until, now + FORGET_S
        for data in said:
            with suppress(UnreadableError):
                message = decode_event(data)
                if message is not None and message.kind == "end":
                    self._open.pop(message.after.id, None)
                elif message is not None:
                    self._open[message.after.id] = message

    @property
    def since(self) -> int | None:
        """After which message of the events a successor has to read; None if nothing is open."""
        return self._since if self._open else None

    def recreate(self, ids: Iterable[str]) -> None:
        """Leave events to the cameras that made them again."""
        for id in ids:
            self._open.pop(id, None)

    def is_due(self, position: Position, now: float, *, is_drained: bool) -> bool:
        """Whether all frames that the former owner saw were read again, if they still exist."""
        until = self._until
        is_read = position.stream != until.stream or position.sequence >= until.sequence
        return now >= self._due and (is_read or is_drained)

    def forgotten(self, known: Set[str]) -> list[Announcement]:
        """End those that were not recreated because their frames have expired."""
        found: list[Announcement] = []
        for id_, message in self._open.items():
            if id_ not in known:
                logger.info("event %s: its frames are gone", id_)
                record = message.after.ended("interrupted", message.after.start_time)
                found.append(Announcement(message.site, "end", message.after, record, 0, 0.0))
        self._open.clear()
        return found

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._open)
