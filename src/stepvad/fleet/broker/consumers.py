"""Consumers on NATS: messages are asked for ahead of time and handed out by the hundred."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stepvad.fleet.broker.bus import Delivery, Position, UnavailableError
from stepvad.fleet.subjects import EVENTS, POSES
from stepvad.supervision.backoff import Backoff

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.js.client import JetStreamContext

    from stepvad.fleet.broker.nats import NatsBus

logger = logging.getLogger(__name__)

AHEAD, AHEAD_BYTES = 256, 2**20
"""Messages asked for at once, and about how many bytes they may have together."""
EXPIRES_S = 20.0
HEARTBEAT_S = 1.0
"""The broker says so often that it is there, if there is nothing else to say."""
MARGIN_S = 15.0
"""Before the latest message that was read, if those behind it were lost: from there on again."""
SILENCE_S = 3.0
"""Without a word for so long, the consumer is made anew."""
FIRST_S, LONGEST_S = 0.05, 2.0
"""Before a consumer that the broker ended is made again."""


class PosesConsumer:
    """The frames of a shard from a place on, each once and in order.

    Nothing is acknowledged: the reader keeps its place itself, and after anything unusual the
    consumer is made anew from there.
    """

    def __init__(self, bus: NatsBus, subject: str, name: str, after: Position) -> None:
        self._bus, self._subject, self._name = bus, subject, name
        self._position = after
        self._generation = 0
        self._inbox = ""
        self._subscription: Any = None
        self._arrived: list[Msg] = []
        self._handed = 0
        """Messages of this consumer so far: its own sequence tells if one is missing."""
        self._wanted = 0
        """Messages asked for that did not come yet."""
        self._size = AHEAD_BYTES // 16
        """Of messages, about: the first are taken for large ones."""
        self._heard = 0.0
        self._connections = -1
        self._leader = ""
        self._is_broken = True
        self._was_ended = False
        self._backoff = Backoff(FIRST_S, LONGEST_S)
        self._some = asyncio.Event()
        self._restarts = -1

    @property
    def position(self) -> Position:
        """The last message that was handed out."""
        return self._position

    @property
    def restarts(self) -> int:
        """How often it was made anew."""
        return self._restarts

    async def open(self) -> None:
        """Make the consumer, from the place on or from the beginning of another stream."""
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
        await self._bus.make_poses_consumer(name, self._subject, start, since)
        self._leader = leader
        self._handed, self._wanted = 0, 0
        self._arrived, self._is_broken = [], False
        self._connections = self._bus.connections
        self._heard = time.monotonic()
        self._inbox = self._bus.client.new_inbox()
        self._subscription = await self._bus.client.subscribe(
            self._inbox, cb=self._arrive, pending_bytes_limit=0, pending_msgs_limit=0
        )
        self._restarts += 1
        await self._ask()

    async def _is_numbered_anew(self, first: int, last: int) -> bool:
        """Whether the latest message that was read is not the one of its number now."""
        at = self._position
        if not at.seen or at.seen < first:  # nobody can tell
            return False
        return at.seen > last or not await self._bus.has_poses(at.seen, at.seen_at)

    async def fetch(self, most: int, timeout_s: float) -> Sequence[Delivery]:
        """Messages that are there; none if none comes in time."""
        if self._is_stale():
            if self._was_ended:  # right after it was made, perhaps, and every time
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
        """Nothing to do: the place is kept by the reader."""

    async def lag(self) -> int:
        """Messages that wait at the broker or here."""
        name = f"{self._name}-{self._generation}"
        return await self._bus.consumer_lag(POSES, name, self._handed)

    async def close(self) -> None:
        """Take no more."""
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
            self._wanted -= 1
            self._size = max(len(msg.data), self._size * 7 // 8, 1)
        else:
            self._status(msg)
        self._some.set()

    def _status(self, msg: Msg) -> None:
        """What the broker says of a request; anything but a heartbeat ends it."""
        headers = msg.headers or {}
        status = headers.get("Status", "")
        if status == "100":
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
        """How many messages to ask for, by the size of the latest."""
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
                Delivery(msg.subject, msg.data, int(sequence), int(stamp) / 1e9, int(tries))
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


class EventsConsumer:
    """Events that wait for whoever keeps them; what is not acknowledged comes again."""

    def __init__(self, bus: NatsBus, pull: JetStreamContext.PullSubscription, name: str) -> None:
        self._bus, self._pull, self._name = bus, pull, name
        self._last = 0

    @property
    def position(self) -> Position:
        """The last message that was handed out."""
        return Position("", self._last)

    @property
    def restarts(self) -> int:
        """Never: it is found as it was."""
        return 0

    async def fetch(self, most: int, timeout_s: float) -> Sequence[Delivery]:
        """Events that are there; none if none comes in time."""
        found = await self._bus.fetch_events(self._pull, most, timeout_s)
        if found:
            self._last = found[-1].sequence
        return found

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """These are done with."""
        await self._bus.acknowledge([delivery.reply for delivery in deliveries])

    async def lag(self) -> int:
        """Messages that wait at the broker."""
        return await self._bus.consumer_lag(EVENTS, self._name)

    async def close(self) -> None:
        """Take no more."""
        with suppress(Exception):  # the connection may be gone
            await self._pull.unsubscribe()
