"""NATS as a bus: what is stored once, what is refused, what runs out, what comes back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.broker.administration import set_up
from stepvad.fleet.broker.batches import LEAST
from stepvad.fleet.broker.bus import ConflictError, NewEvent, Position, UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.places import shard_of
from stepvad.fleet.settings import FleetSettings
from stepvad.fleet.subjects import EVENTS
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
        subject = bus.subjects.events(bus.subjects.place(0))
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


def some(first: int, end: int) -> list[NewEvent]:
    return [NewEvent(f"{i}".encode(), f"some-{i}", {"Of": f"{i}"}) for i in range(first, end)]


def test_events_that_are_many_are_stored_at_once_in_order_and_only_by_who_wrote_last(
    one: Broker,
) -> None:
    async def what(bus: NatsBus) -> None:
        subject = bus.subjects.events(bus.subjects.place(1))
        claim = await bus.publish(subject, b"claim")
        assert await bus.publish_together(subject, some(0, LEAST - 1), claim.sequence) is None
        assert await bus.said(subject, claim.sequence) == []  # they are too few
        last = await bus.publish_together(subject, some(0, LEAST), claim.sequence)
        assert last == claim.sequence + LEAST
        told = [event.data for event in some(0, LEAST)]
        assert await bus.said(subject, claim.sequence) == told
        again = await bus.publish_together(subject, some(0, LEAST), claim.sequence)
        assert again == last  # the answer was lost
        overlap = some(LEAST - 1, 2 * LEAST)
        assert await bus.publish_together(subject, overlap, last) is None
        other = await bus.publish(subject, b"claim")
        assert await bus.publish_together(subject, some(LEAST, 3 * LEAST), last) is None
        assert await bus.said(subject, claim.sequence) == [*told, b"claim"]
        more = await bus.publish_together(subject, some(LEAST, 2 * LEAST), other.sequence)
        assert more == other.sequence + LEAST
        consumer = await bus.events("reader")
        found = await consumer.fetch(500, 2.0)
        numbers = [(delivery.headers or {}).get("Of") for delivery in found]
        assert [n for n in numbers if n] == [f"{i}" for i in range(2 * LEAST)]

    talk(one, what)


def test_the_same_event_of_a_new_owner_is_not_taken_for_ours(one: Broker) -> None:
    """Else a former owner goes on after it, as if it had not been told of the claim."""

    async def what(bus: NatsBus) -> None:
        subject = bus.subjects.events(bus.subjects.place(2))
        ours, theirs = {"Stepvad-Worker": "a"}, {"Stepvad-Worker": "b"}
        first = await bus.publish(subject, b"claim a")
        await bus.publish(subject, b"1", id="one", expect=first.sequence, headers=ours)
        lost = await bus.publish(subject, b"1", id="one", expect=first.sequence, headers=ours)
        assert lost.is_duplicate
        claim = await bus.publish(subject, b"claim b")
        two = await bus.publish(subject, b"2", id="two", expect=claim.sequence, headers=theirs)
        with pytest.raises(ConflictError):
            await bus.publish(subject, b"2", id="two", expect=lost.sequence, headers=ours)
        many = some(5000, 5000 + LEAST)
        theirs_too = [event._replace(headers=theirs) for event in many]
        assert await bus.publish_together(subject, theirs_too, two.sequence) is not None
        ours_too = [event._replace(headers=ours) for event in many]
        assert await bus.publish_together(subject, ours_too, lost.sequence) is None

    talk(one, what)


def test_shards_are_stored_together_and_one_that_lost_its_fence_holds_up_no_other(
    one: Broker,
) -> None:
    async def what(bus: NatsBus) -> None:
        subjects = [f"stepvad.events.{i}" for i in range(100, 104)]
        claims = [(await bus.publish(subject, b"claim")).sequence for subject in subjects]
        parts = [some(1000, 1020), some(1020, 1040), some(1040, 1041), some(1041, 1100)]

        async def stored(*expected: int) -> list[int | None]:
            given = zip(subjects, parts, expected, strict=True)
            return await asyncio.gather(*(bus.publish_together(*each) for each in given))

        wrong = [claims[0], claims[1] - 1, claims[2], claims[3]]
        none, fenced, few, many = await stored(*wrong)
        assert (none, fenced, few) == (None, None, None)
        assert many is not None
        assert await bus.said(subjects[3], claims[3]) == [event.data for event in parts[3]]
        assert await bus.said(subjects[1], claims[1]) == []
        parts[3] = some(1100, 1110)
        sequences = await stored(*claims[:3], many)
        first = min(s for s in sequences if s is not None) - 19
        assert sequences == [first + 19, first + 39, first + 40, first + 50]

    talk(one, what)


def test_a_stream_of_an_earlier_version_takes_batches_after_it_is_set_up_again(
    tmp_path: Path,
) -> None:
    with broker(tmp_path) as own:

        async def what(bus: NatsBus) -> None:
            stream = bus.client.jetstream()
            config = (await stream.stream_info(EVENTS)).config
            await stream.update_stream(config.evolve(allow_atomic=False))
            claim = await bus.publish(bus.subjects.events(bus.subjects.place(0)), b"claim")
            given = bus.subjects.events(bus.subjects.place(0)), some(0, 40), claim.sequence
            assert await bus.publish_together(*given) is None
            assert await bus.said(given[0], claim.sequence) == []
            await set_up(FleetSettings(bus=bus.settings))
            assert await bus.publish_together(*given) == claim.sequence + 40

        talk(own, what)


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
        consumer = await bus.poses(bus.subjects.place(1), "reader", Position())
        found = [d for _ in range(20) for d in await consumer.fetch(64, 0.2)]
        assert [int(d.data) for d in found] == list(range(1, 600, 2))
        again = await bus.poses(
            bus.subjects.place(1), "other", Position(consumer.position.stream, found[99].sequence)
        )
        assert int((await again.fetch(1, 1.0))[0].data) == int(found[100].data)
        assert await again.lag() == 199
        elsewhere = await bus.poses(
            bus.subjects.place(1), "third", Position("another stream", 10**6)
        )
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
        opening = asyncio.create_task(bus.poses(bus.subjects.place(shard), "drained", Position()))
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
        first = await bus.poses(bus.subjects.place(3), "first", Position())
        found = await first.fetch(10, 1.0)
        assert [d.data for d in found] == [b"%d" % i for i in range(10)]
        at, stream = found[4], first.position.stream
        assert first.position == Position(
            stream, found[9].sequence, found[9].sequence, found[9].time
        )
        same = await bus.poses(
            bus.subjects.place(3), "same", Position(stream, at.sequence, at.sequence, at.time)
        )
        assert (await same.fetch(1, 1.0))[0].data == b"5"
        earlier = Position(stream, at.sequence, at.sequence, at.time - 5.0)
        other = await bus.poses(
            bus.subjects.place(3), "anew", earlier
        )  # what has its number now came later
        assert (await other.fetch(1, 1.0))[0].data == b"0"
        beyond = Position(stream, 10**6, 10**6, at.time)
        last = await bus.poses(bus.subjects.place(3), "last", beyond)
        assert (await last.fetch(1, 1.0))[0].data == b"0"

    talk(one, what)


def test_a_consumer_begins_anew_when_another_broker_leads(one: Broker) -> None:
    async def what(bus: NatsBus) -> None:
        consumer = await bus.poses(bus.subjects.place(2), "led", Position())
        await consumer.fetch(1, 0.2)
        assert consumer.restarts == 0
        bus.leaders["POSES"] = "another one since now"
        await consumer.fetch(1, 0.2)
        assert consumer.restarts == 1

    talk(one, what)


def test_a_consumer_that_the_broker_ends_again_and_again_is_made_after_ever_longer_waits(
    one: Broker,
) -> None:
    async def what(bus: NatsBus) -> None:
        consumer = await bus.poses(bus.subjects.place(2), "ended", Position())

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
                consumer = await bus.poses(bus.subjects.place(1), "reader", Position())
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
