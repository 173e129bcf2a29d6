"""Batch a camera's frames into messages for the bus, with bounded delay."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepvad.events.camera import MOST_PEOPLE
from stepvad.fleet.wire import CameraConnection, CoordinatePrecision, batch_of, encode
from stepvad.poses import Pose
from stepvad.site.frames import QueuedFrame
from stepvad.skeletons import Skeleton

CROWD = 1000
"""A batch is sent once it holds this many people, to keep messages small."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EncodedBatch:
    """One message ready to send."""

    camera: str
    id: str
    """Stays the same when resent, for deduplication; nobody else can guess it."""
    data: bytes
    frames: int
    connection: CameraConnection


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """Stream parameters of one camera."""

    site: str
    camera: str
    rate: float
    skeleton: Skeleton
    precision: CoordinatePrecision = "f4"
    most: int = 5
    """Most frames in a message."""
    wait_s: float = 0.2
    """Longest time a frame is held to fill a batch."""


class FrameBatcher:
    """Batches the frames of one camera; each connection gets a unique epoch."""

    def __init__(self, label: StreamInfo, next_epoch: Callable[[], int]) -> None:
        self.label = label
        self._next_epoch = next_epoch
        self._connection: int | None = None
        self._epoch, self._wall0, self._seq = 0, 0.0, 0
        self._secret = ""
        self._size = (0, 0)
        self._frames: list[tuple[int, list[Pose]]] = []
        self._since = 0.0
        """When the oldest buffered frame was added."""
        self.seen: list[Pose] = []
        """Poses of the latest frame."""

    def add(self, frame: QueuedFrame, now: float) -> list[EncodedBatch]:
        """Add a frame and return the messages that are complete."""
        done: list[EncodedBatch] = []
        if frame.connection != self._connection:
            done += self.lose("another connection")
            self._begin(frame)
        if frame.size != self._size:
            done += self.flush()
            self._size = frame.size
        if not self._frames:
            self._since = now
        self.seen = self._poses(frame)
        self._frames.append((frame.slot, self.seen))
        people = sum(len(seen) for _, seen in self._frames)
        if len(self._frames) >= self.label.most or people >= CROWD:
            done += self.flush()
        return done

    def due(self, now: float) -> list[EncodedBatch]:
        """Flush if the oldest frame has been held for `wait_s`."""
        return self.flush() if self._frames and now - self._since >= self.label.wait_s else []

    def flush(self) -> list[EncodedBatch]:
        """Return the buffered frames as a message."""
        frames, self._frames = self._frames, []
        if not frames:
            return []
        batch = self._encoded(frames)
        self._seq += len(frames)
        return [batch]

    def lose(self, reason: str) -> list[EncodedBatch]:
        """End the connection: flush, then add a message that the camera was lost."""
        if self._connection is None:
            return []
        done = [*self.flush(), self._encoded([], lost=reason)]
        self._connection = None
        return done

    def wall(self, slot: int) -> float:
        """Wall-clock time of a slot."""
        return self._wall0 + slot / self.label.rate

    def _poses(self, frame: QueuedFrame) -> list[Pose]:
        """Poses of a frame with the joints that are expected."""
        found = [p for p in frame.poses if len(p.keypoints) == self.label.skeleton.V]
        return found if len(found) <= MOST_PEOPLE else []  # as on a site

    def _begin(self, frame: QueuedFrame) -> None:
        self._epoch, self._secret = self._next_epoch(), secrets.token_hex(8)
        self._connection, self._wall0, self._seq = frame.connection, frame.wall0, 0
        self._size = frame.size

    def _encoded(
        self, frames: Sequence[tuple[int, Sequence[Pose]]], lost: str | None = None
    ) -> EncodedBatch:
        label = self.label
        connection = CameraConnection(
            site=label.site,
            camera=label.camera,
            epoch=self._epoch,
            wall0=self._wall0,
            rate=label.rate,
            size=self._size,
            skeleton=label.skeleton,
        )
        batch = batch_of(frames, connection, self._seq, lost)
        end = "" if lost is None else ":lost"
        return EncodedBatch(
            camera=label.camera,
            id=f"{label.site}/{label.camera}:{self._epoch}:{self._secret}:{self._seq}{end}",
            data=encode(batch, label.precision),
            frames=len(frames),
            connection=connection,
        )
