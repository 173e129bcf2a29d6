"""How often a client tries to reach a broker that is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.broker.nats import connected
from stepvad.fleet.settings import BusSettings
from tests.fleet.test_sockets import Answer, broker_that, greet, hang_up
from tests.video.servers import SLOWER, free_port

WATCHED_S = 3.0


async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A broker that is about to stop, or the proxy of one that is away."""
    writer.close()


class Answers:
    """Answers connections in turn, the last way from then on, and notes when each came."""

    def __init__(self, *answers: Answer) -> None:
        self.at: list[float] = []
        self._left: Iterator[Answer] = iter(answers[:-1])
        self._last = answers[-1]

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.at.append(time.monotonic())
        await next(self._left, self._last)(reader, writer)

    def waits(self) -> list[float]:
        return [after - before for before, after in zip(self.at, self.at[1:], strict=False)]


def test_a_broker_that_is_away_is_tried_less_and_less_often_and_never_in_step() -> None:
    clients = [Answers(hang_up, refuse) for _ in range(2)]

    async def lose(answers: Answers) -> None:
        async with broker_that(answers) as settings, connected(settings, "test"):
            await asyncio.sleep(WATCHED_S)

    async def run() -> None:
        await asyncio.gather(*(lose(one) for one in clients))

    asyncio.run(run())
    for one in clients:
        # the connection, an attempt at once, nine after the shortest waits
        assert 4 <= len(one.at) <= 11
        assert max(one.waits()[2:]) > 0.3
    assert len({round(wait, 2) for one in clients for wait in one.waits()[2:]}) > 4


def test_the_first_connection_is_tried_less_and_less_often_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "stepvad.fleet.broker.nats")
    settings = BusSettings(servers=[f"nats://127.0.0.1:{free_port()}"])

    async def run() -> None:
        async with connected_soon(settings, "test", within_s=WATCHED_S):
            raise AssertionError("connected to a closed port")

    with pytest.raises(UnavailableError):
        asyncio.run(run())
    assert 3 <= len([one for one in caplog.messages if "Connect call failed" in one]) <= 10


def test_a_connection_resets_the_waits_of_all_brokers() -> None:
    answers = Answers(*[refuse] * 4, greet)

    async def run() -> list[int]:
        async with broker_that(answers) as first, broker_that(refuse) as second:
            both = first.model_copy(update={"servers": [*first.servers, *second.servers]})
            async with asyncio.timeout(10 * SLOWER), connected(both, "test") as bus:
                return [server.reconnects for server in bus.client._server_pool]

    assert asyncio.run(run()) == [0, 0]
