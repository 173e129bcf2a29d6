"""Tenants against each other, on the broker as it is shipped: forge, suppress, evict, starve."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from stepvad.fleet.broker.administration import set_up, usage
from stepvad.fleet.broker.bus import LimitError, TooLargeError, UnavailableError
from stepvad.fleet.broker.nats import NatsBus, connected
from stepvad.fleet.events.tenant_tables import drop_role_sql, role_sql
from stepvad.fleet.settings import load
from stepvad.fleet.tenants import Limits
from tests.fleet.roles import FleetCommand
from tests.fleet.secured import SecuredBroker, make_certificates, secured_broker
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
    code, said = fleet(*words, "limits", file, "west", "--partitions", "2", "--poses-mb", "9")
    assert code == 0, said
    found = {one.tenant: one for one in asyncio.run(usage(load(file)))}
    assert (found["west"].partitions, found["west"].most_cameras) == (2, 7)
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
