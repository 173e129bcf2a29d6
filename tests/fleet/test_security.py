"""Attempts against the servers of a fleet, configured as they are shipped."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.broker.administration import set_up
from stepvad.fleet.broker.bus import Position, UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.events.postgres import FleetEvents, NoDatabaseError, Wanted, connect
from stepvad.fleet.subjects import EDGES, EVENTS, POSES
from stepvad.site import demo
from tests.fleet.fleets import Role
from tests.fleet.results import change, event, over
from tests.fleet.servers import (
    PostgresServer,
    SecuredBroker,
    dsn,
    make_certificates,
    make_roles,
    postgres_server,
    secure,
    secured_broker,
)
from tests.site.sites import NO_PAGE, busy_person, pose_camera, write_site
from tests.video.servers import wait_until

if TYPE_CHECKING:
    from nats.aio.client import Client

NORTH, SOUTH = "stepvad.poses.1.north.yard", "stepvad.poses.2.south.yard"


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certs"), "north", "south")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certs: Path) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("nats"), certs, "north", "south") as made:
        asyncio.run(set_up(made.admin_settings()))
        yield made


async def as_role(server: SecuredBroker, role: str, do: Callable[[NatsBus], Awaitable[Any]]) -> Any:
    async with connected(server.settings(role), role) as bus:
        return await do(bus)


def count(server: SecuredBroker, subject: str) -> int:
    """Messages that the streams keep of a subject."""

    async def look(bus: NatsBus) -> int:
        found = 0
        for stream in (POSES, EVENTS, EDGES):
            info = await bus._js.stream_info(stream, subjects_filter=subject)
            found += sum((info.state.subjects or {}).values())
        return found

    return int(asyncio.run(as_role(server, "admin", look)))


def attempt(server: SecuredBroker, role: str, do: Callable[[Client], Awaitable[Any]]) -> str:
    """Do something as a role with the bare client; what the broker says against it."""
    import nats

    said: list[str] = []

    async def hear(error: Exception) -> None:
        said.append(str(error))

    async def go() -> None:
        tls = server.settings(role).tls
        assert tls is not None
        assert tls.cert is not None
        context = ssl.create_default_context(cafile=str(tls.ca))
        context.load_cert_chain(tls.cert, tls.key)
        client = await nats.connect(
            server.address, tls=context, error_cb=hear, inbox_prefix=f"_INBOX.{role}"
        )
        try:
            await do(client)
            await client.flush()
            await asyncio.sleep(0.2)
        finally:
            await client.close()

    asyncio.run(go())
    return " ".join(said).lower()


def test_an_edge_publishes_what_is_its_own(server: SecuredBroker) -> None:
    async def publish(bus: NatsBus) -> None:
        subject = bus.subjects.poses("north", "porch")
        await bus.publish(subject, b"poses", id="1")
        assert (await bus.publish(subject, b"poses", id="1")).is_duplicate
        await bus.publish(bus.subjects.edge_events("north"), b"events")

    asyncio.run(as_role(server, "edge-north", publish))
    assert count(server, "stepvad.poses.*.north.porch") == 1
    assert count(server, "stepvad.edge-events.north") == 1


@pytest.mark.parametrize(
    "subject",
    [
        SOUTH,
        "stepvad.edge-events.south",
        "stepvad.events.1",
        "stepvad.dead.event",
        "$KV.stepvad-state.fleet",
        "$JS.API.STREAM.PURGE.POSES",
        "$JS.API.CONSUMER.CREATE.POSES.spy",
        "$JS.API.STREAM.MSG.GET.POSES",
        "_INBOX.worker.x",
    ],
)
def test_an_edge_cannot_publish_as_others_nor_ask_for_what_is_kept(
    server: SecuredBroker, subject: str
) -> None:
    async def publish(client: Client) -> None:
        await client.publish(subject, b"{}", reply="_INBOX.edge-north.answer")

    assert "permissions violation for publish" in attempt(server, "edge-north", publish)
    assert count(server, subject) == 0


@pytest.mark.parametrize(
    "subject",
    [">", "stepvad.>", SOUTH, NORTH, "_INBOX.>", "_INBOX.worker.>", "_INBOX.edge-south.>"],
)
def test_an_edge_cannot_read_poses_nor_what_others_are_answered(
    server: SecuredBroker, subject: str
) -> None:
    heard: list[bytes] = []

    async def listen(client: Client) -> None:
        async def hear(msg: Any) -> None:
            heard.append(msg.data)

        await client.subscribe(subject, cb=hear)
        await client.flush()
        await as_role(server, "edge-south", lambda bus: bus.publish(SOUTH, b"a pose of south"))

    assert "permissions violation for subscription" in attempt(server, "edge-north", listen)
    assert heard == []


def test_an_answer_of_the_broker_cannot_be_sent_to_another_sites_subject(
    server: SecuredBroker,
) -> None:
    before = count(server, "stepvad.poses.*.south.>")

    async def trick(client: Client) -> None:
        for reply in (
            "stepvad.poses.3.south.door",
            "stepvad.edge-events.south",
            "$JS.API.STREAM.PURGE.POSES",
            "stepvad.events.1",
            "_INBOX.worker.x",
        ):
            await client.publish("stepvad.poses.1.north.trick", b"x", reply=reply)

    attempt(server, "edge-north", trick)
    assert count(server, "stepvad.poses.1.north.trick") == 5
    assert count(server, "stepvad.poses.*.south.>") == before
    assert count(server, "stepvad.events.*") == count(server, "stepvad.edge-events.south") == 0


def test_the_writer_of_events_reads_events_and_no_poses(server: SecuredBroker) -> None:
    async def read(bus: NatsBus) -> None:
        consumer = await bus.events("stepvad-events")
        await consumer.ack(await consumer.fetch(10, 0.2))
        await consumer.lag()
        await bus.publish(bus.subjects.dead("event"), b"poison")
        with pytest.raises(UnavailableError):
            await bus.poses(1, "spy", Position())

    asyncio.run(as_role(server, "events", read))
    for subject in (NORTH, "stepvad.events.1", "$JS.API.STREAM.DELETE.EVENTS"):
        said = attempt(server, "events", partial(_publish, subject))
        assert "permissions violation" in said, subject


def test_a_worker_may_not_delete_nor_pretend_to_be_a_camera(server: SecuredBroker) -> None:
    for subject in (NORTH, "$JS.API.STREAM.DELETE.POSES", "$JS.API.STREAM.PURGE.EVENTS"):
        said = attempt(server, "worker", partial(_publish, subject))
        assert "permissions violation" in said, subject


async def _publish(subject: str, client: Client) -> None:
    await client.publish(subject, b"")


async def refused(server: SecuredBroker, tls: ssl.SSLContext | None, scheme: str = "tls") -> None:
    """Knock; a client that is let in is closed, or its tasks would go on for ever."""
    import nats

    address = f"{scheme}://localhost:{server.port}"
    try:
        client = await nats.connect(
            address, tls=tls, allow_reconnect=False, connect_timeout=2, max_reconnect_attempts=0
        )
    except (nats.errors.Error, OSError):
        return
    await client.close()
    pytest.fail("it was let in")


def test_nobody_is_let_in_without_a_certificate_of_the_fleet(
    server: SecuredBroker, certs: Path, tmp_path: Path
) -> None:
    bare = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    asyncio.run(refused(server, bare))
    others = make_certificates(tmp_path, "north")
    foreign = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    foreign.load_cert_chain(others / "worker.pem", others / "worker.key")
    asyncio.run(refused(server, foreign))
    unknown = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    unknown.load_cert_chain(certs / "stepvad_reader.pem", certs / "stepvad_reader.key")
    asyncio.run(refused(server, unknown))


def test_nothing_is_said_in_plain_text(server: SecuredBroker) -> None:
    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false}\r\nSUB stepvad.> 1\r\nPING\r\n')
        answer = await asyncio.wait_for(reader.read(1000), 10)
        writer.close()
        return answer

    answer = asyncio.run(talk())
    assert b"PONG" not in answer
    asyncio.run(refused(server, None, "nats"))


def test_a_broker_that_is_not_ours_is_not_trusted(server: SecuredBroker, tmp_path: Path) -> None:
    others = make_certificates(tmp_path)
    settings = server.settings("worker")
    assert settings.tls is not None
    tls = settings.tls.model_copy(update={"ca": others / "ca.pem"})

    async def go() -> None:
        with pytest.raises((UnavailableError, TimeoutError)):
            async with asyncio.timeout(3), connected(settings.model_copy(update={"tls": tls}), "w"):
                pass

    asyncio.run(go())


@pytest.fixture(scope="module")
def database(certs: Path) -> Iterator[PostgresServer]:
    with postgres_server(prepare=lambda made: secure(made, certs)) as made:
        make_roles(made)
        asyncio.run(using(dsn(made, certs, "stepvad_owner"), lambda events: events.migrate()))
        yield made


async def using(address: str, do: Callable[[FleetEvents], Awaitable[Any]]) -> Any:
    async with connect(address) as events:
        return await do(events)


def test_roles_of_the_database_do_their_work_over_tls(
    database: PostgresServer, certs: Path
) -> None:
    one = over(event())

    async def read(events: FleetEvents) -> None:
        assert await events.events(Wanted()) == [one]
        with pytest.raises(ConfigError, match="a role that may"):
            await events.delete(Wanted())

    writes = dsn(database, certs, "stepvad_writer")
    asyncio.run(using(writes, lambda events: events.write([change("end", one)])))
    asyncio.run(using(dsn(database, certs, "stepvad_reader"), read))
    asyncio.run(using(dsn(database, certs, "stepvad_owner"), lambda events: events.scrub()))


def test_the_database_refuses_plain_text_missing_certificates_and_those_of_others(
    database: PostgresServer, certs: Path, tmp_path: Path
) -> None:
    good = dsn(database, certs, "stepvad_writer")
    others = make_certificates(tmp_path)
    attempts = {
        "plain text": dsn(database, certs, "stepvad_writer", mode="disable"),
        "no certificate": good.partition("&sslcert")[0],
        "another role": good.replace("//stepvad_writer@", "//stepvad_owner@"),
        "another authority": dsn(database, others, "stepvad_writer", mode="require"),
        "the superuser": good.replace("//stepvad_writer@", "//admin@"),
    }
    for what, address in attempts.items():
        with pytest.raises(NoDatabaseError):
            asyncio.run(using(address, lambda events: events.events(Wanted())))
        assert what
    with pytest.raises(NoDatabaseError, match="certificate verify failed"):
        asyncio.run(
            using(
                good.replace(f"sslrootcert={certs}", f"sslrootcert={others}"),
                lambda events: events.events(Wanted()),
            )
        )


@pytest.mark.slow
def test_a_whole_fleet_works_with_no_more_rights_than_these(
    tmp_path: Path, certs: Path, server: SecuredBroker, database: PostgresServer
) -> None:
    before, writer = len(server.log()), dsn(database, certs, "stepvad_writer")
    fleet = f'\n[[models]]\nmodel = "{demo.MODEL}"\nthreshold = 20.0\n[events]\ndsn = "env:DSN"\n'
    (tmp_path / "worker.toml").write_text(server.section("worker") + fleet)
    (tmp_path / "events.toml").write_text(server.section("events") + fleet)
    camera = pose_camera("yard", busy_person(), tmp_path)
    bus = "[fleet]\n" + server.section("edge-north", "fleet.bus")
    site = write_site(tmp_path, camera, bus, more=NO_PAGE)
    site.write_text(site.read_text().replace('name = "test"', 'name = "north"', 1))
    with (
        Role("worker", tmp_path / "worker.toml") as worker,
        Role("events", tmp_path / "events.toml", DSN=writer) as events,
        Role("edge", site),
    ):

        def rows() -> int:
            wanted = Wanted(camera="north/yard", open=False, since=1e9)
            return len(asyncio.run(using(writer, lambda kept: kept.events(wanted))))

        wait_until(lambda: rows() >= 1, 90)
        server.kill()
        server.start()
        n = rows()
        wait_until(lambda: rows() >= n + 1, 90)
        assert worker.stop() == 0, worker.log.read_text()
        assert events.stop() == 0, events.log.read_text()
    assert "Violation" not in server.log()[before:]
