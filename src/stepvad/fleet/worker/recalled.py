"""Events that a former owner of a shard published after its last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Set
from contextlib import suppress

from stepvad.fleet.wire import EventMessage, UnreadableError, decode_event
from stepvad.fleet.worker.scoring import Announcement

logger = logging.getLogger(__name__)


class RecalledEvents:
    """Those that did not end; replaying the frames recreates most of them."""

    def __init__(self) -> None:
        self._open: dict[str, EventMessage] = {}
        self._moved: set[str] = set()
        """Events that go on in another shard, with their camera."""

    def load(self, said: Iterable[bytes]) -> None:
        """Read what the former owner published."""
        for data in said:
            with suppress(UnreadableError):
                message = decode_event(data)
                if message is not None and message.kind == "end":
                    self._open.pop(message.after.id, None)
                elif message is not None:
                    self._open[message.after.id] = message

    def move(self, id: str) -> None:
        """Leave an event to another shard."""
        self._moved.add(id)

    def forgotten(self, known: Set[str]) -> list[Announcement]:
        """End those that were not recreated because their frames have expired."""
        found: list[Announcement] = []
        for id_, message in self._open.items():
            if id_ not in known | self._moved:
                logger.info("event %s: its frames are gone", id_)
                record = message.after.ended("interrupted", message.after.start_time)
                found.append(Announcement(message.site, "end", message.after, record, 0, 0.0))
        self._open.clear()
        return found

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._open)
