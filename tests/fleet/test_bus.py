"""NATS as a bus: what is stored once, refused or runs out, every error, every connection."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from nats import errors as client_errors
from nats.errors import Error as NatsError
from nats.js import errors

from stepvad.errors import ConfigError, StepvadError
from stepvad.fleet.broker import nats
from stepvad.fleet.broker.administration import connected_soon
from stepvad.fleet.broker.bus import (
    ConflictError,
    LimitError,
    Position,
    TooLargeError,
    UnavailableError,
)
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.broker.nats_errors import BY_CLASS, BY_CODE, answers
from stepvad.fleet.event_loop import end
from stepvad.fleet.settings import BusSettings
from tests.fleet.servers import Broker, broker, bus_settings
from tests.video.servers import SLOWER, free_port

Talk = Callable[[NatsBus], Awaitable[None]]

LEASE_S = 0.5


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker(tmp_path_factory.mktemp("nats")) as made:
        yield made


def talk(one: Broker, what: Talk) -> None:
    async def run() -> None:
        async with connected(bus_settings([one], lease_s=LEASE_S), "test") as bus:
            await bus.setup()
            await what(bus)

    asyncio.run(run())


def test_an_event_is_stored_once_and_only_by_who_wrote_last(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        subject = bus.subjects.events(0)
        claim = await bus.publish(subject, b"claim")
        first = await bus.publish(subject, b"a", id="a", expect=claim.sequence)
        assert not first.is_duplicate
        again = await bus.publish(subject, b"a", id="a", expect=claim.sequence)  # no answer came
        assert again == (first.sequence, True)
        other = await bus.publish(subject, b"claim")
        with pytest.raises(ConflictError):
            await bus.publish(subject, b"b", id="b", expect=first.sequence)
        late = await bus.publish(subject, b"a", id="a", expect=other.sequence)
        assert late == (first.sequence, True)
        assert await bus.said(subject, claim.sequence) == [b"a", b"claim"]

    talk(one, what)


def test_the_same_event_of_a_new_owner_is_not_taken_for_ours(one: Broker) -> None:
    """Else a former owner goes on after it, as if it had not been told of the claim."""

    async def what(bus: NatsBus) -> None:
        subject = bus.subjects.events(2)
        ours, theirs = {"Stepvad-Worker": "a"}, {"Stepvad-Worker": "b"}
        first = await bus.publish(subject, b"claim a")
        await bus.publish(subject, b"1", id="one", expect=first.sequence, headers=ours)
        lost = await bus.publish(subject, b"1", id="one", expect=first.sequence, headers=ours)
        assert lost.is_duplicate
        claim = await bus.publish(subject, b"claim b")
        await bus.publish(subject, b"2", id="two", expect=claim.sequence, headers=theirs)
        with pytest.raises(ConflictError):
            await bus.publish(subject, b"2", id="two", expect=lost.sequence, headers=ours)

    talk(one, what)


def test_a_lease_runs_out_unless_it_is_renewed(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        mine = await bus.lease("w1", b"1")
        with pytest.raises(ConflictError):
            await bus.lease("w1", b"x")
        other = await bus.lease("w2", b"2")
        for _ in range(4):
            await asyncio.sleep(0.25)
            mine = await bus.lease("w1", b"3", mine)
        assert await bus.leases() == {"w1": b"3"}
        with pytest.raises(ConflictError):
            await bus.lease("w2", b"2", other)
        await bus.release("w1")
        assert await bus.leases() == {}
        await bus.lease("w1", b"4")

    talk(one, what)


def test_a_state_is_replaced_only_by_who_knows_it(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        assert await bus.read("nobody") is None
        revision = await bus.write("shard-9", b"1", 0)
        with pytest.raises(ConflictError):
            await bus.write("shard-9", b"2", 0)
        later = await bus.write("shard-9", b"3", revision)
        with pytest.raises(ConflictError):
            await bus.write("shard-9", b"4", revision)
        assert await bus.read("shard-9") == (b"3", later)

    talk(one, what)


def test_poses_come_in_order_from_a_place_on_and_only_those_of_the_shard(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        for i in range(600):
            await bus.client.publish(f"stepvad.poses.{i % 2}.s.c", b"%d" % i)
        await bus.client.flush()
        consumer = await bus.poses(1, "reader", Position())
        found = [d for _ in range(20) for d in await consumer.fetch(64, 0.2)]
        assert [int(d.data) for d in found] == list(range(1, 600, 2))
        again = await bus.poses(1, "other", Position(consumer.position.stream, found[99].sequence))
        assert int((await again.fetch(1, 1.0))[0].data) == int(found[100].data)
        assert await again.lag() == 199
        elsewhere = await bus.poses(1, "third", Position("another stream", 10**6))
        assert int((await elsewhere.fetch(1, 1.0))[0].data) == 1
        assert abs(await bus.time() - found[-1].time) < 60

    talk(one, what)


def test_a_consumer_is_drained_when_the_broker_says_so_and_not_when_it_is_silent(
    one: Broker,
) -> None:
    async def what(bus: NatsBus) -> None:
        await bus.publish(bus.subjects.poses("drained", "cam"), b"1")
        shard = bus.subjects.shard("drained", "cam")
        one.send(signal.SIGSTOP)
        opening = asyncio.create_task(bus.poses(shard, "drained", Position()))
        await asyncio.sleep(0.2)
        one.send(signal.SIGCONT)
        reader = await opening
        one.send(signal.SIGSTOP)
        try:
            await reader.fetch(10, 0.5)
            found = await reader.fetch(10, 0.5)
            assert (found, reader.is_drained) == ([], False)
        finally:
            one.send(signal.SIGCONT)
        deadline = time.monotonic() + 10 * SLOWER
        while not reader.is_drained and time.monotonic() < deadline:
            await reader.fetch(10, 0.5)
        assert reader.is_drained
        await bus.publish(bus.subjects.poses("drained", "cam"), b"2")
        assert len(await reader.fetch(10, 5 * SLOWER)) == 1
        assert not reader.is_drained, "it may have more"
        await reader.close()

    talk(one, what)


def test_poses_that_were_lost_and_numbered_anew_are_read_again(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        for i in range(10):
            await bus.publish("stepvad.poses.3.s.c", b"%d" % i)
        first = await bus.poses(3, "first", Position())
        found = await first.fetch(10, 1.0)
        assert [d.data for d in found] == [b"%d" % i for i in range(10)]
        at, stream = found[4], first.position.stream
        assert first.position == Position(
            stream, found[9].sequence, found[9].sequence, found[9].time
        )
        same = await bus.poses(3, "same", Position(stream, at.sequence, at.sequence, at.time))
        assert (await same.fetch(1, 1.0))[0].data == b"5"
        earlier = Position(stream, at.sequence, at.sequence, at.time - 5.0)
        other = await bus.poses(3, "anew", earlier)  # what has its number now came later
        assert (await other.fetch(1, 1.0))[0].data == b"0"
        beyond = Position(stream, 10**6, 10**6, at.time)
        last = await bus.poses(3, "last", beyond)
        assert (await last.fetch(1, 1.0))[0].data == b"0"

    talk(one, what)


def test_a_consumer_begins_anew_when_another_broker_leads(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        consumer = await bus.poses(2, "led", Position())
        await consumer.fetch(1, 0.2)
        assert consumer.restarts == 0
        bus.leader = "another one since now"
        await consumer.fetch(1, 0.2)
        assert consumer.restarts == 1

    talk(one, what)


def test_a_consumer_that_the_broker_ends_again_and_again_is_made_after_ever_longer_waits(
    one: Broker,
) -> None:
    async def what(bus: NatsBus) -> None:
        consumer = await bus.poses(2, "ended", Position())

        async def end_it() -> None:
            while True:
                for name in await bus.lags():
                    if name.startswith("ended"):
                        await bus.delete_consumer("POSES", name)
                await asyncio.sleep(0.005)

        ending = asyncio.create_task(end_it())
        enough = time.monotonic() + 2.0
        async with asyncio.timeout(10 * SLOWER):
            while time.monotonic() < enough or consumer.restarts < 2:
                await consumer.fetch(1, 0.2)
        await end(ending)
        assert 2 <= consumer.restarts <= 8  # 0.05 s, doubled: six waits make 3.15 s at most
        await bus.publish("stepvad.poses.2.s.c", b"new")
        async with asyncio.timeout(10 * SLOWER):
            while not (found := await consumer.fetch(1, 0.5)):
                pass
        assert found[-1].data == b"new"

    talk(one, what)


def test_events_that_are_not_acknowledged_come_again(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        consumer = await bus.events("writer")
        while some := await consumer.fetch(100, 0.2):
            await consumer.ack(some)
        for i in range(3):
            await bus.publish(bus.subjects.events(1), b"%d" % i, id=f"e{i}")
        found = await consumer.fetch(10, 1.0)
        assert [d.data for d in found] == [b"0", b"1", b"2"]
        await consumer.ack(found)
        assert await consumer.fetch(10, 0.2) == []
        assert await consumer.lag() == 0

    talk(one, what)


def test_whoever_asks_for_leases_leaves_nothing_behind(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        await bus.lease("some", b"1", 0)
        await bus.lease("other", b"2", 0)
        for _ in range(20):
            assert await bus.leases() == {"some": b"1", "other": b"2"}
        await bus.release("other")
        assert await bus.leases() == {"some": b"1"}
        await asyncio.sleep(2 * LEASE_S)
        assert await bus.leases() == {}
        bucket = f"KV_{bus.subjects.leases}"
        assert (await bus.client.jetstream().stream_info(bucket)).state.consumer_count == 0

    talk(one, what)


def test_a_fleet_keeps_its_number_of_shards(one: Broker) -> None:
    talk(one, lambda bus: bus.setup())

    async def other() -> None:
        async with connected(bus_settings([one], shards=8, lease_s=LEASE_S), "test") as bus:
            with pytest.raises(
                ConfigError, match="expected 4 as this fleet was set up with, got 8"
            ):
                await bus.setup()

    asyncio.run(other())


def test_a_broker_that_lost_its_memory_is_set_up_again(tmp_path: Path) -> None:
    async def run() -> None:
        with broker(tmp_path) as own:
            async with connected(bus_settings([own]), "test") as bus:
                await bus.setup()
                await bus.publish("stepvad.poses.1.s.c", b"before")
                await bus.write("shard-1", b"kept", 0)
                consumer = await bus.poses(1, "reader", Position())
                assert [d.data for d in await consumer.fetch(9, 1.0)] == [b"before"]
                own.kill()
                with pytest.raises(UnavailableError):
                    await bus.publish("stepvad.poses.1.s.c", b"never")
                own.start()
                for _ in range(100):
                    try:
                        await bus.setup()
                        break
                    except UnavailableError:
                        await asyncio.sleep(0.1)
                await bus.publish("stepvad.poses.1.s.c", b"after")
                found = [d.data for _ in range(3) for d in await consumer.fetch(9, 0.5)]
                assert found[-1] == b"after"
                assert b"before" not in found
                assert (await bus.read("shard-1")) is not None

    asyncio.run(run())


RAISED: tuple[tuple[Exception, type[StepvadError], str], ...] = (
    (errors.APIError(code=400, err_code=10071), ConflictError, "the last who wrote"),
    (errors.BadRequestError(code=400, err_code=10164), ConflictError, "the last who wrote"),
    (errors.KeyWrongLastSequenceError("wrong last sequence: 7"), ConflictError, "who wrote"),
    (errors.ServiceUnavailableError(code=503), UnavailableError, "expected JetStream.*-js"),
    (errors.NoStreamResponseError(), UnavailableError, "expected JetStream.*-js"),
    (errors.NotFoundError(code=404, description="no message found"), UnavailableError, "no mess"),
    (errors.KeyNotFoundError(), UnavailableError, "key not found"),
    (errors.KeyDeletedError(), UnavailableError, "key was deleted"),
    (errors.APIError(code=500, description="no space left"), UnavailableError, "no space left"),
    (errors.APIError(), UnavailableError, "APIError"),
    (client_errors.AuthorizationError(), UnavailableError, "what the broker permits"),
    (client_errors.InvalidUserCredentialsError(), UnavailableError, "what the broker permits"),
    (client_errors.MaxPayloadError(), TooLargeError, "max_payload"),
    (errors.BadRequestError(code=400, err_code=10054), TooLargeError, "max_payload"),
    (
        errors.ServiceUnavailableError(
            code=503, err_code=10077, description="maximum messages per subject exceeded"
        ),
        LimitError,
        "writer of events",
    ),
    (
        errors.ServiceUnavailableError(
            code=503, err_code=10077, description="no space left on device"
        ),
        UnavailableError,
        "expected JetStream",
    ),
    (client_errors.NoServersError(), UnavailableError, "is the broker running"),
    (client_errors.FlushTimeoutError(), UnavailableError, "is the broker running"),
    (TimeoutError(), UnavailableError, "TimeoutError"),
    (ConnectionRefusedError(111, "refused"), UnavailableError, "refused"),
)


@pytest.mark.parametrize(("error", "kind", "words"), RAISED, ids=lambda one: type(one).__name__)
def test_an_error_of_the_client_is_raised_as_the_table_says(
    error: Exception, kind: type[StepvadError], words: str
) -> None:
    with pytest.raises(kind, match=words) as told, answers():
        raise error
    assert "None" not in str(told.value)


def test_every_entry_of_the_tables_is_tried() -> None:
    codes = {getattr(error, "err_code", None) for error, _, _ in RAISED}
    assert codes >= set(BY_CODE)
    first = {next(kind for kind, _ in BY_CLASS if isinstance(e, kind)) for e, _, _ in RAISED}
    assert first == {kind for kind, _ in BY_CLASS}


@pytest.mark.parametrize("error", [KeyError("a fault of ours"), ValueError("another")])
def test_what_the_table_does_not_know_passes(error: Exception) -> None:
    with pytest.raises(type(error)), answers():
        raise error


def test_a_key_that_a_real_broker_does_not_have_is_an_error_of_ours(tmp_path: Path) -> None:
    async def run() -> None:
        with broker(tmp_path) as one:
            async with connected(bus_settings([one]), "test") as bus:
                await bus.setup()
                with pytest.raises(UnavailableError, match="key not found"), answers():
                    await bus._state._keys.get("nobody")

    asyncio.run(run())


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
            assert time.monotonic() - began < 1.0 * SLOWER

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
