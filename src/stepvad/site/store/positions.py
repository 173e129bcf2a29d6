"""Positions of cameras whose frames a stream keeps: what is scored, and the state to go on from."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from stepvad.codec import Integer, Positive, decode, encode
from stepvad.errors import DataError
from stepvad.events.camera import CameraEventsState
from stepvad.site.store.database import Database, StoreError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far the frames of a camera are scored; from here on they give the same events again."""

    camera: str
    connection: Integer | None
    """Number in the stream of the first frame of its connection; None if that has ended."""
    epoch: Integer
    """Number of the connection, by the device."""
    former: Integer
    """That of the one before, whose late frames are skipped."""
    rate: Positive
    done: Integer
    """The last frame scored."""
    first: Integer
    """The frame from which on windows and kept poses are built again."""
    seq: Integer
    """Its number in the stream."""
    state: CameraEventsState | None
    """None while the camera has no model."""
    version: Literal[1] = 1


@dataclass(slots=True, eq=False)
class PositionBatch:
    """Positions on their way to the disk."""

    positions: Sequence[Position]
    after: int = 0
    """Number of the last change of an event that they follow from."""
    is_explained: bool = False
    """True once the events of those changes have their words."""
    is_over: bool = False
    """True once it is stored, or was refused."""


class Positions:
    """The positions in the store of a site.

    A position is not in the transaction of its events. It goes the way of their words, behind
    changes, explanations and words, so it is never ahead of any of them; frames that are scored
    again for it give events with the same ids, which the store knows. So it needs no commit of
    its own for each event, and updates of events may still replace each other on the way.
    The first one of a camera follows from no event: it is stored before there is one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.loaded: frozenset[str] = frozenset()
        """Cameras that go on from a position: their open events are not interrupted."""

    def load(self, cameras: Collection[str]) -> dict[str, Position]:
        """The positions of these cameras; those of others are deleted."""
        found = {}
        with suppress(StoreError):  # without a disk, all that the stream holds is scored again
            for camera, body in self._database.rows("SELECT camera, body FROM positions"):
                try:
                    found[camera] = decode(Position, body, f"position of camera {camera}")
                except DataError as error:
                    logger.warning("%s; its events begin anew", error)
            self._database.change(
                "DELETE FROM positions WHERE camera NOT IN (SELECT value FROM json_each(?))",
                json.dumps([*cameras]),
            )
        found = {camera: one for camera, one in found.items() if camera in cameras}
        self.loaded = frozenset(found)
        return found

    def store(self, positions: Sequence[Position]) -> None:
        """Replace the positions of some cameras."""
        rows = [(one.camera, encode(one).decode()) for one in positions]
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", rows)
