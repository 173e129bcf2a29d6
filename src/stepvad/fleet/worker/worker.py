"""A worker: takes its share of the shards, scores their cameras, publishes their events."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from stepvad.errors import StepvadError
from stepvad.fleet.broker.bus import Bus, ConflictError, Delivery, UnavailableError
from stepvad.fleet.event_loop import end
from stepvad.fleet.settings import FleetSettings
from stepvad.fleet.worker.models import FleetModels
from stepvad.fleet.worker.owned_shard import OutgoingMessage, Outlets, OwnedShard, Patience, take
from stepvad.fleet.worker.scoring import BatchScorer, Work
from stepvad.fleet.worker.shard import Pace, Shard
from stepvad.fleet.worker.stats import WorkerStats
from stepvad.retries import Backoff

logger = logging.getLogger(__name__)

ROUND = 512
"""Most messages, over all shards, scored in one round."""
ROUND_S = 0.05
"""A round that takes longer makes the next one smaller."""
TURNS = 8
"""Event-loop iterations yielded to other tasks after a round."""
INLINE_S = 0.2
"""A round expected to take longer runs in the scoring thread."""
PAUSE_S = 0.1
"""Longest pause between two rounds."""
LISTED_LEASES = 2.0
"""A worker that takes a shard lists it in its lease within this many times the lease's length."""


class Worker:
    """Leases shards, scores their frames and publishes their events until stopped."""

    def __init__(self, bus: Bus, settings: FleetSettings, models: FleetModels, name: str) -> None:
        self.bus, self.settings, self.models, self.name = bus, settings, models, name
        self.owned_shards: dict[int, OwnedShard] = {}
        self.stats = WorkerStats()
        self.scorer = BatchScorer()
        self._subjects = settings.bus.subjects
        self._lease = 0
        self._arrived = asyncio.Event()
        self._lost: list[OwnedShard] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scoring")
        self._kept_at = 0.0
        self._pace_s = 1.0
        """Pessimistic estimate of the seconds per message."""
        self._most = 64
        """Most messages of the next round."""
        self._answered_at = 0.0
        """When the broker last renewed the lease."""
        self._skew_s = 0.0
        """The broker's clock minus our monotonic clock."""
        self._unlisted: dict[tuple[int, str], float] = {}
        """Since when the lease of a shard's recorded owner, which is alive, does not list it."""
        self._lock = asyncio.Lock()
        """Keeps shards from being released while a round is scored."""

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then release everything."""
        leasing = asyncio.get_running_loop().create_task(self._keep_leasing())
        try:
            while not stop.is_set():
                if leasing.done():
                    leasing.result()
                with suppress(TimeoutError):
                    async with asyncio.timeout(PAUSE_S):
                        await self._arrived.wait()
                self._arrived.clear()
                await self._round()
                for _ in range(TURNS):  # receive messages and renew the lease
                    await asyncio.sleep(0)
            await end(leasing)
            await self._drain()
        finally:
            await end(leasing)
            for owned in [*self.owned_shards.values()]:
                await owned.stop()
            self._thread.shutdown()

    async def _round(self) -> None:
        """Score queued frames, publish event changes and write checkpoints when due."""
        lost = [*self._lost]
        self._lost.clear()
        for owned in lost:
            if self.owned_shards.get(owned.shard.number) is owned:
                del self.owned_shards[owned.shard.number]
        await asyncio.gather(*(owned.stop() for owned in lost))
        async with self._lock:
            await self._advance()

    async def _advance(self) -> None:
        owned_shards = [*self.owned_shards.values()]
        taken = self._taken(owned_shards)
        now = time.monotonic()
        if any(owned.waiting for owned in owned_shards):
            self._arrived.set()
        n = sum(len(deliveries) for _, deliveries in taken)
        if n * self._pace_s < INLINE_S:
            self._score(taken, now)
        else:  # the lease must be renewed meanwhile
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._score, taken, now)
        took = time.monotonic() - now
        self._pace_s = max(0.5 * self._pace_s, took / n) if n else self._pace_s
        self._most = max(self._most // 2, 8) if took > ROUND_S else min(self._most * 2, ROUND)
        is_due = now - self._kept_at >= self.settings.worker.checkpoint_s
        for owned in owned_shards:
            shard = owned.shard
            owned.tell(shard.changes, shard.dead)
            shard.changes, shard.dead = [], []
            if is_due:
                owned.keep()
        if is_due:
            self._kept_at = now

    def _taken(
        self, owned_shards: Sequence[OwnedShard]
    ) -> list[tuple[OwnedShard, Sequence[Delivery]]]:
        """Dequeue the messages of a round: the same part of what waits in each shard."""
        waiting = sum(len(owned.waiting) for owned in owned_shards)
        part = min(self._most / max(waiting, 1), 1.0)
        return [(owned, owned.take(math.ceil(part * len(owned.waiting)))) for owned in owned_shards]

    def _score(self, taken: Sequence[tuple[OwnedShard, Sequence[Delivery]]], now: float) -> None:
        """Score one round; may run in the scoring thread."""
        works: list[Work] = []
        of: dict[str, Shard] = {}
        for owned, deliveries in taken:
            shard = owned.shard
            shard.of_stream(owned.consumer.position.stream)
            clock = self._clock(owned, deliveries, now)
            due = shard.take(deliveries, now, clock)
            of |= {work.camera.name: shard for work in due}
            works += due
            if owned.patience.is_caught_up:
                shard.end_silent(now)
        for change in self.scorer.score(works):
            of[change.after.camera].changes.append(change)
        for owned, _ in taken:
            owned.shard.end_forgotten(now, is_drained=owned.has_read_all)
        self.stats.add(works, now + self._skew_s)

    def _clock(self, owned: OwnedShard, deliveries: Sequence[Delivery], now: float) -> float | None:
        """The broker's time; None while the shard catches up and may not shed frames."""
        clock = now + self._skew_s
        restarts = owned.consumer.restarts
        if now - self._answered_at > 2 * self.settings.bus.lease_s:
            owned.shard.hear_all(now)
            restarts = -1
        may_shed = owned.patience.may_shed(
            clock - deliveries[0].time if deliveries else None,
            now,
            restarts=restarts,
            is_drained=owned.has_read_all,
        )
        return clock if may_shed else None

    def _said(self, message: OutgoingMessage) -> None:
        self.stats.event(message, time.monotonic() + self._skew_s)

    async def _drain(self) -> None:
        """Score the queued messages, then release the shards and the lease."""
        while any(owned.waiting for owned in self.owned_shards.values()):
            await self._round()
        for owned in self.owned_shards.values():
            owned.give_up()
        await asyncio.gather(*(owned.release() for owned in self.owned_shards.values()))
        self.owned_shards.clear()
        with suppress(StepvadError):
            await self.bus.release(self.name)
        logger.info("worker %s: all shards released", self.name)

    async def _keep_leasing(self) -> None:
        pause_s = self.settings.bus.lease_s / 3
        backoff = Backoff(pause_s / 4, pause_s)
        while True:
            started = time.monotonic()
            try:
                await self._renew()
                await self._balance()
            except ConflictError:
                # The lease expired, or the reply to a renewal was lost and the broker holds the
                # lease until it expires; the next checkpoint shows whether a shard is still ours.
                logger.warning("worker %s: lease expired", self.name)
                self._lease, self._kept_at = 0, 0.0
                await backoff.sleep()
            except UnavailableError as error:
                logger.warning("worker %s: %s", self.name, error.problem)
                with suppress(UnavailableError):
                    await self.bus.setup()  # the broker may have lost its in-memory state
                await backoff.sleep()
            else:
                backoff.reset()
                await asyncio.sleep(max(pause_s - (time.monotonic() - started), 0.01))

    async def _renew(self) -> None:
        value = json.dumps([*self.owned_shards]).encode()
        self._lease = await self.bus.lease(self.name, value, self._lease)
        self._answered_at = time.monotonic()
        asked = time.monotonic()
        told = await self.bus.time()
        self._skew_s = told - (asked + time.monotonic()) / 2

    async def _balance(self) -> None:
        """Take free shards up to a fair share and release any surplus."""
        alive = await self.bus.leases()
        others = {name: json.loads(value) for name, value in alive.items() if name != self.name}
        share = math.ceil(self.settings.bus.shards / (len(others) + 1))
        surplus = sorted(self.owned_shards)[share:]
        if surplus:
            await self._give_back(surplus)
        taken = {shard for held in others.values() for shard in held}
        self._unlisted = {key: at for key, at in self._unlisted.items() if key[0] not in taken}
        free = [n for n in self._turn() if n not in taken and n not in self.owned_shards]
        wanted = free[: max(share - len(self.owned_shards), 0)]
        got = await asyncio.gather(
            *(self._take(shard, set(others)) for shard in wanted), return_exceptions=True
        )
        if True in got or surplus:
            logger.info("worker %s: %d shards", self.name, len(self.owned_shards))
            await self._renew()
        for one in got:
            if isinstance(one, BaseException):
                raise one

    async def _give_back(self, shards: Sequence[int]) -> None:
        async with self._lock:
            given = [self.owned_shards.pop(shard) for shard in shards]
            for owned in given:
                owned.give_up()
        for owned in given:
            await owned.release()

    def _turn(self) -> Sequence[int]:
        """All shards, starting at an offset that differs between workers."""
        shards = self.settings.bus.shards
        first = hash(self.name) % shards
        return [*range(first, shards), *range(first)]

    def _is_owned(self, shard: int, alive: set[str], owner: str) -> bool:
        """Whether a worker still owns a free shard that has it on record as its owner.

        If it is alive, it is about to list the shard; or else it lost the shard, or failed to take
        it, while the broker was unreachable.
        """
        since = self._unlisted.setdefault((shard, owner), time.monotonic())
        return (
            owner in alive and time.monotonic() - since < LISTED_LEASES * self.settings.bus.lease_s
        )

    async def _take(self, number: int, alive: set[str]) -> bool:
        worker = self.settings.worker
        shard = Shard(
            number,
            self._subjects,
            self.models,
            self.scorer,
            Pace(worker.shed_s, worker.silent_s),
            counts=self.stats.frames,
        )
        owned = await take(
            self.bus,
            self.name,
            shard,
            Outlets(
                subject=self._subjects.events(number),
                dead=self._subjects.dead("x").rpartition(".")[0],
                lost=self._lost.append,
                announced=self._said,
            ),
            alive=partial(self._is_owned, number, alive),
        )
        if owned is None:
            return False
        owned.patience = Patience.from_now(worker.catch_up_s, time.monotonic())
        self.owned_shards[number] = owned
        owned.start(self._arrived)
        return True
