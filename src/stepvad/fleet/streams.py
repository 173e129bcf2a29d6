"""The streams of a fleet and their subjects: created, brought up to date, checked, and read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any
from uuid import uuid4

# Loaded by the fleet alone, where a broker is spoken to.
from nats.aio.msg import Msg  # noqa: TID253
from nats.aio.subscription import Subscription  # noqa: TID253
from nats.js import api  # noqa: TID253
from nats.js.errors import NotFoundError  # noqa: TID253

from stepvad.codec import encode
from stepvad.fleet.connection import TIMEOUT_S, Connection, UnavailableError, translated
from stepvad.fleet.settings import StreamSettings

EVENTS, REGISTRY, FILES = "EVENTS", "REGISTRY", "FILES"
MARKS, STATUS, POSES = "MARKS", "STATUS", "POSES"

MAX_EVENT = 200_000
"""Most bytes of a change of an event."""
CHUNK = 500_000
"""Bytes of a file in one message."""
MAX_MARKS, MAX_VALUE, MAX_STATUS, MAX_POSES = 200_000, 100_000, 4096, 500_000
MB = 1_000_000
BATCH, IDLE_S = 500, 1.0
"""Most messages read at once, and how long a reader waits for the first."""


def events(site: str) -> str:
    """Changes of the events of a site, and what was said of them there."""
    return f"events.{site}"


def registry(group: str) -> str:
    """What a group of sites should run."""
    return f"registry.{group}"


def chunk(sha256: str, n: int | str) -> str:
    """A part of a file."""
    return f"files.{sha256}.{n}"


def marks(site: str) -> str:
    """What the centre said of the events of a site."""
    return f"marks.{site}"


def status(site: str) -> str:
    """What a site runs, and how it is."""
    return f"status.{site}"


def poses(site: str, camera: str) -> str:
    """Poses that a device finds itself."""
    return f"poses.{site}.{camera}"


def ask(site: str) -> str:
    """Questions to a site, which are stored nowhere."""
    return f"ask.{site}"


def configurations(settings: StreamSettings) -> list[api.StreamConfig]:
    """The six streams; a quota for each site keeps one from filling what others need."""
    common: dict[str, Any] = {
        "retention": api.RetentionPolicy.LIMITS,
        "num_replicas": settings.replicas,
        "storage": api.StorageType.FILE,
        "duplicate_window": 1,  # no message has an id: one site could take that of another
    }

    def stream(name: str, subject: str, mb: float, largest: int, **more: Any) -> api.StreamConfig:
        facts = common | {"max_bytes": round(mb * MB), "max_msg_size": largest} | more
        return api.StreamConfig(name=name, subjects=[subject], **facts)

    last: dict[str, Any] = {"max_msgs_per_subject": 1, "allow_direct": True}
    some = last | {"max_msgs_per_subject": 20}  # what a group ran before, and who changed it
    return [
        stream(
            *(EVENTS, events("*"), settings.events_mb, MAX_EVENT),
            discard=api.DiscardPolicy.NEW,
            discard_new_per_subject=True,
            max_msgs_per_subject=settings.events_per_site,
        ),
        stream(REGISTRY, registry("*"), 100, MAX_VALUE, **some),
        stream(FILES, chunk("*", "*"), settings.files_mb, CHUNK + 1000, **last),
        stream(MARKS, marks("*"), 2000, MAX_MARKS, **last),
        stream(STATUS, status("*"), 200, MAX_STATUS, **last),
        stream(
            *(POSES, poses("*", "*"), settings.poses_mb, MAX_POSES),
            max_age=60 * settings.poses_minutes,
            storage=api.StorageType.MEMORY,
        ),
    ]


async def set_up(
    connection: Connection, settings: StreamSettings, *, check: bool = False
) -> list[str]:
    """Create the streams, or change them to what the settings say; what was done, in words.

    `check`: change nothing; what is to be done.
    """
    found = []
    for wanted in configurations(settings):
        with translated():
            differences = await _differences(connection, wanted)
            if differences is None:
                found.append(f"stream {wanted.name}")
                if not check:
                    await connection.js.add_stream(wanted)
            elif differences:
                found.append(f"stream {wanted.name}: {', '.join(differences)}")
                if not check:
                    await connection.js.update_stream(wanted)
    return found


async def _differences(connection: Connection, wanted: api.StreamConfig) -> Sequence[str] | None:
    """The settings of a stream that are not as wanted; None if there is no such stream."""
    try:
        there = (await connection.js.stream_info(f"{wanted.name}")).config
    except NotFoundError:
        return None
    named = [one.name for one in fields(wanted) if getattr(wanted, one.name) is not None]
    return [
        f"{name} is {getattr(there, name)}, expected {getattr(wanted, name)}"
        for name in named
        if getattr(there, name) != getattr(wanted, name)
    ]


class Reader:
    """Reads a stream in order, without acknowledgements; raises if a message is missing.

    The broker keeps the place where it reads, and nothing else.
    """

    def __init__(self, broker: Connection, stream: str, user: str) -> None:
        self._broker, self._stream, self._name = broker, stream, f"{user}-{uuid4().hex}"
        self.last = 0
        """Sequence in the stream of the last message read."""
        self._n_read = self._n_asked = 0
        self._inbox, self._came = broker.client.new_inbox(), asyncio.Queue[Msg]()
        self._heard: Subscription | None = None

    async def open(self, **consumer: Any) -> int:
        """Begin to read, by the settings of a consumer; the number of messages that wait."""
        config = api.ConsumerConfig(
            name=self._name,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=30.0,  # brokers forget a reader that does not ask for so long
            mem_storage=True,
            num_replicas=1,
            **consumer,
        )
        with translated():
            self._heard = await self._broker.client.subscribe(self._inbox, cb=self._take)
            return (await self._broker.js.add_consumer(self._stream, config)).num_pending or 0

    async def aclose(self) -> None:
        """Hear nothing more."""
        if self._heard is not None:
            # the client may have closed it; why the reader is closed matters more
            with suppress(UnavailableError), translated():
                await self._heard.unsubscribe()

    async def _take(self, message: Msg) -> None:
        self._came.put_nowait(message)

    async def read(self) -> list[Msg]:
        """The next messages; none if there were none for a second. Once it raised, it is over."""
        found = list[Msg]()
        with translated():
            while not found or (self._came.qsize() and len(found) < BATCH):
                await self._ask()
                if self._came.qsize():
                    message = self._came.get_nowait()
                else:
                    message = await asyncio.wait_for(self._came.get(), IDLE_S + TIMEOUT_S)
                if message.subject == self._inbox:  # a word of the broker: the time is over
                    status = (message.headers or {}).get("Status")
                    if status not in (None, "404", "408"):
                        raise UnavailableError(f"broker: expected messages, got status {status}")
                    self._n_asked = 0
                    break
                found.append(message)
                self._n_asked -= 1
            if found:
                sequence = found[-1].metadata.sequence
                n_sent, last = sequence.consumer, sequence.stream
            else:  # the last one may be missing
                told = (await self._broker.js.consumer_info(self._stream, self._name)).delivered
                n_sent, last = told.consumer_seq if told else 0, self.last
        self._n_read, self.last = self._n_read + len(found), last
        if n_sent != self._n_read:
            raise UnavailableError("broker: expected all messages in order, got a gap")
        if found:
            await self._ask()  # the next come while these are being used
        return found

    async def _ask(self) -> None:
        """Ask the broker for more once all that was asked for has come."""
        if self._n_asked == 0:
            wanted = encode({"batch": BATCH, "expires": round(IDLE_S * 1e9)})
            subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
            with translated():
                await self._broker.client.publish(subject, wanted, self._inbox)
            self._n_asked = BATCH
