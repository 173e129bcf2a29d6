"""The writer of events: what it makes of messages, in which order, and when it hangs."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepvad.errors import DataError
from stepvad.events.record import Record, event_id
from stepvad.events.rules import ChangeKind
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.event_message import change_of, of_fleet
from stepvad.fleet.events.postgres import FleetEvents, NoDatabaseError, Wanted, connect
from stepvad.fleet.events.writer import FleetEventWriter, WriterMetrics, WriterStats, checked
from stepvad.fleet.settings import EventsSettings
from stepvad.fleet.wire import encode_claim
from stepvad.site.stages import STUCK
from tests.fleet.fleets import Role, bus_section, prepare_servers
from tests.fleet.results import body, change, delivery, event, over, worse
from tests.fleet.servers import Broker, PostgresServer, broker, bus_settings, postgres_server
from tests.site.records import record
from tests.video.servers import SLOWER


def test_a_message_tells_whose_event_it_is_and_what_it_is_now() -> None:
    one = over(event(3))
    found = change_of(delivery(body("end", one), 9, f"{one.id}:end:417"), site="north")
    assert found is not None
    assert (found.site, found.camera, found.kind) == ("north", "yard", "end")
    assert (found.record, found.turn, found.sequence) == (one, 417, 9)


def test_later_kinds_have_higher_ranks() -> None:
    one = event()
    assert [change("new", one).rank, change("update", one).rank] == [0, 1]
    assert change("end", over(one)).rank == 2


def test_a_claim_is_no_change() -> None:
    assert change_of(delivery(encode_claim("worker-1"))) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "expected an event"),
        (b"[" * 100_000, "expected an event"),
        (b"[]", "expected an event"),
        (b"{}", "expected an event"),
        (body("new", event(), type="claims"), "expected new, update or end"),
        (body("new", event(), after=None), "expected an object"),
        (body("new", event(), after={"id": "x"}), "expected after.camera, got none"),
        (body("new", over(event())), "expected an end time if it is an end"),
        (body("end", event()), "expected an end time if it is an end"),
        (body("new", event(), site="south"), "expected one of site north"),
        (body("new", event(camera="south/yard"), site="north"), "expected a camera north/"),
        (body("new", event(id=event_id("south/yard", 1, 7, 0))), "expected an id of camera"),
        (body("new", event(why={"a": 1})), "expected a text or null as before.why"),
        (body("new", event(why="a\0b")), "characters as why"),
        (
            body("new", event(why="half")).replace(b"half", rb"\ud800"),
            "valid Unicode as why",
        ),
        (body("new", event(label="x" * 301)), "characters as label"),
        (b" " * (1 << 20) + body("new", event()), "bytes"),
    ],
)
def test_what_is_no_event_of_the_site_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words):
        change_of(delivery(data), site="north")


def test_numbers_without_end_are_refused() -> None:
    data = body("new", event()).replace(b'"track_id": 7', b'"track_id": 1e999')
    with pytest.raises(DataError, match="expected"):
        change_of(delivery(data))


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(["after", "site", "type", "id", "camera", "zones", "box", "end_time"]),
)
def test_no_message_ends_in_another_error(value: Any, where: str) -> None:
    facts = json.loads(body("new", event()))
    (facts if where in facts else facts["after"])[where] = value
    with suppress(DataError):
        change_of(delivery(json.dumps(facts).encode()))


def test_events_of_a_site_are_other_events_than_those_of_another_site() -> None:
    one = record("yard", 3)
    north, south = of_fleet(one, "north"), of_fleet(one, "south")
    assert north.camera == "north/yard"
    assert north.id != south.id
    assert north.id == event_id("north/yard", one.epoch, 7, 3)


ALL = Wanted()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path / "nats") as made:
        yield made


async def until(happened: Callable[[], Awaitable[bool]], limit_s: float = 20 * SLOWER) -> None:
    deadline = time.monotonic() + limit_s
    while not await happened():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.05)


def written(dsn: str, server: Broker, told: Callable[[NatsBus], Awaitable[int]]) -> tuple[Any, ...]:
    """What is stored and counted after so many messages as `told` says it sent."""

    async def go() -> tuple[Any, ...]:
        settings = bus_settings([server])
        async with connect(dsn) as events, connected(settings, "test") as bus:
            await bus.setup()
            n = await told(bus)
            stopping = asyncio.Event()
            assert await checked(events, stopping)
            writer = FleetEventWriter(
                bus, events, EventsSettings(retention_days=1e5), settings.subjects, stopping
            )
            running = asyncio.create_task(writer.run())
            counts = writer.counts

            async def all_taken() -> bool:
                return counts.written + counts.claims + counts.dead >= n

            try:
                await until(all_taken)
            finally:
                stopping.set()
                await running
            lag = (await bus._js.consumer_info("EVENTS", "stepvad-events")).num_ack_pending
            stored = await events.events(ALL)
            return stored, counts, lag

    return asyncio.run(go())


def test_messages_become_rows_and_claims_and_poison_do_not(dsn: str, server: Broker) -> None:
    one, far = event(1), over(event(2, "south/yard"))

    async def told(bus: NatsBus) -> int:
        subjects = bus.subjects
        first = subjects.events(1)
        sent = [
            (first, encode_claim("worker-1"), None),
            (first, body("new", one), f"{one.id}:new:3"),
            (first, b"\xff\x00", None),
            (first, body("update", worse(one, 9.0)), f"{one.id}:update:8"),
            (first, body("new", event(5, start_time=1e300)), None),
            (subjects.edge_events("south"), body("end", far, site="south"), None),
            # the edge of one site speaks of another's
            (subjects.edge_events("south"), body("end", over(one)), None),
        ]
        for subject, data, id in sent:
            await bus.publish(subject, data, id=id)
        return len(sent)

    stored, counts, pending = written(dsn, server, told)
    assert stored == [far, worse(one, 9.0)]
    assert (counts.claims, counts.dead) == (1, 3)
    assert pending == 0
    assert dead_letters(server) == {
        b"\xff\x00": "stepvad.events.1",
        body("new", event(5, start_time=1e300)): "stepvad.events.1",
        body("end", over(one)): "stepvad.edge-events.south",
    }


def dead_letters(server: Broker) -> dict[bytes, str]:
    """What was set aside, and where it came from."""

    async def go() -> dict[bytes, str]:
        async with connected(bus_settings([server]), "test") as bus:
            pull = await bus._js.pull_subscribe("stepvad.dead.>", "looker", stream="DEAD")
            found = await pull.fetch(10, timeout=1)
            return {msg.data: (msg.headers or {})["subject"] for msg in found}

    return asyncio.run(go())


def test_the_metrics_tell_what_was_counted() -> None:
    found = {
        sample.name: sample.value
        for family in WriterMetrics(WriterStats(written=3, stale=2, database_up=True)).collect()
        for sample in family.samples
    }
    assert found["stepvad_fleet_changes_written_total"] == 3
    assert (found["stepvad_fleet_events_stale"], found["stepvad_fleet_database_up"]) == (2, 1)


NUMBER = 200
WANTED = {event(n).id: over(worse(event(n), 7.0)) for n in range(NUMBER)}


async def tell(bus: NatsBus) -> None:
    """Events from their starts to their ends, whatever happens to the broker."""
    for n in range(NUMBER):
        one = event(n)
        await insist(bus, "new", one, n)
        await insist(bus, "update", worse(one, 7.0), n)
        await insist(bus, "end", over(worse(one, 7.0)), n)
        await asyncio.sleep(0.01)


async def insist(bus: NatsBus, kind: ChangeKind, now: Record, n: int) -> None:
    while True:
        try:
            await bus.publish(
                bus.subjects.events(n % 4),
                body(kind, now),
                id=f"{now.id}:{kind}:1",
            )
            return
        except UnavailableError:
            await asyncio.sleep(0.1)


async def stored(events: FleetEvents, n: int) -> None:
    """Until there are so many events."""

    async def there() -> bool:
        try:
            return (await events.totals(stale_s=60)).events >= n
        except NoDatabaseError:
            return False

    await until(there)


async def killed_one_after_the_other(
    server: Broker, postgres: PostgresServer, role: Role
) -> list[Record]:
    """What is stored in the end."""
    async with connected(bus_settings([server]), "test") as bus, connect(postgres.dsn) as events:
        await events.migrate()
        await bus.setup()
        telling = asyncio.create_task(tell(bus))
        await stored(events, 20)
        role.kill()
        role.start()
        await stored(events, 50)
        postgres.kill()
        await asyncio.sleep(1)
        postgres.start()
        await stored(events, 80)
        server.kill()
        await asyncio.sleep(1)
        server.start()
        await telling

        async def all_over() -> bool:
            totals = await events.totals(stale_s=60)
            return totals.events >= NUMBER and totals.open == 0

        await until(all_over)
        return await events.events(ALL, limit=None)


@pytest.mark.slow
def test_nothing_is_lost_when_writer_database_and_broker_are_killed(
    tmp_path: Path, server: Broker
) -> None:
    settings = tmp_path / "fleet.toml"
    told = '[events]\ndsn = "env:DSN"\nbatch = 7\nretention_days = 1e5\n'
    settings.write_text(bus_section(server) + told)
    with (
        postgres_server("fsync=on") as postgres,
        Role("events", settings, DSN=postgres.dsn) as role,
    ):
        found = asyncio.run(killed_one_after_the_other(server, postgres, role))
        assert len(found) == NUMBER
        assert {one.id: one for one in found} == WANTED
        assert role.stop() == 0, role.log.read_text()


HUNG_S = 2.0
LIMIT_S = 20 * SLOWER


@pytest.mark.parametrize("where", ["task", "loop"])
def test_a_writer_whose_fetch_hangs_exits_as_stuck(tmp_path: Path, dsn: str, where: str) -> None:
    settings = tmp_path / "fleet.toml"
    with broker(tmp_path / "nats") as server:
        prepare_servers(dsn, server)
        settings.write_text(bus_section(server) + '[events]\ndsn = "env:DSN"\n')
        words = ["tests.fleet.altered", "hanging-writer", str(settings), str(HUNG_S), where]
        made = subprocess.run(
            [sys.executable, "-m", *words],
            env=os.environ | {"DSN": dsn},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert made.returncode == STUCK, made.stderr
    assert f"the writer of events hangs: no progress for {HUNG_S:g} s; exiting" in made.stderr
    if where == "loop":
        assert "in hanging" in made.stderr, "the log shows where it hangs"
