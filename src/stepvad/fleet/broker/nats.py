"""The bus of a fleet on NATS JetStream."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

# This file is loaded where a bus is opened, and nowhere else: hence at the top.
from nats.errors import Error as NatsError  # noqa: TID253
from nats.js import api, errors  # noqa: TID253

from stepvad.fleet.broker.arrangement import StreamArrangement
from stepvad.fleet.broker.bus import (
    ConflictError,
    Delivery,
    Entry,
    Position,
    Published,
    UnavailableError,
)
from stepvad.fleet.broker.consumers import EventsConsumer, PosesConsumer
from stepvad.fleet.broker.key_values import Bucket
from stepvad.fleet.broker.login import certificates, login
from stepvad.fleet.broker.nats_client import SHORTEST_S, CarefulClient
from stepvad.fleet.broker.nats_errors import CONFLICT, answers
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.subjects import EVENTS, POSES, Subjects

logger = logging.getLogger(__name__)

TIMEOUT_S = 2.0
"""Timeout of a request."""
CLOSE_S = 2.0
"""Time to send what is pending before a connection is cut."""
SAME_S = 0.001
"""Messages with the same sequence but timestamps further apart are different messages."""


class NatsBus:
    """A connection to NATS that reconnects by itself."""

    def __init__(self, client: CarefulClient, settings: BusSettings) -> None:
        self.client = client
        self._js = client.jetstream(timeout=TIMEOUT_S)
        self.settings = settings
        self.subjects: Subjects = settings.subjects
        self.connections = 0
        """Number of reconnects."""
        self.leader = ""
        """Leader of the stream of poses, and since when, at the last query."""
        self.is_closing = False
        names = self.subjects
        self._leases, self._state = (
            Bucket(client, self._js, name, TIMEOUT_S) for name in (names.leases, names.state)
        )
        self._arrangement = StreamArrangement(self._js, settings, self)

    async def setup(self) -> None:
        """Create missing streams and buckets; reject a different number of shards."""
        await self._arrangement.ensure()

    async def change(self) -> list[str]:
        """Make streams and buckets as the settings say; return what was changed."""
        return await self._arrangement.change()

    async def publish(
        self,
        subject: str,
        data: bytes,
        *,
        id: str | None = None,
        expect: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Published:
        """Store a message, once per id."""
        sent = dict(headers or {})
        if id is not None:
            sent[api.Header.MSG_ID] = id
        if expect is not None:
            sent[api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(expect)
        if not self.client.is_connected:  # the client would buffer it until it reconnects
            raise UnavailableError("bus: expected a connection, got none for now")
        try:
            with answers():
                ack = await self._js.publish(subject, data, headers=sent or None)
        except ConflictError:
            if id is None or (stored := await self._is_last(subject, sent)) is None:
                raise
            return Published(stored, True)
        if ack.duplicate and expect is not None and ack.seq > expect:
            with answers():  # ours, whose acknowledgement was lost, or that of a new owner
                if not _is_same(await self._js.get_msg(EVENTS, ack.seq), sent):
                    raise ConflictError(CONFLICT.problem)
        return Published(ack.seq, bool(ack.duplicate))

    async def _is_last(self, subject: str, sent: Mapping[str, str]) -> int | None:
        """The sequence of a message that was stored although its acknowledgement was lost.

        Its headers tell it from the same event of another worker.
        """
        with answers():
            last = await self._js.get_last_msg(EVENTS, subject)
        return last.seq if _is_same(last, sent) else None

    async def said(self, subject: str, after: int) -> list[bytes]:
        """The events of a subject after a sequence."""
        found: list[bytes] = []
        while True:
            with answers():
                try:
                    one = await self._js.get_msg(EVENTS, after + 1, subject=subject, next=True)
                except errors.NotFoundError:
                    return found
            found.append(one.data or b"")
            after = one.seq or after + 1

    async def poses(self, shard: int, name: str, after: Position) -> PosesConsumer:
        """Consume the frames of a shard after a position; only one reader may use the name."""
        consumer = PosesConsumer(self, self.subjects.poses_of_shard(shard), name, after)
        await consumer.open()
        return consumer

    async def events(self, name: str, stream: str = EVENTS) -> EventsConsumer:
        """Consume all events not acknowledged under this name."""
        with answers():
            await self._js.add_consumer(
                stream,
                api.ConsumerConfig(
                    durable_name=name,
                    ack_policy=api.AckPolicy.EXPLICIT,
                    ack_wait=10.0,
                    max_ack_pending=10_000,
                ),
            )
            pull = await self._js.pull_subscribe_bind(durable=name, stream=stream)
        return EventsConsumer(self, pull, stream, name)

    async def lease(self, name: str, value: bytes, revision: int = 0) -> int:
        """Take a lease or renew it."""
        return await self._leases.replace(name, value, revision)

    async def leases(self) -> Mapping[str, bytes]:
        """All leases that have not expired."""
        return await self._leases.all()

    async def release(self, name: str) -> None:
        """Release a lease."""
        await self._leases.delete(name)

    async def read(self, key: str) -> Entry | None:
        """Read a small state; None if there is none."""
        return await self._state.get(key)

    async def write(self, key: str, value: bytes, revision: int) -> int:
        """Replace the state of this revision."""
        return await self._state.replace(key, value, revision)

    async def time(self) -> float:
        """The broker's clock, in Unix seconds."""
        facts = await self._poses_now()
        return datetime.fromisoformat(facts["ts"][:26].rstrip("Z") + "+00:00").timestamp()

    async def close(self) -> None:
        """Close the connection."""
        self.is_closing = True
        try:
            with suppress(NatsError, OSError, TimeoutError):
                await asyncio.wait_for(self.client.close(), CLOSE_S)
        finally:
            self.client.abort()

    async def stream_of_poses(self) -> tuple[str, int, int]:
        """The stream's creation time, which identifies it, and its first and last sequences."""
        facts = await self._poses_now()
        return facts["created"], facts["state"]["first_seq"], facts["state"]["last_seq"]

    async def has_poses(self, sequence: int, taken_at: float) -> bool:
        """Whether the message of poses at `sequence` was received at `taken_at`."""
        with answers():
            try:
                found = await self._js.get_msg(POSES, sequence)
            except errors.NotFoundError:
                return False
        return found.time is not None and abs(found.time.timestamp() - taken_at) < SAME_S

    async def _poses_now(self) -> dict[str, Any]:
        """Query the stream of poses and record its leader."""
        facts = await self.stream_facts(POSES)
        group = facts.get("cluster", {})
        self.leader = f"{group.get('leader')} {group.get('leader_since')}"
        return facts

    async def stream_facts(self, stream: str) -> dict[str, Any]:
        """What the broker tells of a stream."""
        with answers():
            answer = await self.client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=TIMEOUT_S)
        facts: dict[str, Any] = json.loads(answer.data)
        if "ts" not in facts:
            raise UnavailableError(f"bus: expected stream {stream}, got none")
        return facts

    async def make_consumer(self, stream: str, config: api.ConsumerConfig) -> None:
        """Create a consumer."""
        with answers():
            await self._js.add_consumer(stream, config)

    async def request_messages(self, stream: str, name: str, request: bytes, inbox: str) -> None:
        """Request messages from a consumer."""
        with answers():
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
            await self.client.publish(subject, request, reply=inbox)

    async def fetch_events(self, pull: Any, most: int, timeout_s: float) -> list[Delivery]:
        """Fetch messages that must be acknowledged."""
        with answers():
            try:
                found = await pull.fetch(most, timeout=timeout_s)
            except (errors.FetchTimeoutError, TimeoutError):
                return []
        return [
            Delivery(
                msg.subject,
                msg.data,
                msg.metadata.sequence.stream,
                msg.metadata.timestamp.timestamp(),
                msg.metadata.num_delivered or 1,
                msg.reply,
                msg.headers,
            )
            for msg in found
        ]

    async def acknowledge(self, replies: Sequence[str]) -> None:
        """Acknowledge messages and flush the connection."""
        with answers():
            for reply in replies:
                await self.client.publish(reply, b"+ACK")
            await self.client.flush(timeout=2)

    async def delete_consumer(self, stream: str, name: str) -> None:
        """Delete a consumer if it exists."""
        with answers(), suppress(errors.NotFoundError):
            await self._js.delete_consumer(stream, name)

    async def consumer_lag(self, stream: str, name: str, taken: int | None = None) -> int:
        """Messages not yet delivered; with `taken`, also those delivered but not yet taken."""
        with answers():
            info = await self._js.consumer_info(stream, name)
        sent = info.delivered.consumer_seq if info.delivered else 0
        return (info.num_pending or 0) + (0 if taken is None else sent - taken)

    async def lags(self) -> dict[str, int]:
        """Messages not yet delivered, by consumer of poses."""
        with answers():
            found = await self._js.consumers_info(POSES)
        return {info.name: info.num_pending or 0 for info in found}


def _is_same(stored: api.RawStreamMsg, sent: Mapping[str, str]) -> bool:
    """Whether a stored message is what was sent, and not the same event of another worker."""
    found, but = stored.headers or {}, api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE
    return all(found.get(name) == value for name, value in sent.items() if name != but)


async def connect(settings: BusSettings, name: str) -> NatsBus:
    """Connect to the brokers; the client then reconnects without limit."""
    found: list[NatsBus] = []
    said: set[str] = set()
    """Errors already logged as a warning, such as missing permissions; repeats go to debug."""

    async def came_back() -> None:
        for bus in found:
            bus.connections += 1
        logger.info("broker: reconnected")

    async def went_away() -> None:
        if not all(bus.is_closing for bus in found):
            logger.warning("broker unreachable: connection lost")

    async def failed(error: Exception) -> None:
        words = f"{error}" or type(error).__name__
        is_new = words not in said and len(said) < 100
        logger.log(logging.WARNING if is_new else logging.DEBUG, "bus: %s", words)
        said.add(words)

    client = CarefulClient()
    client.certificates = certificates(settings)
    try:
        with answers():
            await client.connect(
                servers=settings.servers,
                name=name,
                reconnected_cb=came_back,
                disconnected_cb=went_away,
                error_cb=failed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=SHORTEST_S,  # type: ignore[arg-type] # fractions work
                connect_timeout=2,
                ping_interval=2,
                max_outstanding_pings=2,
                inbox_prefix=settings.inbox,
                **login(settings),
            )
    except BaseException:
        client.abort()
        raise
    found.append(NatsBus(client, settings))
    return found[0]


@asynccontextmanager
async def connected(settings: BusSettings, name: str) -> AsyncIterator[NatsBus]:
    """Connect for the duration of a block."""
    bus = await connect(settings, name)
    try:
        yield bus
    finally:
        await bus.close()
