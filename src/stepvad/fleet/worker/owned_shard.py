"""A shard owned by this worker: pulls its frames and publishes its events in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import (
    Bus,
    ConflictError,
    Consumer,
    Delivery,
    UnavailableError,
)
from stepvad.fleet.event_loop import end
from stepvad.fleet.wire import UnreadableError, encode_claim, encode_event
from stepvad.fleet.worker.checkpoint import ShardCheckpoint, ShardState
from stepvad.fleet.worker.scoring import Announcement
from stepvad.fleet.worker.shard import PoisonMessage, Shard
from stepvad.retries import Backoff

logger = logging.getLogger(__name__)


JUMP_S = 1.0
"""If the age of frames grows by this much between rounds, the worker was paused."""
CALM_S = 0.5
"""The shard has caught up once its messages are younger than this."""


@dataclass(slots=True)
class Patience:
    """Whether a shard has caught up, and until when it sheds nothing.

    It gets time when it is taken over and whenever it falls behind for a reason other than its
    load: a pause of the worker, an absence of the broker. A shard that is behind, and receives
    frames, gets no more: else delays under overload would keep it from ever shedding.
    """

    allowed_s: float
    until: float
    """Monotonic time."""
    is_caught_up: bool = False
    _has_frames: bool = False
    """Whether frames came since it got time."""
    _age: float = 0.0
    """Age of the oldest frame of the latest round."""
    _restarts: int = 0

    @classmethod
    def from_now(cls, allowed_s: float, now: float) -> Patience:
        """That of a shard that was just taken."""
        return cls(allowed_s, now + allowed_s)

    def may_shed(
        self, age: float | None, now: float, *, restarts: int, is_drained: bool = False
    ) -> bool:
        """Note a round, and return whether its old frames may be shed.

        `age` is that of its oldest frame, None without frames; `restarts` are those of the
        consumer, or any other number while the broker does not answer.
        """
        jumped = self.is_caught_up and (age or 0.0) - self._age > JUMP_S  # paused, not slow
        self._age = age or 0.0
        if restarts != self._restarts or jumped:
            if self.is_caught_up or not self._has_frames:
                self.until = now + self.allowed_s
            self._restarts, self.is_caught_up, self._has_frames = restarts, False, False
        elif age is not None:
            self.is_caught_up |= age < CALM_S
            self._has_frames = True
        else:
            self.is_caught_up |= is_drained
        if self.is_caught_up:
            self.until = min(self.until, now)
        return now >= self.until


FRAME_TIME = "Stepvad-Frame-Time"
"""Header with the time at which the broker received the frame that changed an event."""
WORKER = "Stepvad-Worker"
"""Header with the worker that published an event: that of the latest claim on the subject."""
BURIED = 65_536
"""Bytes kept of an unreadable message."""


class OutgoingMessage(NamedTuple):
    """A message to publish, and the time of the frame that caused it."""

    subject: str
    data: bytes
    id: str
    is_event: bool
    headers: dict[str, str] | None = None
    time: float = 0.0

    @classmethod
    def of_event(cls, change: Announcement, subject: str, worker: str) -> OutgoingMessage:
        """A change of an event."""
        slot = change.slot if change.kind == "update" else 0
        data = encode_event(change.site, change.kind, change.before, change.after)
        headers = {WORKER: worker}
        if change.time:
            headers[FRAME_TIME] = f"{change.time:.6f}"
        id = f"{change.after.id}:{change.kind}:{slot}"
        return cls(subject, data, id, True, headers, change.time)

    @classmethod
    def of_poison(cls, one: PoisonMessage, prefix: str, stream: str) -> OutgoingMessage:
        """A message of a stream that could not be read."""
        delivery, reason, problem = one
        headers = {
            "Stepvad-Reason": reason,
            "Stepvad-Problem": problem[:200].encode("ascii", "replace").decode(),
            "Stepvad-Subject": delivery.subject,
            "Stepvad-Size": str(len(delivery.data)),
        }
        id = f"dead:{stream}:{delivery.sequence}"
        return cls(f"{prefix}.{reason}", delivery.data[:BURIED], id, False, headers)


class Checkpoint(NamedTuple):
    """A checkpoint to write after all messages queued before it."""

    state: ShardState
    is_last: bool
    recalled_since: int | None = None
    """While events of a former owner are open, a successor has to read from here on."""

    def pack(self, owner: str, said: int) -> bytes:
        """Serialise with the sequence of the last message on the event subject."""
        if self.recalled_since is not None:
            said = min(said, self.recalled_since)
        state = replace(self.state, said=said).to_json()
        return ShardCheckpoint("" if self.is_last else owner, state).pack()


OutgoingItem = OutgoingMessage | Checkpoint


FETCHED = 256
"""Messages fetched from the consumer at once."""
WAITING, WAITING_BYTES = 1024, 2**20
"""Limits of a shard's scoring queue: messages, and approximate bytes."""
FIRST_S, LONGEST_S = 0.1, 1.0
"""First and longest back-off while the broker is unreachable."""


def key_of(shard: int) -> str:
    """The key of a shard's checkpoint."""
    return f"shard-{shard}"


@dataclass(slots=True, eq=False)
class OwnedShard:
    """A shard, its consumer, and the fence that rejects events of former owners."""

    bus: Bus
    worker: str
    shard: Shard
    subject: str
    """Subject of its events."""
    dead: str
    """Subject prefix for unreadable messages."""
    lost: Callable[[OwnedShard], None]
    announced: Callable[[OutgoingMessage], None]
    consumer: Consumer
    revision: int
    expect: int
    """Sequence of the last message on its event subject, which must be ours."""
    waiting: list[Delivery] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    patience: Patience = field(default_factory=lambda: Patience(0.0, 0.0))
    is_drained: bool = False
    """Whether the broker has no more frames."""
    unsaid: int = 0
    """Event changes that the broker has not stored yet."""
    _bytes: int = 0
    """Bytes of the queued messages."""
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _outgoing: asyncio.Queue[OutgoingItem] = field(default_factory=asyncio.Queue)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _is_keeping: bool = False
    _is_refused: bool = False

    def start(self, arrived: asyncio.Event) -> None:
        """Start pulling frames and publishing events."""
        self.arrived = arrived
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(one) for one in (self._pull(), self._say())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def take(self, most: int) -> Sequence[Delivery]:
        """Dequeue up to `most` messages."""
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        self._bytes -= _size(taken)
        if not self._is_full:
            self._room.set()
        return taken

    @property
    def has_read_all(self) -> bool:
        """Whether the broker has no more frames, and none are queued."""
        return self.is_drained and not self.waiting

    def tell(self, changes: Sequence[Announcement], dead: Sequence[PoisonMessage]) -> None:
        """Queue event changes and unreadable messages for publishing, in order."""
        self.unsaid += len(changes)
        for change in changes:
            self._outgoing.put_nowait(OutgoingMessage.of_event(change, self.subject, self.worker))
        stream = self.shard.position.stream
        for one in dead:
            self._outgoing.put_nowait(OutgoingMessage.of_poison(one, self.dead, stream))

    def keep(self, *, is_last: bool = False) -> None:
        """Queue a checkpoint, written once all earlier messages are stored."""
        if self._is_keeping and not is_last:
            return
        self._is_keeping = True
        checkpoint = Checkpoint(self.shard.state(), is_last, self.shard.recalled.since)
        self._outgoing.put_nowait(checkpoint)

    def give_up(self) -> None:
        """Stop pulling and queue the last checkpoint."""
        self._tasks[0].cancel()
        self.keep(is_last=True)

    async def release(self) -> None:
        """Release the shard once its queue is flushed, or after 10 s."""
        with suppress(TimeoutError):
            async with asyncio.timeout(10.0):
                await self._tasks[1]
        await self.stop()

    async def stop(self) -> None:
        """Stop without flushing."""
        await end(*self._tasks)
        with suppress(StepvadError):
            await self.consumer.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Drop the shard if one of its tasks failed; a worker takes it again."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("shard %s: failed", self.shard.number, exc_info=error)
            self.lost(self)

    async def _pull(self) -> None:
        backoff = Backoff(FIRST_S, LONGEST_S)
        while True:
            try:
                found = await self.consumer.fetch(FETCHED, 0.5)
            except UnavailableError as error:
                logger.debug("shard %s: %s", self.shard.number, error)
                await backoff.sleep()
                continue
            backoff.reset()
            self.is_drained = not found and self.consumer.is_drained
            if found:
                self.waiting += found
                self._bytes += _size(found)
                self.arrived.set()
            while self._is_full:
                self._room.clear()
                await self._room.wait()

    @property
    def _is_full(self) -> bool:
        return len(self.waiting) >= WAITING or self._bytes >= WAITING_BYTES

    async def _say(self) -> None:
        try:
            while True:
                item = await self._outgoing.get()
                await self._persist(item)
                if isinstance(item, Checkpoint):
                    self._is_keeping = False
                    if item.is_last:
                        return
        except ConflictError:
            logger.warning("shard %s: taken over by another worker", self.shard.number)
            self.lost(self)

    async def _persist(self, item: OutgoingItem) -> None:
        """Retry with back-off until the broker stores the item."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        while True:
            try:
                await self._store(item)
                self._is_refused = False
                return
            except UnavailableError as error:
                if not self._is_refused:
                    logger.warning("shard %s: events wait: %s", self.shard.number, error.problem)
                self._is_refused = True
                await backoff.sleep()

    async def _store(self, item: OutgoingItem) -> None:
        match item:
            case Checkpoint():
                await self._keep(item)
            case _:
                await self._publish(item)

    async def _keep(self, kept: Checkpoint) -> None:
        value = kept.pack(self.worker, said=self.expect)
        try:
            self.revision = await self.bus.write(key_of(self.shard.number), value, self.revision)
        except ConflictError:
            # the acknowledgement of our own write may have been lost
            entry = await self.bus.read(key_of(self.shard.number))
            if entry is None or entry.value != value:
                raise
            self.revision = entry.revision

    async def _publish(self, message: OutgoingMessage) -> None:
        stored = await self.bus.publish(
            message.subject,
            message.data,
            id=message.id,
            expect=self.expect if message.is_event else None,
            headers=message.headers,
        )
        if not message.is_event:
            return
        self.unsaid -= 1
        if stored.sequence > self.expect:
            self.expect = stored.sequence
        self.announced(message)


def _size(deliveries: Sequence[Delivery]) -> int:
    """Total bytes of messages."""
    return sum(len(delivery.data) for delivery in deliveries)


def _known(value: bytes, shard: int) -> ShardCheckpoint:
    """Unpack a checkpoint; return one without owner and state if it is unreadable."""
    try:
        return ShardCheckpoint.unpack(value)
    except UnreadableError as error:
        logger.warning("shard %s starts without its checkpoint: %s", shard, error.problem)
        return ShardCheckpoint("")


def _restored(shard: Shard, kept: ShardCheckpoint) -> ShardState | None:
    """Restore the shard and return its state; None if it starts without one."""
    try:
        state = kept.shard_state()
        if state is not None:
            shard.restore(state, time.monotonic())
    except UnreadableError as error:
        logger.warning("shard %s starts without its state: %s", shard.number, error.problem)
        return None
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """Subjects and callbacks for the messages of a shard."""

    subject: str
    """Subject of its events."""
    dead: str
    """Subject prefix for unreadable messages."""
    lost: Callable[[OwnedShard], None]
    announced: Callable[[OutgoingMessage], None]


async def take(
    bus: Bus,
    worker: str,
    shard: Shard,
    outlets: Outlets,
    *,
    alive: Callable[[str], bool],
) -> OwnedShard | None:
    """Take over a shard unless a live worker owns it: first its state, then the fence."""
    entry = await bus.read(key_of(shard.number))
    kept = ShardCheckpoint("")
    if entry is not None:
        kept = _known(entry.value, shard.number)
        if kept.owner != worker and kept.owner and alive(kept.owner):
            return None
    try:
        revision = await bus.write(
            key_of(shard.number),
            replace(kept, owner=worker).pack(),
            0 if entry is None else entry.revision,
        )
    except ConflictError:
        return None
    state = _restored(shard, kept)
    claim = await bus.publish(outlets.subject, encode_claim(worker))
    said = [] if state is None else await bus.said(outlets.subject, state.said)
    # a unique consumer name: a former owner that resumes cannot pull our messages
    name = f"shard-{shard.number}-{worker}-{revision}".replace(".", "-")
    consumer = await bus.poses(shard.number, name, shard.position)
    if state is not None:
        until, now = consumer.end, time.monotonic()
        shard.recalled.load(said, since=state.said, until=until, now=now)
    return OwnedShard(
        bus=bus,
        worker=worker,
        shard=shard,
        subject=outlets.subject,
        dead=outlets.dead,
        lost=outlets.lost,
        announced=outlets.announced,
        consumer=consumer,
        revision=revision,
        expect=claim.sequence,
    )
