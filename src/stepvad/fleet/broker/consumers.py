"""Consumers on NATS: prefetch messages and return them in batches."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

# Loaded by the bus alone.
from nats.js import api  # noqa: TID253

from stepvad.fleet.broker.bus import Delivery, Position, UnavailableError
from stepvad.fleet.subjects import POSES
from stepvad.retries import Backoff

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js.client import JetStreamContext

    from stepvad.fleet.broker.nats import NatsBus

logger = logging.getLogger(__name__)

AHEAD, AHEAD_BYTES = 256, 2**20
"""Prefetch limits: messages, and approximate bytes."""
EXPIRES_S = 20.0
HEARTBEAT_S = 1.0
"""Interval of the broker's heartbeat while a request is idle."""
MARGIN_S = 15.0
"""When later messages were lost, restart this long before the last message read."""
SILENCE_S = 3.0
"""The consumer is recreated after this long without a message or heartbeat."""
FIRST_S, LONGEST_S = 0.05, 2.0
"""First and longest back-off before recreating a consumer that failed."""


class PosesConsumer:
    """Reads the frames of a shard from a position, each once and in order.

    Nothing is acknowledged: the reader tracks its own position, and the consumer is recreated
    from there after any failure.
    """

    def __init__(self, bus: NatsBus, subject: str, name: str, after: Position) -> None:
        self._bus, self._subject, self._name = bus, subject, name
        self._position = after
        self._end = Position()
        self._generation = 0
        self._inbox = ""
        self._subscription: Any = None
        self._arrived: list[Msg] = []
        self._handed = 0
        """Messages returned so far; a gap against the consumer's own sequence is a loss."""
        self._wanted = 0
        """Messages requested but not yet received."""
        self._size = AHEAD_BYTES // 16
        """Estimated size of a message; starts large."""
        self._heard = 0.0
        self._connections = -1
        self._leader = ""
        self._is_broken = True
        self._is_idle = False
        """Whether the broker's latest word was a heartbeat: it has nothing to send."""
        self._was_ended = False
        self._backoff = Backoff(FIRST_S, LONGEST_S)
        self._some = asyncio.Event()
        self._restarts = -1

    @property
    def position(self) -> Position:
        """The last message returned."""
        return self._position

    @property
    def end(self) -> Position:
        """The last message of the stream when the consumer was first created."""
        return self._end

    @property
    def restarts(self) -> int:
        """How often it was recreated."""
        return self._restarts

    @property
    def is_drained(self) -> bool:
        """Whether the broker, asked for messages, said that it has none."""
        return self._is_idle and not self._arrived and not self._is_stale()

    async def open(self) -> None:
        """Create the consumer at its position, or at the start of a recreated stream."""
        await self._unsubscribe()
        stream, first, last = await self._bus.stream_of_poses()
        leader, before, since = self._bus.leader, self._position, 0.0
        if before.stream not in ("", stream):
            self._position = Position(stream)
        elif await self._is_numbered_anew(first, last):
            logger.info(
                "broker: poses after message %d were lost; the stream starts over", before.seen
            )
            since = before.seen_at - MARGIN_S
        else:
            self._position = replace(before, stream=stream)
        self._generation += 1
        name = f"{self._name}-{self._generation}"
        start = max(self._position.sequence + 1, first, 1)
        config = _config(name, self._subject, start, since)
        await self._bus.make_consumer(POSES, config)
        self._leader = leader
        self._handed, self._wanted = 0, 0
        self._arrived, self._is_broken, self._is_idle = [], False, False
        self._connections = self._bus.connections
        self._heard = time.monotonic()
        self._inbox = self._bus.client.new_inbox()
        self._subscription = await self._bus.client.subscribe(
            self._inbox, cb=self._arrive, pending_bytes_limit=0, pending_msgs_limit=0
        )
        self._restarts += 1
        if not self._restarts:
            self._end = Position(stream, last)
        await self._ask()

    async def _is_numbered_anew(self, first: int, last: int) -> bool:
        """Whether the sequence of the last message read now belongs to another message."""
        at = self._position
        if not at.seen or at.seen < first:  # unknown: no message to compare
            return False
        return at.seen > last or not await self._bus.has_poses(at.seen, at.seen_at)

    async def fetch(self, most: int, timeout_s: float) -> Sequence[Delivery]:
        """Return available messages; none if none arrives in time."""
        if self._is_stale():
            if self._was_ended:  # it may fail right after each creation
                self._was_ended = False
                await self._backoff.sleep()
            await self.open()
        if not self._arrived:
            self._some.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._some.wait()
        arrived = self._arrived[:most]
        del self._arrived[:most]
        found = self._in_order(arrived)
        most = self._ahead
        if self._wanted < most / 2 and len(self._arrived) < most and not self._is_broken:
            await self._ask()
        return found

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Do nothing: the reader tracks its position."""

    async def lag(self) -> int:
        """Messages pending at the broker or prefetched here."""
        name = f"{self._name}-{self._generation}"
        return await self._bus.consumer_lag(POSES, name, self._handed)

    async def close(self) -> None:
        """Stop consuming."""
        await self._unsubscribe()

    def _is_stale(self) -> bool:
        silent = time.monotonic() - self._heard > SILENCE_S and not self._arrived
        is_elsewhere = (
            self._connections != self._bus.connections or self._leader != self._bus.leader
        )
        return self._is_broken or silent or is_elsewhere

    async def _arrive(self, msg: Msg) -> None:
        self._heard = time.monotonic()
        if msg.reply and msg.reply.startswith("$JS.ACK."):
            self._arrived.append(msg)
            self._is_idle = False
            self._wanted -= 1
            self._size = max(len(msg.data), self._size * 7 // 8, 1)
        else:
            self._status(msg)
        self._some.set()

    def _status(self, msg: Msg) -> None:
        """Handle a status message for a request; anything but a heartbeat ends the request."""
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == "100":
            self._is_idle = True
            return
        if status in ("404", "408"):
            self._wanted = 0
        else:
            logger.info(
                "broker: consumer %s failed: %s", self._name, headers.get("Description", status)
            )
            self._is_broken = self._was_ended = True

    @property
    def _ahead(self) -> int:
        """How many messages to request, from the size of recent ones."""
        return max(min(AHEAD, AHEAD_BYTES // self._size), 1)

    async def _ask(self) -> None:
        most = self._ahead
        request = {
            "batch": most,
            "expires": round(EXPIRES_S * 1e9),
            "idle_heartbeat": round(HEARTBEAT_S * 1e9),
        }
        name = f"{self._name}-{self._generation}"
        self._wanted += most
        await self._bus.request_messages(POSES, name, json.dumps(request).encode(), self._inbox)

    def _in_order(self, arrived: Sequence[Msg]) -> list[Delivery]:
        found: list[Delivery] = []
        for msg in arrived:
            # $JS.ACK.<stream>.<consumer>.<tries>.<stream sequence>.<own sequence>.<time>.<pending>
            parts = msg.reply.split(".")
            tries, sequence, own, stamp = parts[-5:-1]
            self._handed += 1
            if int(own) != self._handed:
                logger.info("broker: consumer %s missed messages", self._name)
                self._is_broken = self._was_ended = True
                break
            found.append(
                Delivery(
                    msg.subject,
                    msg.data,
                    int(sequence),
                    int(stamp) / 1e9,
                    int(tries),
                    headers=msg.headers,
                )
            )
        if found:
            self._position = self._position.after(found[-1])
            self._backoff.reset()
        return found

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(Exception):  # the connection may be gone
                await subscription.unsubscribe()
            with suppress(UnavailableError):
                await self._bus.delete_consumer(POSES, f"{self._name}-{self._generation}")


def _config(name: str, subject: str, first: int, since: float) -> api.ConsumerConfig:
    """A consumer from a sequence or a time on; it expires when unused."""
    policy = api.DeliverPolicy
    return api.ConsumerConfig(
        name=name,
        filter_subject=subject,
        deliver_policy=policy.BY_START_TIME if since else policy.BY_START_SEQUENCE,
        opt_start_seq=None if since else first,
        opt_start_time=datetime.fromtimestamp(since, UTC) if since else None,
        ack_policy=api.AckPolicy.NONE,
        inactive_threshold=60.0,
        mem_storage=True,
        num_replicas=1,
    )


class EventsConsumer:
    """Reads events; the broker redelivers those not acknowledged."""

    def __init__(
        self, bus: NatsBus, pull: JetStreamContext.PullSubscription, stream: str, name: str
    ) -> None:
        self._bus, self._pull, self._stream, self._name = bus, pull, stream, name
        self._last = 0

    @property
    def position(self) -> Position:
        """The last message returned."""
        return Position("", self._last)

    @property
    def end(self) -> Position:
        """Never known: its readers do not ask."""
        return Position()

    @property
    def restarts(self) -> int:
        """Always 0: the consumer is durable."""
        return 0

    @property
    def is_drained(self) -> bool:
        """Never known: its readers do not ask."""
        return False

    async def fetch(self, most: int, timeout_s: float) -> Sequence[Delivery]:
        """Return available events; none if none arrives in time."""
        found = await self._bus.fetch_events(self._pull, most, timeout_s)
        if found:
            self._last = found[-1].sequence
        return found

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge events."""
        await self._bus.acknowledge([delivery.reply for delivery in deliveries])

    async def lag(self) -> int:
        """Messages pending at the broker."""
        return await self._bus.consumer_lag(self._stream, self._name)

    async def close(self) -> None:
        """Stop consuming."""
        with suppress(Exception):  # the connection may be gone
            await self._pull.unsubscribe()
