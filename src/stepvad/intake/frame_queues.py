"""Frames on their way from cameras to scores, in queues that shed the oldest."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from stepvad.intake.time_slots import TimeOrder
from stepvad.poses import Pose
from stepvad.video.people import People
from stepvad.video.pixels import Image

WAITING = 4
"""Frames of a camera that wait for the networks; older ones are stale."""
READY = 8
"""Frames of a camera with poses that wait to be scored."""
TRIES = 3
"""How often a frame may take a worker with it before it is left out."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Frame:
    """One frame of one camera: a picture, and later the people or poses in it."""

    camera: str
    number: int
    """Counts what the camera's source sends, from 0."""
    connection: int
    """Counts the connections of the source."""
    wall0: float
    """When the connection began, by the wall clock."""
    slot: int
    arrived: float
    """By the monotonic clock."""
    size: tuple[int, int]
    image: Image | None = None
    people: People | None = None
    poses: Sequence[Pose] | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """Nothing follows for now: the camera is gone."""


Item = Frame | Lost
Counted = Literal["frames_in", "shed", "skipped"]


class Counts(Protocol):
    """Counts what becomes of frames; a `Board`, as a rule."""

    def count(self, name: str, field: Counted, n: int = 1) -> None:
        """So many more frames of a camera."""
        ...


@dataclass(slots=True, eq=False)
class _Queue:
    """The frames of one camera."""

    waiting: deque[Frame] = field(default_factory=deque)
    taken: dict[int, Frame | None] = field(default_factory=dict)
    """Those with a worker, or back from one, in order; None until there are people."""
    ready: deque[Item] = field(default_factory=deque)
    order: TimeOrder[Frame] = field(default_factory=TimeOrder)
    is_lost: bool = False
    """Whether the camera is gone once everything here is done."""


class FrameQueues:
    """The queues of all cameras; each sheds whole frames, oldest first, and counts them."""

    def __init__(
        self, cameras: Iterable[str], counts: Counts, *, waiting: int = WAITING, ready: int = READY
    ) -> None:
        self._queues: Mapping[str, _Queue] = {camera: _Queue() for camera in cameras}
        self._turns = deque(self._queues)
        self._counts = counts
        self._max_waiting, self._max_ready = waiting, ready
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._ready = threading.Condition(self._lock)
        self._closed = False

    def put(self, frame: Frame) -> None:
        """A frame has come; twice or too late it is left out."""
        self._counts.count(frame.camera, "frames_in")
        with self._lock:
            queue = self._queues[frame.camera]
            before = queue.order.dropped
            for one in queue.order.push(frame.number, frame):
                self._enter(queue, one)
            if queue.order.dropped > before:
                self._counts.count(frame.camera, "skipped", queue.order.dropped - before)

    def lose(self, camera: str) -> None:
        """The camera is gone; what came before is still scored."""
        with self._lock:
            queue = self._queues[camera]
            for frame in queue.order.flush():
                self._enter(queue, frame)
            queue.is_lost = True
            self._release(queue)

    def take(self, most: int, timeout_s: float) -> list[Frame]:
        """The oldest frames for the networks, from one camera after the other."""
        with self._lock:
            self._work.wait_for(lambda: self._closed or self._has_work(), timeout_s)
            taken: list[Frame] = []
            while len(taken) < most and not self._closed and self._has_work():
                self._turns.rotate(-1)
                queue = self._queues[self._turns[-1]]
                if queue.waiting:
                    frame = queue.waiting.popleft()
                    queue.taken[frame.number] = None
                    taken.append(frame)
            return taken

    def give_back(self, frames: Sequence[Frame]) -> None:
        """The worker is gone: its frames come first again, but not for ever."""
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

    def finish(self, frame: Frame, people: People | None) -> None:
        """The networks have seen a frame; None: they could not."""
        with self._lock:
            queue = self._queues[frame.camera]
            if people is None:
                self._leave_out(queue, frame, "skipped")
            else:
                queue.taken[frame.number] = replace(frame, image=None, people=people)
                self._release(queue)

    def next(self, timeout_s: float) -> list[tuple[str, Item]]:
        """What is to be scored: of each camera at most one."""
        with self._lock:
            self._ready.wait_for(lambda: self._closed or self._has_ready(), timeout_s)
            return [
                (camera, queue.ready.popleft())
                for camera, queue in self._queues.items()
                if queue.ready
            ]

    def close(self) -> None:
        """Nothing is handed out to workers any more."""
        with self._lock:
            self._closed = True
            self._work.notify_all()
            self._ready.notify_all()

    def size(self) -> int:
        """Frames held in all."""
        with self._lock:
            return sum(
                len(queue.waiting) + len(queue.taken) + len(queue.ready)
                for queue in self._queues.values()
            )

    def _has_work(self) -> bool:
        return any(queue.waiting for queue in self._queues.values())

    def _has_ready(self) -> bool:
        return any(queue.ready for queue in self._queues.values())

    def _enter(self, queue: _Queue, frame: Frame) -> None:
        queue.is_lost = False  # a frame of another connection says the same
        if frame.image is None:
            self._hand_on(queue, frame)
            return
        queue.waiting.append(frame)
        self._shed(queue)
        self._work.notify()

    def _shed(self, queue: _Queue) -> None:
        while len(queue.waiting) > self._max_waiting:
            self._leave_out(queue, queue.waiting.popleft(), "shed")

    def _leave_out(self, queue: _Queue, frame: Frame, why: Literal["shed", "skipped"]) -> None:
        queue.taken.pop(frame.number, None)
        self._counts.count(frame.camera, why, 1)
        self._release(queue)

    def _release(self, queue: _Queue) -> None:
        """Hand on what is done, up to the first that is not."""
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

    def _hand_on(self, queue: _Queue, frame: Frame) -> None:
        queue.ready.append(frame)
        frames = sum(isinstance(item, Frame) for item in queue.ready)
        if frames > self._max_ready:
            oldest = next(i for i, item in enumerate(queue.ready) if isinstance(item, Frame))
            del queue.ready[oldest]
            self._counts.count(frame.camera, "shed", 1)
        self._ready.notify()
