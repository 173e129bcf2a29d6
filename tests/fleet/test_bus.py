"""NATS as a bus: what is stored once, what is refused, what runs out, what comes back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.broker.bus import ConflictError, Position, UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.subjects import shard_of
from stepvad.fleet.tasks import end
from tests.fleet.brokers import Broker, broker, bus_settings
from tests.video.servers import SLOWER

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
        shard = shard_of("drained/cam", bus.subjects.shards)
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
            await bus.publish(bus.subjects.edge_events("north"), b"%d" % i, id=f"e{i}")
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
