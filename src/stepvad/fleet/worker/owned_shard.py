"""A shard that is ours: frames are pulled for it, and what it says goes out in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import Bus, ConflictError, Consumer, Delivery, UnavailableError
from stepvad.fleet.tasks import end
from stepvad.fleet.wire import UnreadableError, encode_claim, encode_event
from stepvad.fleet.worker.checkpoint import ShardCheckpoint, ShardState
from stepvad.fleet.worker.scoring import Announcement
from stepvad.fleet.worker.shard import PoisonMessage, Shard
from stepvad.supervision.backoff import Backoff

logger = logging.getLogger(__name__)

FETCHED = 256
"""Messages taken from the consumer at once."""
WAITING, WAITING_BYTES = 1024, 2**20
"""Messages of a shard that may wait to be scored, and about how many bytes of them."""
FIRST_S, LONGEST_S = 0.1, 1.0
"""Before something is tried again at a broker that does not answer."""
FRAME_TIME = "Stepvad-Frame-Time"
"""The header that tells when the broker took the frame that changed an event."""
BURIED = 65_536
"""Bytes kept of a message that nobody can read."""


class OutgoingMessage(NamedTuple):
    """Something to be published, and when the frame came that it is about."""

    subject: str
    data: bytes
    id: str
    is_event: bool
    headers: dict[str, str] | None = None
    time: float = 0.0


class Checkpoint(NamedTuple):
    """A checkpoint to be written, after all that was said before it."""

    value: bytes
    is_last: bool


def key_of(shard: int) -> str:
    """Where the checkpoint of a shard is."""
    return f"shard-{shard}"


@dataclass(slots=True, eq=False)
class OwnedShard:
    """A shard, its consumer, and the fence that keeps others' events out."""

    bus: Bus
    worker: str
    shard: Shard
    subject: str
    """Where its events go."""
    dead: str
    """Where messages go that nobody can read."""
    lost: Callable[[OwnedShard], None]
    announced: Callable[[OutgoingMessage], None]
    consumer: Consumer
    revision: int
    expect: int
    """The last message on its subject: ours."""
    waiting: list[Delivery] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    patience_until: float = 0.0
    """Until then nothing is shed: there is something to catch up with."""
    is_caught_up: bool = False
    is_drained: bool = False
    """Whether the broker had nothing more when it was last asked."""
    age: float = 0.0
    """Of the oldest frame of the latest round."""
    unsaid: int = 0
    """Changes of events that the broker did not store yet."""
    restarts: int = 0
    """Those of the consumer that were noticed."""
    _bytes: int = 0
    """Of the messages that wait."""
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _letters: asyncio.Queue[OutgoingMessage | Checkpoint] = field(default_factory=asyncio.Queue)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _is_keeping: bool = False
    _is_refused: bool = False

    def start(self, arrived: asyncio.Event) -> None:
        """Begin to pull, and to say."""
        self.arrived = arrived
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._pull()), loop.create_task(self._say())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def take(self, most: int) -> Sequence[Delivery]:
        """Messages that wait."""
        taken, self.waiting = self.waiting[:most], self.waiting[most:]
        self._bytes -= _size(taken)
        if not self._is_full:
            self._room.set()
        return taken

    def tell(self, changes: Sequence[Announcement], dead: Sequence[PoisonMessage]) -> None:
        """Have changes announced and dead messages buried, in order."""
        self.unsaid += len(changes)
        for change in changes:
            slot = change.slot if change.kind == "update" else 0
            data = encode_event(change.site, change.kind, change.before, change.after)
            name = f"{change.after.id}:{change.kind}:{slot}"
            headers = {FRAME_TIME: f"{change.time:.6f}"} if change.time else None
            self._letters.put_nowait(
                OutgoingMessage(self.subject, data, name, True, headers, change.time)
            )
        for delivery, reason, problem in dead:
            headers = {
                "Stepvad-Reason": reason,
                "Stepvad-Problem": problem[:200].encode("ascii", "replace").decode(),
                "Stepvad-Subject": delivery.subject,
                "Stepvad-Size": str(len(delivery.data)),
            }
            name = f"dead:{self.shard.position.stream}:{delivery.sequence}"
            self._letters.put_nowait(
                OutgoingMessage(
                    f"{self.dead}.{reason}", delivery.data[:BURIED], name, False, headers
                )
            )

    def keep(self, *, is_last: bool = False) -> None:
        """Have a checkpoint written once all that was said before it is stored."""
        if self._is_keeping and not is_last:
            return
        self._is_keeping = True
        state = self.shard.state(said=self.expect)
        made = ShardCheckpoint("" if is_last else self.worker, state.to_json())
        self._letters.put_nowait(Checkpoint(made.pack(), is_last))

    def give_up(self) -> None:
        """Take nothing more, and have the last checkpoint written."""
        self._tasks[0].cancel()
        self.keep(is_last=True)

    async def release(self) -> None:
        """Give the shard back, once everything is said and kept."""
        with suppress(TimeoutError):
            async with asyncio.timeout(10.0):
                await self._tasks[1]
        await self.stop()

    async def stop(self) -> None:
        """Let go at once."""
        await end(*self._tasks)
        with suppress(StepvadError):
            await self.consumer.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Let go of a shard whose frames or events cannot go on; it is taken anew."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("shard %d: failed", self.shard.number, exc_info=error)
            self.lost(self)

    async def _pull(self) -> None:
        backoff = Backoff(FIRST_S, LONGEST_S)
        while True:
            try:
                found = await self.consumer.fetch(FETCHED, 0.5)
            except UnavailableError as error:
                logger.debug("shard %d: %s", self.shard.number, error)
                await backoff.sleep()
                continue
            backoff.reset()
            self.is_drained = not found
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
                letter = await self._letters.get()
                await self._persist(letter)
                if isinstance(letter, Checkpoint):
                    self._is_keeping = False
                    if letter.is_last:
                        return
        except ConflictError:
            logger.warning("shard %d: taken over by another worker", self.shard.number)
            self.lost(self)

    async def _persist(self, letter: OutgoingMessage | Checkpoint) -> None:
        """Try for as long as the broker is away."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        while True:
            try:
                if isinstance(letter, Checkpoint):
                    await self._keep(letter)
                else:
                    await self._publish(letter)
                self._is_refused = False
                return
            except UnavailableError as error:
                if not self._is_refused:
                    logger.warning("shard %d: events wait: %s", self.shard.number, error.problem)
                self._is_refused = True
                await backoff.sleep()

    async def _keep(self, kept: Checkpoint) -> None:
        try:
            self.revision = await self.bus.write(
                key_of(self.shard.number), kept.value, self.revision
            )
        except ConflictError:
            # the answer to our own write may have been lost
            entry = await self.bus.read(key_of(self.shard.number))
            if entry is None or entry.value != kept.value:
                raise
            self.revision = entry.revision

    async def _publish(self, letter: OutgoingMessage) -> None:
        stored = await self.bus.publish(
            letter.subject,
            letter.data,
            id=letter.id,
            expect=self.expect if letter.is_event else None,
            headers=letter.headers,
        )
        if not letter.is_event:
            return
        self.unsaid -= 1
        if stored.sequence > self.expect:
            self.expect = stored.sequence
        self.announced(letter)


def _size(deliveries: Sequence[Delivery]) -> int:
    """Bytes of messages."""
    return sum(len(delivery.data) for delivery in deliveries)


def _known(value: bytes, shard: int) -> ShardCheckpoint:
    """A checkpoint; one of nobody and without a state if it cannot be read."""
    try:
        return ShardCheckpoint.unpack(value)
    except UnreadableError as error:
        logger.warning("shard %d starts without its checkpoint: %s", shard, error.problem)
        return ShardCheckpoint("")


def _restored(shard: Shard, kept: ShardCheckpoint) -> ShardState | None:
    """The state that a shard went on from; None if it begins without one."""
    try:
        state = kept.shard_state()
        if state is not None:
            shard.restore(state, time.monotonic())
    except UnreadableError as error:
        logger.warning("shard %d starts without its state: %s", shard.number, error.problem)
        return None
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """Where messages of a shard go, and who hears of them."""

    subject: str
    """Of its events."""
    dead: str
    """Of messages that nobody can read."""
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
    """Make a shard ours, unless a worker that is alive has it: state first, then the fence."""
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
    if state is not None:
        shard.recall(await bus.said(outlets.subject, state.said))
    # a name of its own: a former owner that wakes up pulls nothing away from us
    consumer = await bus.poses(
        shard.number, f"shard-{shard.number}-{worker}-{revision}", shard.position
    )
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
