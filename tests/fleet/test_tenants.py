"""Tenants against each other, on the broker as shipped and in the database."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from stepvad.errors import ConfigError, DataError
from stepvad.events.record import Record
from stepvad.fleet.broker.administration import set_up, usage
from stepvad.fleet.broker.bus import LimitError, TooLargeError, UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.event_origin import Origin, origin_of
from stepvad.fleet.events.postgres import _CAMERAS, _TOTALS, _UNSEEN, FleetEvents, connect
from stepvad.fleet.events.reader import EventReader
from stepvad.fleet.events.tenant_tables import drop_role_sql, role_of, role_sql
from stepvad.fleet.events.wanted import Wanted
from stepvad.fleet.settings import load
from stepvad.fleet.tenants import Limits
from tests.fleet.fleets import FleetCommand
from tests.fleet.results import change, event, over, worse
from tests.fleet.servers import SecuredBroker, make_certificates, secured_broker
from tests.video.servers import wait_until

if TYPE_CHECKING:
    from nats.aio.client import Client

NORTH = "stepvad.tenant.north.poses.0.1.north.yard"
SOUTH = "stepvad.tenant.south.poses.0.2.south.yard"
FEW = {"cameras": 3, "messages_s": 0.5, "poses_mb": 4, "events_mb": 2, "connections": 5}
"""Limits of the attacker: 60 messages of a camera in the two minutes that poses are kept."""


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certs"), "north", "south")


@pytest.fixture
def server(tmp_path: Path, certs: Path) -> Iterator[SecuredBroker]:
    own = tmp_path / "certs"
    shutil.copytree(certs, own)  # a test replaces some
    with secured_broker(tmp_path / "broker", own, "north", "south") as made:
        made.tenants[0] = made.tenants[0].model_copy(update=FEW)
        made.write_accounts()
        made.reload()
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


async def kept(server: SecuredBroker, stream: str) -> int:
    async def look(bus: NatsBus) -> int:
        return (await bus.stream_size(stream)).messages

    return int(await as_role(server, "admin", look))


def test_ids_of_one_tenant_suppress_nothing_of_another_nor_of_a_worker(
    server: SecuredBroker,
) -> None:
    ids = [f"south/yard:7:{seq}" for seq in range(4)]

    async def go() -> None:
        async with connected(server.settings("edge-north"), "north") as north:
            for id_ in ids:
                await north.publish(NORTH, b"x", id=id_)
            await north.publish(north.subjects.edge_events("north", "north"), b"x", id="e:new:0")
        async with connected(server.settings("edge-south"), "south") as south:
            said = [await south.publish(SOUTH, b"poses", id=id_) for id_ in ids]
        assert not any(one.is_duplicate for one in said)
        async with connected(server.settings("worker"), "worker") as worker:
            event = worker.subjects.events(worker.subjects.place(1))
            assert not (await worker.publish(event, b"event", id="e:new:0")).is_duplicate

    asyncio.run(go())


def test_a_flood_fills_the_stream_of_who_sends_it_and_pushes_nothing_out(
    server: SecuredBroker,
) -> None:
    async def flood(client: Client) -> None:
        """Large ones, many of one camera, and many cameras, without waiting for an answer."""
        for i in range(560):
            large = bytes(990_000 if i < 20 else 200_000)
            await client.publish(NORTH, large, reply="_INBOX.edge-north.a")
        for i in range(3000):
            await client.publish(f"{NORTH}{i}", b"x" * 100, reply="_INBOX.edge-north.a")
        await client.flush(30)

    async def go() -> None:
        async with connected(server.settings("edge-south"), "south") as south:
            for i in range(20):
                await south.publish(SOUTH, b"%d" % i)
            client = await bare(server, "edge-north")
            await flood(client)
            await client.close()
            assert await kept(server, "POSES-south-0") == 20
            await south.publish(SOUTH, b"and on")
        north = await as_role(server, "admin", lambda bus: bus.stream_size("POSES-north-0"))
        limits = Limits.model_validate(FEW)
        assert 0 < north.bytes <= limits.poses_mb * 1e6
        assert north.messages <= limits.messages_s * 120 * limits.cameras
        assert await kept(server, "POSES") == 0

    asyncio.run(go())


def test_who_sends_too_much_is_told_and_a_message_too_large_is_told_apart(
    server: SecuredBroker,
) -> None:
    async def go(bus: NatsBus) -> None:
        with pytest.raises(TooLargeError):
            await bus.publish(NORTH, bytes(300_000))
        for _ in range(60):
            await bus.publish(NORTH, b"x")
        with pytest.raises(LimitError, match="per subject"):
            await bus.publish(NORTH, b"x")
        await bus.publish(f"{NORTH}2", b"another camera")

    asyncio.run(as_role(server, "edge-north", go))


def test_events_of_a_site_that_scores_fill_no_more_than_its_part(server: SecuredBroker) -> None:
    async def go() -> None:
        client = await bare(server, "edge-north")
        subject = "stepvad.tenant.north.edge-events.north"
        for _ in range(100):
            await client.publish(subject, bytes(200_000), reply="_INBOX.edge-north.a")
        await client.flush(30)
        await client.close()
        size = await as_role(server, "admin", lambda bus: bus.stream_size("EDGES-north"))
        assert 0 < size.bytes <= FEW["events_mb"] * 1e6
        assert await kept(server, "EVENTS") == 0

    asyncio.run(go())


def test_connections_of_one_tenant_are_counted(server: SecuredBroker) -> None:
    async def go() -> None:
        clients = []
        for _ in range(12):
            with suppress(Exception):
                clients.append(await bare(server, "edge-north"))
        assert 1 <= len(clients) <= FEW["connections"]
        async with connected(server.settings("edge-south"), "south") as south:
            await south.publish(SOUTH, b"x")
        for client in clients:
            await client.close()

    asyncio.run(go())


def test_a_certificate_that_was_revoked_is_cut_off_and_the_next_one_is_let_in(
    server: SecuredBroker, tmp_path: Path
) -> None:
    async def go() -> None:
        thief = await bare(server, "edge-north")
        server.tenants[0] = server.tenants[0].model_copy(update={"generation": 2})
        server.write_accounts()
        await asyncio.to_thread(server.reload)
        await asyncio.to_thread(wait_until, lambda: not thief.is_connected)
        with pytest.raises(Exception, match=r"(?i)authorization|nats"):
            await bare(server, "edge-north")
        await as_role(server, "edge-south", lambda bus: bus.publish(SOUTH, b"x"))
        await thief.close()

    asyncio.run(go())
    make_certificates(server.certs.parent, "north:2")
    asyncio.run(as_role(server, "edge-north", lambda bus: bus.publish(NORTH, b"x")))


def test_a_tenant_is_added_changed_revoked_and_removed_by_commands(
    server: SecuredBroker, tmp_path: Path, fleet: FleetCommand
) -> None:
    file, conf = tmp_path / "admin.toml", tmp_path / "tenants.conf"
    file.write_text(f'accounts = "tenants.conf"\n# the broker\n{server.section("admin")}')
    words = ("fleet", "tenant")
    code, said = fleet(
        *words, "add", file, "west", "--site", "w1", "--site", "w2", "--cameras", "7"
    )
    assert code == 0, said
    assert "reload the brokers" in said
    assert "CN=edge-w1" in conf.read_text()
    code, said = fleet(*words, "add", file, "west", "--site", "w3")
    assert code == 1
    assert "which exists" in said
    code, said = fleet(*words, "add", file, "east", "--site", "w1")
    assert code == 1
    assert "twice" in said
    code, said = fleet(*words, "limits", file, "west", "--poses-mb", "9")
    assert code == 0, said
    found = {one.tenant: one for one in asyncio.run(usage(load(file)))}
    assert found["west"].most_cameras == 7
    assert found["west"].most_poses_mb == 18
    code, said = fleet(*words, "revoke", file, "west", "--yes")
    assert code == 0, said
    assert "w1:2 w2:2" in said
    assert 'user: "CN=edge-w1,OU=2"' in conf.read_text()
    code, said = fleet(*words, "list", file)
    assert code == 0, said
    assert "west" in said
    code, said = fleet(*words, "remove", file, "west", "--yes")
    assert code == 0, said
    assert "west" not in conf.read_text()
    assert "# the broker" in file.read_text()
    assert {one.tenant for one in asyncio.run(usage(load(file)))} == {"", "north", "south"}
    code, said = fleet(*words, "limits", file, "west", "--cameras", "7")
    assert code == 1
    assert "expected one of" in said
    assert fleet(*words, "role", "west") == (0, role_sql("west"))
    assert fleet(*words, "role", "west", "--drop") == (0, drop_role_sql("west"))


def test_limits_are_changed_on_the_broker_and_buckets_stay_as_they_are(
    server: SecuredBroker,
) -> None:
    wanted = server.tenants[0].model_copy(
        update={"poses_mb": 5, "messages_s": 1.0, "message_kb": 9}
    )
    server.tenants[0] = wanted
    said = asyncio.run(set_up(server.admin_settings()))
    assert "POSES-north-0: poses_mb 4 -> 5" in said
    assert "POSES-north-0: message_kb 256 -> 9" in said
    assert "POSES-north-0: max_msgs_per_subject 60 -> 120" in said
    assert not any(one.startswith("KV_") for one in said)
    assert asyncio.run(set_up(server.admin_settings())) == []


def test_a_tenant_that_the_fleet_does_not_know_is_told_so(server: SecuredBroker) -> None:
    async def go(bus: NatsBus) -> None:
        assert (await bus.tenant("north")) is not None
        with pytest.raises(UnavailableError):
            await bus.tenant("south")

    asyncio.run(as_role(server, "edge-north", go))


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
    for tenant in ("acme", "bold"):
        asyncio.run(script(dsn, role_sql(tenant)))
    return owner


def using(dsn: str, do: Callable[[FleetEvents], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        async with connect(dsn) as events:
            return await do(events)

    return asyncio.run(go())


def filled(dsn: str) -> tuple[Record, Record, Record]:
    """The same event of the same camera, by two tenants and by the fleet itself."""
    ours = change("end", over(event(1)))
    acme = change("end", over(worse(event(1), 7.0)), tenant="acme")
    bold = change("new", worse(event(1), 9.0), tenant="bold")
    writer = address_as(dsn, "stepvad_writer")
    using(writer, lambda events: events.write([ours, acme, bold]))
    return ours.record, acme.record, bold.record


@pytest.mark.parametrize(
    ("subject", "origin"),
    [
        ("stepvad.events.3", Origin()),
        ("stepvad.edge-events.the%20north", Origin(site="the north")),
        ("stepvad.events.acme.0.17", Origin("acme")),
        ("stepvad.tenant.acme.edge-events.the%20north", Origin("acme", "the north")),
        ("other.events.3", None),
        ("stepvad.poses.3", None),
        ("stepvad.events.ac%2Eme.0.17", None),
        ("stepvad.events..0.17", None),
        ("stepvad.tenant..edge-events.north", None),
        ("stepvad.tenant.acme.edge-events.north.more", None),
        (f"stepvad.tenant.{'a' * 49}.edge-events.north", None),
    ],
)
def test_a_subject_says_whose_an_event_is(subject: str, origin: Origin | None) -> None:
    if origin is None:
        with pytest.raises(DataError, match="expected the subject of a worker or an edge"):
            origin_of(subject, "stepvad")
    else:
        assert origin_of(subject, "stepvad") == origin


def test_an_id_of_another_tenant_cannot_be_made_up() -> None:
    one = event(1)
    for made_up in (f"acme.{one.id}", f"{one.id}.x"):
        with pytest.raises(DataError, match="expected an id"):
            change("new", event(1, id=made_up))


def test_the_same_event_of_two_tenants_is_two_rows(owner: str) -> None:
    ours, acme, bold = filled(owner)
    assert {ours.id, acme.id, bold.id} == {ours.id, f"acme.{ours.id}", f"bold.{ours.id}"}
    reader = address_as(owner, "stepvad_reader")
    found = using(reader, lambda events: events.events(ALL))
    assert sorted(found, key=lambda one: one.top_score) == [ours, acme, bold]


def test_a_tenant_sees_and_reviews_its_own_events_and_no_others(owner: str) -> None:
    ours, acme, bold = filled(owner)
    reader = EventReader(address_as(owner, role_of("acme")))
    try:
        reader.check()
        assert reader.events() == [acme]
        assert reader.events(camera="north/") == [acme]
        assert (reader.event(bold.id), reader.event(ours.id)) == (None, None)
        assert reader.stored().cameras == {"north/yard": 1}
        assert reader.to_review() == 1
        reader.mark(acme.id, "right", "ada")
        assert reader.to_review() == 0
        for other in (ours, bold):
            with pytest.raises(DataError, match="expected the id of a stored event"):
                reader.mark(other.id, "normal", "ada")
        assert [*reader.reviews()] == [acme.id]
        with pytest.raises(ConfigError, match="a role that may do this"):
            reader.delete(camera="north/yard")
    finally:
        reader.close()
    rows = asyncio.run(sql(owner, "SELECT tenant FROM stepvad.events WHERE mark IS NOT NULL"))
    assert [*map(tuple, rows)] == [("acme",)]


NOT_FOR_TENANTS = (
    "INSERT INTO stepvad.events SELECT * FROM stepvad.events",
    "UPDATE stepvad.events SET top_score = 0",
    "UPDATE stepvad.events SET tenant = 'bold'",
    "UPDATE stepvad.events SET mark = 'normal', record = '{}'",
    "DELETE FROM stepvad.events",
    "TRUNCATE stepvad.events",
    "DO $$BEGIN LOCK TABLE stepvad.events IN SHARE MODE; END$$",
    "SELECT * FROM stepvad.forgotten",
    "SELECT * FROM stepvad.retention",
    "UPDATE stepvad.retention SET days = 1",
    "SELECT stepvad.retain(0, 1000)",
    "ALTER TABLE stepvad.events DISABLE ROW LEVEL SECURITY",
    "DROP POLICY of_tenant ON stepvad.events",
    "CREATE TABLE stepvad.mine (id text)",
    "SET ROLE stepvad_reader",
    'SET ROLE "stepvad_tenant_bold"',
    'SET SESSION AUTHORIZATION "stepvad_tenant_bold"',
)


def test_a_tenant_may_do_nothing_else(owner: str) -> None:
    filled(owner)
    refuses(address_as(owner, role_of("acme")), NOT_FOR_TENANTS)


def test_a_tenant_that_becomes_the_group_or_turns_security_off_sees_nothing(owner: str) -> None:
    filled(owner)
    acme, count = address_as(owner, role_of("acme")), "SELECT count(*) FROM stepvad.events"
    assert asyncio.run(sql(acme, count))[0][0] == 1
    assert asyncio.run(sql(acme, "SET ROLE stepvad_tenant", count))[0][0] == 0
    with pytest.raises(NOT_ALLOWED):
        asyncio.run(sql(acme, "SET row_security = off", count))
    # a function that a tenant can make is not asked about the rows of others
    leak = (
        "CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS "
        "$$BEGIN IF $1 NOT LIKE 'acme%' THEN RAISE 'saw %', $1; END IF; RETURN true; END$$"
    )
    asked = "SELECT count(*) FROM stepvad.events WHERE pg_temp.leak(id)"
    assert asyncio.run(sql(acme, leak, asked))[0][0] == 1


def test_a_name_that_no_role_can_have_is_refused() -> None:
    for wrong in ("", "a.b", "a" * 49, 'x"; DROP ROLE admin; --', "-a", "a\n"):
        with pytest.raises(ConfigError, match="tenant: expected 1 to 48 letters"):
            role_sql(wrong)


def test_a_role_is_made_twice_and_taken_away(owner: str) -> None:
    admin = address_as(owner, "admin")
    asyncio.run(script(admin, role_sql("gone") + role_sql("gone")))
    assert asyncio.run(sql(address_as(admin, role_of("gone")), "SELECT 1"))
    asyncio.run(script(admin, drop_role_sql("gone")))
    with pytest.raises(asyncpg.PostgresError, match="does not exist"):
        asyncio.run(sql(address_as(admin, role_of("gone")), "SELECT 1"))


NOT_FOR_WRITERS = (
    "DELETE FROM stepvad.events",
    "UPDATE stepvad.events SET tenant = 'bold'",
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
    ages = {"": (1, 10, 100), "acme": (1, 10, 100), "bold": (1, 10, 100)}
    changes = [
        change("end", over(event(age, start_time=time.time() - age * days)), tenant=tenant)
        for tenant, found in ages.items()
        for age in found
    ]
    open_ = change("new", event(999, start_time=time.time() - 500 * days))
    writer = address_as(owner, "stepvad_writer")
    using(writer, lambda events: events.write([*changes, open_]))

    def left() -> dict[str, int]:
        rows = asyncio.run(sql(owner, "SELECT tenant, count(*) FROM stepvad.events GROUP BY 1"))
        return dict(rows)

    using(owner, lambda events: events.set_retention(1000.0))
    for asked in (None, 0.0, -5.0, 1.0, float("-inf")):
        using(writer, partial(FleetEvents.retain, asked_days=asked))
    assert left() == {"": 4, "acme": 3, "bold": 3}
    using(owner, lambda events: events.set_retention(5.0, "acme"))
    assert using(writer, lambda events: events.retain(1e5)) == 2  # acme has days of its own
    assert left() == {"": 4, "acme": 1, "bold": 3}
    using(owner, lambda events: events.set_retention(50.0))
    assert using(writer, lambda events: events.retain(200.0)) == 0
    assert using(writer, lambda events: events.retain()) == 2
    assert left() == {"": 3, "acme": 1, "bold": 2}
    assert using(writer, lambda events: events.retention()) == {"": 50.0, "acme": 5.0}
    asyncio.run(sql(owner, "DELETE FROM stepvad.retention"))
    assert using(writer, lambda events: events.retain(0.001)) == 0


HOSTILE = """
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT timestamptz '9999-1-1'$$;
CREATE FUNCTION hostile.substr(text, integer) RETURNS text LANGUAGE sql AS $$SELECT 'bold'$$;
CREATE FUNCTION hostile.starts_with(text, text) RETURNS boolean LANGUAGE sql AS $$SELECT true$$;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
"""


def test_names_of_a_hostile_search_path_mean_nothing(dsn: str, owner: str) -> None:
    filled(owner)
    using(owner, lambda events: events.set_retention(1e5))
    asyncio.run(script(dsn, HOSTILE))
    first = "SET search_path = hostile, pg_catalog"
    writer, acme = address_as(owner, "stepvad_writer"), address_as(owner, role_of("acme"))
    assert asyncio.run(sql(writer, first, "SELECT extract(year FROM now())"))[0][0] == 9999
    assert asyncio.run(sql(writer, first, "SELECT stepvad.retain(0, 1000)"))[0][0] == 0
    rows = asyncio.run(sql(acme, first, "SELECT tenant FROM stepvad.events"))
    assert [*map(tuple, rows)] == [("acme",)]


def test_the_owner_deletes_for_one_tenant_alone(owner: str) -> None:
    ours, _, bold = filled(owner)
    done = using(owner, lambda events: events.delete(Wanted(tenant="acme", site="north")))
    assert done.events == 1
    filled(owner)  # what was deleted stays deleted
    found = using(owner, lambda events: events.events(ALL))
    assert {one.id for one in found} == {ours.id, bold.id}


def test_a_tenant_that_locks_its_rows_does_not_hold_up_the_others(owner: str) -> None:
    filled(owner)
    expired = change("end", over(event(5)), tenant="bold")
    using(address_as(owner, "stepvad_writer"), lambda events: events.write([expired]))

    async def go() -> list[str]:
        writer = address_as(owner, "stepvad_writer")
        holder = await asyncpg.connect(address_as(owner, role_of("bold")))
        try:
            async with holder.transaction(), connect(writer) as events:
                await holder.execute("SELECT FROM stepvad.events FOR UPDATE")
                ended = over(worse(event(1), 9.0))
                with pytest.raises(Exception, match="lock timeout"):
                    await events.write([change("end", ended, 2, tenant="bold")])
                await events.write([change("new", event(2), 3, tenant="acme")])
                await asyncio.wait_for(events.retain(), 5)
                return [one.id for one in await events.events(Wanted(tenant="acme"))]
        finally:
            await holder.close()

    assert len(asyncio.run(go())) == 1  # the first ended long ago


MANY = """
INSERT INTO stepvad.events (id, tenant, site, camera, label, severity, start_time, end_time,
    top_score, record, rank, turn, first_sequence, last_sequence)
SELECT t || '.e' || i, t, 'site' || i % 50, 'cam' || i % 4, 'anomaly', 'alert',
    now() - make_interval(secs => i), now(), 5, jsonb_build_object('text', repeat('x', 300)),
    2, i, i, i FROM generate_series(1, 20000) AS i, (VALUES ('bold'), ('cold')) AS of (t)
UNION ALL SELECT 'acme.e' || i, 'acme', 'site' || i % 50, 'cam', 'anomaly', 'alert',
    now() - make_interval(secs => 100000 + i), now(), 5, '{}', 2, i, i, i
    FROM generate_series(1, 500) AS i
"""


def test_the_page_of_a_tenant_does_not_read_the_rows_of_others(owner: str) -> None:
    asyncio.run(sql(owner, MANY, "VACUUM ANALYZE stepvad.events"))
    acme = address_as(owner, role_of("acme"))
    latest = "SELECT record FROM stepvad.events WHERE {} ORDER BY start_time DESC, id DESC LIMIT 9"
    for words in (
        _CAMERAS,
        _TOTALS.replace("$1", "60"),
        _UNSEEN.replace("$1", "9"),
        latest.format("true"),
        latest.format("site = 'site7' AND camera = 'cam'"),
    ):
        explained = f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) {words}"
        plan = "\n".join(row[0] for row in asyncio.run(sql(acme, explained)))
        assert "Seq Scan" not in plan, plan
        removed = [line for line in plan.splitlines() if "Rows Removed by Filter" in line]
        assert sum(int(line.rpartition(" ")[2]) for line in removed) < 1000, plan
