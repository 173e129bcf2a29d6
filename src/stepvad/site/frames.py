"""Frames on their way to scoring, and the states of the cameras that send them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from stepvad.events.record import EndedBy
from stepvad.poses import Pose
from stepvad.site.load import LoadState
from stepvad.site.stages import Stage
from stepvad.site.status import CaptureState, LiveStatus
from stepvad.site.store.positions import Position

logger = logging.getLogger(__name__)

WAITING = 8
"""Frames of a camera queued for scoring; older ones are stale."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueuedFrame:
    """One frame of one camera: the poses of the people in it."""

    camera: str
    connection: int
    """Differs between any two connections of a camera."""
    rate: float
    """Slots per second."""
    wall0: float
    """Wall-clock time of slot 0, by the frames that arrived lately."""
    slot: int
    arrived: float
    """Arrival by the monotonic clock."""
    size: tuple[int, int]
    poses: Sequence[Pose]
    epoch: int | None = None
    """Number of the connection in ids of events, if the camera gives it."""
    seq: int = 0
    """Number in the stream that keeps the frame, if one does."""
    is_replayed: bool = False
    """True if it was scored before a restart: windows need its people again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The camera is offline, or frames of it are gone; no window spans this."""

    by: EndedBy = "camera lost"
    """What ends its open event."""


Item = QueuedFrame | Lost


@dataclass(slots=True, eq=False)
class _Queue:
    """What waits of one camera."""

    items: deque[Item] = field(default_factory=deque)
    latest: tuple[int, int] = (-1, -1)
    """Connection and slot of the newest frame."""


class FrameQueues:
    """The frames of all cameras that wait for scoring; when full they drop and count the oldest."""

    def __init__(self, cameras: Iterable[str], counts: LiveStatus) -> None:
        self._queues = {camera: _Queue() for camera in cameras}
        self._counts = counts
        self._changed = threading.Condition()
        self._closed = False

    def put(self, frame: QueuedFrame) -> None:
        """Add a frame; one that comes twice or late is skipped."""
        self._counts.count(frame.camera, "frames_in")
        with self._changed:
            queue, (connection, slot) = self._queues[frame.camera], (frame.connection, frame.slot)
            if queue.latest[0] == connection and slot <= queue.latest[1]:
                self._counts.count(frame.camera, "skipped")
                return
            queue.latest = connection, slot
            queue.items.append(frame)
            frames = [at for at, item in enumerate(queue.items) if isinstance(item, QueuedFrame)]
            if len(frames) > WAITING:
                del queue.items[frames[0]]
                self._counts.count(frame.camera, "shed")
            self._changed.notify_all()

    def skip(self, camera: str) -> None:
        """Count a frame that cannot be used."""
        self._counts.count(camera, "skipped")

    def wait_for_room(self, camera: str, timeout_s: float) -> bool:
        """True once the next frame of a camera drops none; for sources that can wait."""
        with self._changed:
            items = self._queues[camera].items
            return self._changed.wait_for(lambda: len(items) < WAITING, timeout_s)

    def lose(self, camera: str, by: EndedBy = "camera lost") -> None:
        """Mark a camera as lost; frames already queued are still scored."""
        with self._changed:
            self._queues[camera].items.append(Lost(by))
            self._changed.notify_all()

    def next(self, timeout_s: float) -> list[tuple[str, Item]]:
        """Take the next items to score, at most one per camera."""

        def has_some() -> bool:
            return self._closed or any(queue.items for queue in self._queues.values())

        with self._changed:
            self._changed.wait_for(has_some, timeout_s)
            self._changed.notify_all()  # whoever waits for room
            return [
                (camera, queue.items.popleft())
                for camera, queue in self._queues.items()
                if queue.items
            ]

    def close(self) -> None:
        """Wake whoever waits, now and later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def size(self) -> int:
        """Total number of items held."""
        with self._changed:
            return sum(len(queue.items) for queue in self._queues.values())


@runtime_checkable
class CameraListener(Protocol):
    """Hears what becomes of cameras, for example to publish it to a broker; must not block."""

    def status(self, camera: str, state: Literal["online", "offline"]) -> None:
        """Handle a state change."""
        ...

    def load(self, camera: str, state: LoadState) -> None:
        """Handle that a camera becomes overloaded, or that this is over."""
        ...


class CameraStates:
    """The states of all cameras as listeners and the page know them; thread-safe."""

    def __init__(self, status: LiveStatus, frames: FrameQueues) -> None:
        self.listeners: list[CameraListener] = []
        self._status, self._frames = status, frames
        self._lock = threading.RLock()
        self._shown: dict[str, CaptureState] = {}
        self._was_online: set[str] = set()

    def report(
        self, camera: str, state: CaptureState, reason: str, *, is_over: bool = False
    ) -> None:
        """Publish a camera's state; one that is not online is marked as lost in the queues."""
        with self._lock:
            level = logging.INFO if state == "online" or is_over else logging.WARNING
            level = logging.ERROR if state == "failed" else level
            logger.log(level, "camera %s is %s: %s", camera, state, reason)
            # back again, or lost: what went on before is over
            if state == "online":
                if camera in self._was_online and self._shown.get(camera) != "online":
                    self._status.count(camera, "reconnects")
                self._was_online.add(camera)
            else:
                self._frames.lose(camera)
            self._shown[camera] = state
            self._status.state(camera, state, "" if state == "online" else reason, time.time())
            for listener in self.listeners:
                listener.status(camera, "online" if state == "online" else "offline")

    def listen(self, listener: CameraListener) -> None:
        """Report states to a listener from now on, and those that are known at once."""
        with self._lock:
            self.listeners.append(listener)
            for camera, state in self._shown.items():
                listener.status(camera, "online" if state == "online" else "offline")

    def forget(self, listener: object) -> None:
        """Report no more to a listener, if it is one."""
        with self._lock:
            self.listeners[:] = [one for one in self.listeners if one is not listener]


class PoseSource(Protocol):
    """Has the frames of cameras that find people themselves, and keeps them for a while."""

    def stage(
        self,
        cameras: Mapping[str, str],
        positions: Mapping[str, Position],
        frames: FrameQueues,
        states: CameraStates,
    ) -> Stage:
        """The stage that queues the frames of cameras, by name and address.

        Frames up to the position of a camera are marked as replayed. None is dropped: the stage
        waits while the queue of a camera is full.
        """
        ...
