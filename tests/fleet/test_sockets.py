"""No connection to a broker is left open, whatever the broker does."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

import pytest
from nats.errors import Error as NatsError

from stepvad.fleet.broker import nats
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import BusSettings
from stepvad.fleet.tasks import end

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
INFO = b'INFO {"server_id":"x","version":"2.10.0","max_payload":1048576,"headers":true}\r\n'


def left_open(work: Coroutine[None, None, None]) -> list[str]:
    """What is collected after `work` without having been closed."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ResourceWarning)
        asyncio.run(work)
        gc.collect()
    return [str(one.message) for one in said if one.category is ResourceWarning]


async def fall_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that stops during the handshake."""
    writer.write(INFO)
    await reader.read()
    writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that dies when the handshake is over."""
    await greet(reader, writer)
    await asyncio.sleep(0.1)
    writer.close()


async def stop_reading(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that is stopped when the handshake is over."""
    await greet(reader, writer)
    writer.transport.pause_reading()  # type: ignore[attr-defined] # of a socket's transport


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(INFO)
    await reader.readuntil(b"PING\r\n")
    writer.write(b"PONG\r\n")


@asynccontextmanager
async def broker_that(answer: Answer) -> AsyncIterator[BusSettings]:
    """A broker's port where every connection is answered so."""
    writers: list[asyncio.StreamWriter] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            await answer(reader, writer)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield BusSettings(servers=[f"nats://127.0.0.1:{port}"])
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def flooded(settings: BusSettings) -> AsyncIterator[None]:
    """A client with more to send than the broker and both sockets take."""

    async def publish() -> None:
        with suppress(NatsError):
            for _ in range(40):
                await bus.client.publish("much", bytes(1_000_000))

    async with connected(settings, "test") as bus:
        publishing = asyncio.create_task(publish())
        await asyncio.sleep(0.5)
        yield
    await end(publishing)


def test_attempts_that_fail_leave_no_socket_open() -> None:
    async def attempts() -> None:
        async with broker_that(fall_silent) as settings:
            with pytest.raises(UnavailableError):
                async with connected_soon(settings, "test", within_s=1.0):
                    raise AssertionError("connected to a broker that does not answer")

    assert left_open(attempts()) == []


def test_attempts_to_reconnect_leave_no_socket_open() -> None:
    turns = iter([hang_up, *[fall_silent] * 2])
    over = asyncio.Event()

    async def one_after_the_other(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        answer = next(turns, None)
        if answer is None:
            over.set()
        await (answer or fall_silent)(reader, writer)

    async def lose() -> None:
        async with (
            broker_that(one_after_the_other) as settings,
            connected(settings, "test"),
            asyncio.timeout(20),
        ):
            await over.wait()

    assert left_open(lose()) == []


def test_a_broker_that_stops_reading_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nats, "CLOSE_S", 0.3)

    async def flood() -> None:
        async with broker_that(stop_reading) as settings:
            async with flooded(settings):
                began = time.monotonic()
            assert time.monotonic() - began < 3.0

    assert left_open(flood()) == []


def test_a_broker_that_stops_reading_is_left_for_the_next() -> None:
    turns = iter([stop_reading])
    came_back = asyncio.Event()

    async def first_stops(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = next(turns, None)
        if answer is None:
            came_back.set()
        await (answer or greet)(reader, writer)

    async def flood() -> None:
        async with broker_that(first_stops) as settings, flooded(settings):
            async with asyncio.timeout(20):
                await came_back.wait()

    asyncio.run(flood())
