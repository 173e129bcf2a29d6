"""A bounded, ordered buffer of messages for the broker."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from stepvad.fleet.edge.batcher import EncodedBatch


class _Waiting(NamedTuple):
    order: int
    """Sequence number across all cameras."""
    since: float
    batch: EncodedBatch


class Buffer:
    """Buffers messages of all cameras; when full, drops the oldest whole message and counts it.

    A broker that is killed loses the poses in its memory, so messages that it acknowledged in the
    last `again_s` seconds are kept here and resent; it deduplicates them by id.
    """

    def __init__(
        self,
        cameras: Iterable[str],
        max_bytes: int,
        ring: Callable[[str], None] = lambda camera: None,
        *,
        again_s: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._waiting: dict[str, deque[_Waiting]] = {camera: deque() for camera in cameras}
        self._taken: dict[str, deque[tuple[float, _Waiting]]] = {
            camera: deque() for camera in self._waiting
        }
        """Recently acknowledged messages, with the time of acknowledgement."""
        self._again_s, self._clock = again_s, clock
        self._max_bytes = max_bytes
        self.ring = ring
        """Called with the name of a camera that has a message to send."""
        self._lock = threading.Lock()
        self._bytes = 0
        self._order = 0
        self.sent: Counter[str] = Counter()
        """Frames acknowledged by the broker, by camera."""
        self.dropped: Counter[str] = Counter()
        """Frames dropped because the buffer was full, by camera."""

    def __len__(self) -> int:
        """Number of buffered messages."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    @property
    def bytes(self) -> int:
        """Total bytes of the buffered messages."""
        return self._bytes

    def put(self, batch: EncodedBatch) -> None:
        """Add a message, dropping the oldest if the buffer is full."""
        with self._lock:
            self._order += 1
            self._waiting[batch.camera].append(_Waiting(self._order, self._clock(), batch))
            self._bytes += len(batch.data)
            while self._bytes > self._max_bytes and self._drop():
                pass
        self.ring(batch.camera)

    def head(self, camera: str) -> EncodedBatch | None:
        """The next message of a camera; it stays buffered until `done`."""
        with self._lock:
            waiting = self._waiting[camera]
            return waiting[0].batch if waiting else None

    def done(self, batch: EncodedBatch) -> None:
        """Mark a message as acknowledged by the broker."""
        with self._lock:
            waiting = self._waiting[batch.camera]
            self.sent[batch.camera] += batch.frames
            if waiting and waiting[0].batch is batch:
                self._keep(waiting.popleft())
                self._bytes -= len(batch.data)
            else:  # it was dropped while being sent
                self.dropped[batch.camera] -= batch.frames

    def drop(self, batch: EncodedBatch) -> None:
        """Give up on a message that the broker will never take."""
        with self._lock:
            waiting = self._waiting[batch.camera]
            if waiting and waiting[0].batch is batch:
                waiting.popleft()
                self._bytes -= len(batch.data)
                self.dropped[batch.camera] += batch.frames

    def again(self, camera: str) -> None:
        """Requeue recently acknowledged messages, after the broker was unreachable."""
        with self._lock:
            waiting, taken = self._waiting[camera], self._taken[camera]
            went = waiting[0].since if waiting else self._clock()  # roughly when it went down
            while taken:
                when, one = taken.pop()
                if went - when <= self._again_s:
                    waiting.appendleft(one)
                    self._bytes += len(one.batch.data)
                    self.sent[camera] -= one.batch.frames

    def _keep(self, one: _Waiting) -> None:
        now, taken = self._clock(), self._taken[one.batch.camera]
        taken.append((now, one))
        while now - taken[0][0] > self._again_s:
            taken.popleft()

    def _drop(self) -> bool:
        """Drop the oldest message of all cameras, unless it is the only one."""
        if sum(map(len, self._waiting.values())) <= 1:
            return False
        heads = [waiting for waiting in self._waiting.values() if waiting]
        oldest = min(heads, key=lambda waiting: waiting[0].order)
        batch = oldest.popleft().batch
        self._bytes -= len(batch.data)
        self.dropped[batch.camera] += batch.frames
        return True
