"""Sites against each other, on the broker as shipped, and what each role may do in the database."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from stepvad.errors import DataError
from stepvad.fleet.broker import streams
from stepvad.fleet.broker.administration import set_up
from stepvad.fleet.broker.bus import LimitError, TooLargeError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.event_message import change_of
from stepvad.fleet.events.postgres import FleetEvents, Wanted, connect
from stepvad.fleet.events.reader import EventReader
from stepvad.fleet.subjects import EDGES, Subjects
from tests.fleet.results import body, change, delivery, event, over
from tests.fleet.servers import SecuredBroker, make_certificates, secured_broker
from tests.video.servers import wait_until

if TYPE_CHECKING:
    from nats.aio.client import Client

NORTH, SOUTH = "stepvad.poses.1.north.yard", "stepvad.poses.2.south.yard"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certs"), "north", "south")


@pytest.fixture
def server(tmp_path: Path, certs: Path) -> Iterator[SecuredBroker]:
    own = tmp_path / "certs"
    shutil.copytree(certs, own)  # a test replaces some
    with secured_broker(tmp_path / "broker", own, "north", "south") as made:
        asyncio.run(set_up(made.admin_settings()))
        yield made


async def as_role(server: SecuredBroker, role: str, do: Callable[[NatsBus], Awaitable[Any]]) -> Any:
    async with connected(server.settings(role), role) as bus:
        return await do(bus)


def bare(server: SecuredBroker, role: str) -> Awaitable[Client]:
    """A client that keeps to no rule of ours."""
    import nats

    tls = server.settings(role).tls
    assert tls is not None
    assert tls.cert is not None
    context = ssl.create_default_context(cafile=str(tls.ca))
    context.load_cert_chain(tls.cert, tls.key)
    return nats.connect(
        server.address,
        tls=context,
        inbox_prefix=f"_INBOX.{role}",
        allow_reconnect=False,
        max_reconnect_attempts=0,
    )


def test_ids_of_one_site_suppress_nothing_of_another_nor_of_a_worker(
    server: SecuredBroker,
) -> None:
    async def go() -> None:
        subjects = Subjects()
        async with connected(server.settings("edge-north"), "north") as north:
            await north.publish(subjects.edge_events("north"), b"x", id="e:new:0")
        async with connected(server.settings("worker"), "worker") as worker:
            assert not (
                await worker.publish(subjects.events(1), b"event", id="e:new:0")
            ).is_duplicate

    asyncio.run(go())


def test_events_of_a_site_that_scores_fill_no_more_than_its_part(
    server: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MOST_OF_SITE", 20)
    asyncio.run(as_role(server, "admin", lambda bus: bus._js.delete_stream(EDGES)))
    asyncio.run(set_up(server.admin_settings()))
    subjects = Subjects()

    async def go() -> None:
        async with connected(server.settings("edge-north"), "north") as north:
            with pytest.raises(TooLargeError):
                await north.publish(NORTH, bytes(1_100_000))
            for _ in range(20):
                await north.publish(subjects.edge_events("north"), b"x")
            with pytest.raises(LimitError, match="per subject"):
                await north.publish(subjects.edge_events("north"), b"x")
        async with connected(server.settings("edge-south"), "south") as south:
            await south.publish(subjects.edge_events("south"), b"x")

    asyncio.run(go())


def test_a_certificate_that_was_revoked_is_cut_off_and_the_next_one_is_let_in(
    server: SecuredBroker, tmp_path: Path
) -> None:
    async def go() -> None:
        thief = await bare(server, "edge-north")
        server.write_users("north:2", "south")
        await asyncio.to_thread(server.reload)
        await asyncio.to_thread(wait_until, lambda: not thief.is_connected)
        with pytest.raises(Exception, match=r"(?i)authorization|nats"):
            await bare(server, "edge-north")
        await as_role(server, "edge-south", lambda bus: bus.publish(SOUTH, b"x"))
        await thief.close()

    asyncio.run(go())
    make_certificates(server.certs.parent, "north:2")
    asyncio.run(as_role(server, "edge-north", lambda bus: bus.publish(NORTH, b"x")))


ALL = Wanted()
NOT_ALLOWED = asyncpg.InsufficientPrivilegeError
ROLES = ("stepvad_owner", "stepvad_writer", "stepvad_reader")


async def sql(dsn: str, *words: str) -> Any:
    """What the last statement answers."""
    connection = await asyncpg.connect(dsn)
    try:
        found = None
        for one in words:
            found = await connection.fetch(one)
        return found
    finally:
        await connection.close()


async def script(dsn: str, words: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(words)
    finally:
        await connection.close()


def refuses(dsn: str, words: Sequence[str]) -> None:
    """Each statement is more than the role may do."""
    for one in words:
        with pytest.raises(NOT_ALLOWED):
            asyncio.run(sql(dsn, one))


def address_as(dsn: str, role: str) -> str:
    return re.sub("//[a-z_]+@", f"//{role}@", dsn)


@pytest.fixture
def owner(dsn: str) -> str:
    """A database with roles that an owner has migrated, who is no superuser."""
    for role in ROLES:
        there = f"SELECT FROM pg_roles WHERE rolname = '{role}'"
        make = f"IF NOT EXISTS ({there}) THEN CREATE ROLE {role} LOGIN; END IF;"
        asyncio.run(script(dsn, f"DO $$BEGIN {make} END$$"))
    asyncio.run(script(dsn, f"ALTER DATABASE {dsn.rpartition('/')[2]} OWNER TO stepvad_owner"))
    owner = address_as(dsn, "stepvad_owner")
    using(owner, lambda events: events.migrate())
    return owner


def using(dsn: str, do: Callable[[FleetEvents], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        async with connect(dsn) as events:
            return await do(events)

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("subject", "site"),
    [
        ("stepvad.events.3", None),
        ("stepvad.edge-events.the%20north", "the north"),
        ("other.events.3", DataError),
        ("stepvad.poses.3", DataError),
        ("stepvad.events.3.4", DataError),
        ("stepvad.edge-events.north.more", DataError),
    ],
)
def test_a_subject_says_whose_an_event_is(subject: str, site: str | type[DataError] | None) -> None:
    if isinstance(site, type):
        with pytest.raises(DataError, match="expected the subject of a worker or an edge"):
            Subjects().site_of(subject)
    else:
        assert Subjects().site_of(subject) == site


def test_words_that_a_site_adds_after_the_end_are_stored_and_nothing_older(owner: str) -> None:
    writer, one = address_as(owner, "stepvad_writer"), over(event(1, version=5))
    for later in (replace(one, why="runs", version=6), replace(one, why="late", version=4)):
        data = body("update", later)
        found = change_of(delivery(data, 9), site="north")
        assert found is not None
        using(writer, partial(FleetEvents.write, changes=[change("end", one), found]))
    assert [each.why for each in using(owner, lambda events: events.events(ALL))] == ["runs"]


NOT_FOR_READERS = (
    "INSERT INTO stepvad.events SELECT * FROM stepvad.events",
    "UPDATE stepvad.events SET top_score = 0",
    "UPDATE stepvad.events SET mark = 'normal', record = '{}'",
    "DELETE FROM stepvad.events",
    "TRUNCATE stepvad.events",
    "DO $$BEGIN LOCK TABLE stepvad.events IN SHARE MODE; END$$",
    "SELECT * FROM stepvad.forgotten",
    "UPDATE stepvad.retention SET days = 1",
    "SELECT stepvad.retain(0, 1000)",
    "CREATE TABLE stepvad.mine (id text)",
    "SET ROLE stepvad_writer",
)


def test_the_reader_reviews_events_and_may_do_nothing_else(owner: str) -> None:
    one = change("end", over(event(1)))
    using(address_as(owner, "stepvad_writer"), lambda events: events.write([one]))
    reader = EventReader(address_as(owner, "stepvad_reader"))
    try:
        reader.check()
        reader.mark(one.record.id, "right", "ada")
        assert [*reader.reviews()] == [one.record.id]
    finally:
        reader.close()
    refuses(address_as(owner, "stepvad_reader"), NOT_FOR_READERS)


NOT_FOR_WRITERS = (
    "DELETE FROM stepvad.events",
    "UPDATE stepvad.events SET mark = 'normal'",
    "UPDATE stepvad.retention SET days = 1",
    "DELETE FROM stepvad.retention",
    "INSERT INTO stepvad.forgotten (id) VALUES ('x')",
    "DELETE FROM stepvad.forgotten",
    "CREATE OR REPLACE FUNCTION stepvad.retain(double precision, bigint) RETURNS bigint "
    "LANGUAGE sql AS 'SELECT 1::bigint'",
)


def test_the_writer_neither_deletes_nor_decides_how_long_events_are_kept(owner: str) -> None:
    refuses(address_as(owner, "stepvad_writer"), NOT_FOR_WRITERS)


def test_the_writer_deletes_what_the_owner_no_longer_keeps_and_nothing_else(owner: str) -> None:
    days = 86400.0
    changes = [
        change("end", over(event(age, start_time=time.time() - age * days))) for age in (1, 10, 100)
    ]
    open_ = change("new", event(999, start_time=time.time() - 500 * days))
    writer = address_as(owner, "stepvad_writer")
    using(writer, lambda events: events.write([*changes, open_]))

    def left() -> int:
        return len(using(owner, lambda events: events.events(ALL)))

    using(owner, lambda events: events.set_retention(1000.0))
    for asked in (None, 0.0, -5.0, 1.0, float("-inf")):
        using(writer, partial(FleetEvents.retain, asked_days=asked))
    assert left() == 4
    using(owner, lambda events: events.set_retention(50.0))
    assert using(writer, lambda events: events.retain(200.0)) == 0
    assert using(writer, lambda events: events.retain()) == 1
    assert left() == 3
    assert using(writer, lambda events: events.retention()) == 50.0
    asyncio.run(sql(owner, "DELETE FROM stepvad.retention"))
    assert using(writer, lambda events: events.retain(0.001)) == 0


HOSTILE = """
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT timestamptz '9999-1-1'$$;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
"""


def test_names_of_a_hostile_search_path_mean_nothing(dsn: str, owner: str) -> None:
    writer = address_as(owner, "stepvad_writer")
    using(writer, lambda events: events.write([change("end", over(event(1)))]))
    using(owner, lambda events: events.set_retention(1e5))
    asyncio.run(script(dsn, HOSTILE))
    first = "SET search_path = hostile, pg_catalog"
    assert asyncio.run(sql(writer, first, "SELECT extract(year FROM now())"))[0][0] == 9999
    assert asyncio.run(sql(writer, first, "SELECT stepvad.retain(0, 1000)"))[0][0] == 0
