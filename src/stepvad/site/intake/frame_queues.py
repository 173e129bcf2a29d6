"""Frame queues between cameras, pose workers and scoring; full queues drop the oldest frame."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from stepvad.people import People
from stepvad.poses import Pose
from stepvad.site.intake.frame_buffers import SharedImage
from stepvad.site.slots import TimeOrder

WAITING = 4
"""Frames of a camera queued for the networks; older ones are stale."""
READY = 8
"""Frames of a camera with poses queued for scoring."""
TRIES = 3
"""Attempts per frame: one that crashes this many workers is skipped."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class QueuedFrame:
    """One frame of one camera: an image, later the people or poses in it."""

    camera: str
    number: int
    """Counts the frames sent by the camera's source, from 0."""
    connection: int
    """Counts the connections of the source."""
    wall0: float
    """Wall-clock time of slot 0, by the frames that arrived lately."""
    slot: int
    arrived: float
    """Arrival by the monotonic clock."""
    size: tuple[int, int]
    image: SharedImage | None = None
    """Freed by the queues as soon as no worker needs it."""
    people: People | None = None
    poses: Sequence[Pose] | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """The camera is offline; no frames follow for now."""


Item = QueuedFrame | Lost
FrameCounterName = Literal["frames_in", "shed", "skipped"]


class FrameCounter(Protocol):
    """Counts the outcome of frames; usually a `Board`."""

    def count(self, name: str, field: FrameCounterName, n: int = 1) -> None:
        """Add `n` frames of a camera to a counter."""
        ...


@dataclass(slots=True, eq=False)
class _Queue:
    """The queues of one camera."""

    waiting: deque[QueuedFrame] = field(default_factory=deque)
    taken: dict[int, QueuedFrame | None] = field(default_factory=dict)
    """Frames given to a worker, in order; None until the worker returns the people."""
    ready: deque[Item] = field(default_factory=deque)
    order: TimeOrder[QueuedFrame] = field(default_factory=TimeOrder)
    is_lost: bool = False
    """Whether the camera is lost once everything queued is processed."""


class FrameQueues:
    """The queues of all cameras; when full they drop the oldest frames and count them."""

    def __init__(
        self,
        cameras: Iterable[str],
        counts: FrameCounter,
        *,
        waiting: int = WAITING,
        ready: int = READY,
    ) -> None:
        self._queues: Mapping[str, _Queue] = {camera: _Queue() for camera in cameras}
        self._turns = deque(self._queues)
        self._counts = counts
        self._max_waiting, self._max_ready = waiting, ready
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._ready = threading.Condition(self._lock)
        self._closed = False

    def put(self, frame: QueuedFrame) -> None:
        """Add a frame from a source; duplicate and late frames are skipped."""
        self._counts.count(frame.camera, "frames_in")
        with self._lock:
            queue = self._queues[frame.camera]
            before = queue.order.dropped
            for one in queue.order.push(frame.number, frame):
                self._enter(queue, one)
            if queue.order.dropped > before:
                _free(frame)
                self._counts.count(frame.camera, "skipped", queue.order.dropped - before)

    def lose(self, camera: str) -> None:
        """Mark a camera as lost; frames already queued are still scored."""
        with self._lock:
            queue = self._queues[camera]
            for frame in queue.order.flush():
                self._enter(queue, frame)
            queue.is_lost = True
            self._release(queue)

    def take(self, most: int, timeout_s: float) -> list[QueuedFrame]:
        """Take up to `most` of the oldest frames for the networks, round-robin over the cameras."""
        with self._lock:
            self._work.wait_for(lambda: self._closed or self._has_work(), timeout_s)
            taken: list[QueuedFrame] = []
            while len(taken) < most and not self._closed and self._has_work():
                self._turns.rotate(-1)
                queue = self._queues[self._turns[-1]]
                if queue.waiting:
                    frame = queue.waiting.popleft()
                    queue.taken[frame.number] = None
                    taken.append(frame)
            return taken

    def give_back(self, frames: Sequence[QueuedFrame]) -> None:
        """Requeue the frames of a dead worker at the front; skip those out of attempts."""
        with self._lock:
            for frame in reversed(frames):
                queue = self._queues[frame.camera]
                again = replace(frame, tries=frame.tries + 1)
                if again.tries >= TRIES:
                    self._leave_out(queue, frame, "skipped")
                else:
                    queue.waiting.appendleft(again)
                    self._shed(queue)
            self._work.notify_all()

    def finish(self, frame: QueuedFrame, people: People | None) -> None:
        """Store the people found in a frame; None if the networks failed on it."""
        with self._lock:
            queue = self._queues[frame.camera]
            if people is None:
                self._leave_out(queue, frame, "skipped")
            else:
                _free(frame)
                queue.taken[frame.number] = replace(frame, image=None, people=people)
                self._release(queue)

    def next(self, timeout_s: float) -> list[tuple[str, Item]]:
        """Take the next items to score, at most one per camera."""
        with self._lock:
            self._ready.wait_for(lambda: self._closed or self._has_ready(), timeout_s)
            return [
                (camera, queue.ready.popleft())
                for camera, queue in self._queues.items()
                if queue.ready
            ]

    def close(self) -> None:
        """Stop handing out frames to workers, and wake all waiting threads."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._ready.notify_all()

    def size(self) -> int:
        """Total number of items held."""
        with self._lock:
            return sum(
                len(queue.waiting) + len(queue.taken) + len(queue.ready)
                for queue in self._queues.values()
            )

    def _has_work(self) -> bool:
        return any(queue.waiting for queue in self._queues.values())

    def _has_ready(self) -> bool:
        return any(queue.ready for queue in self._queues.values())

    def _enter(self, queue: _Queue, frame: QueuedFrame) -> None:
        queue.is_lost = False  # the new frame's connection number already marks the gap
        if frame.image is None:
            self._hand_on(queue, frame)
            return
        queue.waiting.append(frame)
        self._shed(queue)
        self._work.notify()

    def _shed(self, queue: _Queue) -> None:
        while len(queue.waiting) > self._max_waiting:
            self._leave_out(queue, queue.waiting.popleft(), "shed")

    def _leave_out(
        self, queue: _Queue, frame: QueuedFrame, why: Literal["shed", "skipped"]
    ) -> None:
        _free(frame)
        queue.taken.pop(frame.number, None)
        self._counts.count(frame.camera, why, 1)
        self._release(queue)

    def _release(self, queue: _Queue) -> None:
        """Pass processed frames on in order, up to the first unfinished one."""
        while queue.taken:
            number = next(iter(queue.taken))
            done = queue.taken[number]
            if done is None:
                return
            del queue.taken[number]
            self._hand_on(queue, done)
        if queue.is_lost and not queue.waiting:
            queue.is_lost = False
            queue.ready.append(Lost())
            self._ready.notify()

    def _hand_on(self, queue: _Queue, frame: QueuedFrame) -> None:
        queue.ready.append(frame)
        frames = sum(isinstance(item, QueuedFrame) for item in queue.ready)
        if frames > self._max_ready:
            oldest = next(i for i, item in enumerate(queue.ready) if isinstance(item, QueuedFrame))
            del queue.ready[oldest]
            self._counts.count(frame.camera, "shed", 1)
        self._ready.notify()


def _free(frame: QueuedFrame) -> None:
    if frame.image is not None:
        frame.image.free()
