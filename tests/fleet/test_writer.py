from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.request import urlopen

import pytest

from stepvad.codec import encode
from stepvad.errors import ConfigError
from stepvad.fleet import database, streams
from stepvad.fleet.connection import Connection, UnavailableError, connected, translated
from stepvad.fleet.outbox import EventMessage
from stepvad.fleet.settings import EventsSettings, FleetSettings, StreamSettings
from stepvad.fleet.writer import EventWriter
from tests.fleet.servers import Broker, broker_settings
from tests.site.records import record
from tests.video.servers import SLOWER, free_port

QUOTA = 50
pytestmark = pytest.mark.anyio


class Fleet:
    """A fleet that was set up: an operator at its broker, and what its database has."""

    def __init__(self, settings: FleetSettings, broker: Connection, db: Any) -> None:
        self.settings, self.broker, self.db = settings, broker, db

    async def publish(self, numbers: Sequence[int], site: str = "north") -> None:
        for n in numbers:
            told = record(id=f"e{n}", version=1, start_time=time.time())
            message = EventMessage(type="new", site=site, event=told)
            await self.broker.publish(streams.events(site), encode(message))

    async def waiting(self) -> int:
        return int((await self.broker.js.stream_info(streams.EVENTS)).state.messages)

    async def stored(self) -> list[str]:
        return [row[0] for row in await self.db.fetch("SELECT id FROM stepvad.events ORDER BY id")]

    async def emptied(self) -> None:
        """Wait until all is stored."""
        deadline = time.monotonic() + 20 * SLOWER
        while time.monotonic() < deadline:
            with suppress(UnavailableError), translated():
                if await self.waiting() == 0:
                    return
            await asyncio.sleep(0.02)
        pytest.fail("events still wait for the writer")

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[EventWriter]:
        """A writer that works in this block, and until all is stored."""
        one = EventWriter(self.settings)
        task = asyncio.create_task(one.run())
        yield one
        await self.emptied()
        one.stage.stopping.set()
        await task


@pytest.fixture
async def fleet(server: Broker, dsn: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setenv("OF_EVENTS", dsn)
    settings = FleetSettings(
        broker=broker_settings([server]),
        streams=StreamSettings(events_per_site=QUOTA),
        events=EventsSettings(dsn="env:OF_EVENTS"),
    )
    await database.set_up(dsn, 90)
    async with (
        connected(settings.broker, "admin") as admin,
        database.connected(dsn) as db,
    ):
        await streams.set_up(admin, settings.streams)
        yield Fleet(settings, admin, db)


def count(one: EventWriter, kind: str) -> float:
    return one.metrics.counts[kind]._value.get()


async def test_what_is_stored_is_taken_out_of_the_stream_soon(fleet: Fleet) -> None:
    async with fleet.writing() as one:
        await fleet.publish(range(20))
        await fleet.emptied()
        took: list[float] = []
        for n in range(20, 25):
            started = time.monotonic()
            await fleet.publish([n])
            await fleet.emptied()
            took.append(time.monotonic() - started)
    assert len(await fleet.stored()) == 25
    assert (count(one, "stored"), count(one, "retries")) == (25, 0)
    assert min(took) < 0.5  # it does not wait for a batch to fill


BAD = [b"nonsense", b"", b"\xff\xfe", b'{"a": "\0"}', b'{"type": "a\0b"}', b"x" * 200_000]


async def test_bad_messages_stop_nothing(fleet: Fleet) -> None:
    async with fleet.writing() as one:
        for n, bad in enumerate(BAD):
            await fleet.broker.publish(streams.events("north"), bad)
            await fleet.publish([n])
    assert len(await fleet.stored()) == len(BAD)
    assert (count(one, "refused"), count(one, "retries")) == (len(BAD), 0)


class Killed(BaseException):
    """The end of a process, as far as a test can have it."""


async def test_a_writer_killed_between_commit_and_purge_stores_nothing_twice(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.publish(range(20))
    dying = EventWriter(fleet.settings)

    async def store_and_die(events: Any, messages: Any) -> None:
        await EventWriter._store(dying, events, messages)
        raise Killed

    monkeypatch.setattr(dying, "_store", store_and_die)
    with pytest.raises(Killed):
        await dying.run()
    n = len(await fleet.stored())
    assert n > 0
    assert await fleet.waiting() == 20
    async with fleet.writing() as one:
        await fleet.publish([20])
    assert len(await fleet.stored()) == 21
    assert (count(one, "stored"), count(one, "known")) == (21 - n, n)


@pytest.mark.parametrize("missing", [7, 19])
async def test_a_writer_that_misses_a_message_starts_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    real, lost = streams.Reader._take, list[Any]()

    async def lose_one(self: streams.Reader, message: Any) -> None:
        if not lost and f'"e{missing}"'.encode() in message.data:
            lost.append(message)
        else:
            await real(self, message)

    monkeypatch.setattr(streams.Reader, "_take", lose_one)
    async with fleet.writing() as one:
        await fleet.publish(range(20))
    assert lost
    assert count(one, "retries") == 1
    assert len(await fleet.stored()) == 20


@pytest.mark.slow
async def test_a_second_writer_waits_until_the_first_is_gone(fleet: Fleet) -> None:
    async with fleet.writing() as second:
        async with fleet.writing() as first:
            await fleet.publish(range(40))
            await fleet.emptied()
        assert sorted(count(one, "stored") for one in (first, second)) == [0, 40]
        await fleet.publish([40])
        await fleet.emptied()
        assert count(first, "stored") + count(second, "stored") == 41


@pytest.mark.slow
async def test_a_full_quota_of_a_site_leaves_the_others_theirs(fleet: Fleet) -> None:
    await fleet.publish(range(QUOTA))
    with pytest.raises(UnavailableError, match="maximum messages per subject") as refused:
        await fleet.publish([QUOTA])
    assert "does the writer run" in refused.value.hint
    await fleet.publish(range(5), "south")
    async with fleet.writing():
        await fleet.emptied()
        await fleet.publish(range(QUOTA, QUOTA + 5))  # there is room again
    assert len(await fleet.stored()) == QUOTA + 5 + 5


@pytest.mark.slow
async def test_a_broker_that_was_away_loses_nothing(fleet: Fleet, server: Broker) -> None:
    async with fleet.writing() as one:
        await fleet.publish(range(10))
        server.kill()
        await asyncio.sleep(1)
        server.start()
        while True:
            with suppress(UnavailableError):
                await fleet.publish([10])
                break
            await asyncio.sleep(0.1)
    assert len(await fleet.stored()) == 11
    assert one.stage.heartbeat.age_s < 60


@pytest.mark.slow
async def test_a_database_that_ends_the_session_is_used_again(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet.writing() as one:
        await fleet.publish(range(10))
        await fleet.emptied()
        await fleet.db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'stepvad' AND pid != pg_backend_pid() "
            "AND datname = current_database()"
        )
        await fleet.publish(range(10, 20))
    assert len(await fleet.stored()) == 20
    assert count(one, "retries") >= 1
    assert "retrying" in caplog.text


async def test_a_writer_without_tables_says_what_to_do(fleet: Fleet) -> None:
    await fleet.db.execute("DROP SCHEMA stepvad CASCADE")
    with pytest.raises(ConfigError, match="expected tables of version 1, got none") as raised:
        await EventWriter(fleet.settings).run()
    assert "stepvad fleet setup" in raised.value.hint


async def test_the_metrics_say_what_was_stored_and_what_waits(fleet: Fleet) -> None:
    address = f"127.0.0.1:{free_port()}"
    events = fleet.settings.events.model_copy(update={"metrics": address})
    fleet.settings = fleet.settings.model_copy(update={"events": events})
    async with fleet.writing():
        await fleet.publish(range(3))
        await fleet.broker.publish(streams.events("north"), b"nonsense")
    data = await asyncio.to_thread(lambda: urlopen(f"http://{address}/metrics", timeout=5).read())
    lines = data.decode().splitlines()
    for line in (
        *("stepvad_fleet_events_stored_total 3.0", "stepvad_fleet_events_refused_total 1.0"),
        *("stepvad_fleet_events_waiting 0.0", "stepvad_fleet_events_lag_seconds 0.0"),
    ):
        assert line in lines
