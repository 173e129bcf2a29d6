"""Settings of a fleet: first steps, what is refused with what to do, changes while it runs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.broker.administration import connected_soon, set_up
from stepvad.fleet.broker.bus import ConflictError, UnavailableError
from stepvad.fleet.broker.login import login
from stepvad.fleet.broker.nats import TIMEOUT_S, NatsBus, connected
from stepvad.fleet.broker.nats_errors import until_led
from stepvad.fleet.settings import (
    BusSettings,
    FleetSettings,
    TlsFiles,
    load,
    load_edge,
    load_worker,
)
from stepvad.fleet.worker import service
from stepvad.fleet.worker.models import FleetModels
from stepvad.site import demo
from tests.fleet.fleets import FleetCommand, bus_section
from tests.fleet.servers import Broker, broker, bus_settings, cluster
from tests.pages import ROOT
from tests.video.servers import SLOWER, free_port

EDGE = 'name = "north"\n[[cameras]]\nname = "yard"\nurl = "demo:"\n'


def test_the_settings_that_the_guide_shows_are_settings(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/fleet-edge-and-events.md").read_text()
    edge, fleet = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "site.toml").write_text(edge)
    told = load_edge(tmp_path / "site.toml")
    assert (told.name, told.fleet.publish) == ("north", "poses")
    assert told.fleet.bus.tls is not None
    assert told.fleet.bus.tls.key == tmp_path / "certs/edge-north.key"
    (tmp_path / "fleet.toml").write_text(fleet)
    assert load(tmp_path / "fleet.toml").events.dsn == "env:STEPVAD_EVENTS_DSN"


def test_the_first_settings_of_a_fleet_work_without_any_file(tmp_path: Path) -> None:
    guide = (ROOT / "docs/guides/run-a-fleet.md").read_text()
    fleet, edge, models, *_ = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "fleet.toml").write_text(fleet)
    (tmp_path / "site.toml").write_text(edge)
    told, site = load_worker(tmp_path / "fleet.toml"), load_edge(tmp_path / "site.toml")
    assert told.models[0].model.is_file()
    assert told.web.port != site.web.port
    assert site.cameras[0].rate == demo.RATE
    assert told.bus == site.fleet.bus
    (tmp_path / "models.toml").write_text(models)
    assert load(tmp_path / "models.toml").models[0].model == tmp_path / "north.safetensors"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[fleet]\npublish = "pictures"\n', r"line 6: fleet.publish: expected 'poses' or 'events'"),
        ("[fleet]\nframes = 3\n", r"line 6: fleet.frames: expected a known key"),
        ("[fleet]\nbuffer_mb = 0\n", r"line 6: fleet.buffer_mb: expected greater than 0"),
        ('[fleet.bus]\ninbox = ">"\n', r"line 6: fleet.bus.inbox: expected the form"),
    ],
)
def test_an_edge_refuses_what_it_cannot_do_with_the_line(
    tmp_path: Path, more: str, words: str
) -> None:
    (tmp_path / "site.toml").write_text(EDGE + more)
    with pytest.raises(ConfigError, match=words):
        load_edge(tmp_path / "site.toml")


def test_a_dsn_is_a_reference_and_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text('[events]\ndsn = "postgresql://a:canary-Zq7@b/c"\n')
    with pytest.raises(ConfigError, match=r"line 2: events.dsn: expected env:NAME") as told:
        load(tmp_path / "fleet.toml")
    assert "canary" not in f"{told.value}"


def test_hours_are_refused_where_poses_leave_the_site(tmp_path: Path) -> None:
    file = tmp_path / "edge.toml"
    text = '[[cameras]]\nname = "a"\nurl = "demo:"\nhours = ["08:00-18:00"]\n'
    file.write_text(text)
    with pytest.raises(ConfigError, match='expected hours with publish = "events"'):
        load_edge(file)
    file.write_text(f'{text}[fleet]\npublish = "events"\n')
    assert load_edge(file).cameras[0].hours == ["08:00-18:00"]


CANARY = "canary-Zq7"


def settings_in(directory: Path, *lines: str) -> Path:
    path = directory / "fleet.toml"
    path.write_text("\n".join(lines))
    return path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "stepvad", "fleet", *words]


def test_the_model_of_the_bundled_scene_needs_no_file(tmp_path: Path) -> None:
    told = load_worker(settings_in(tmp_path, "[[models]]", 'model = "demo:"'))
    profile = FleetModels.load(told.models).profile("north/yard", 12.5)
    assert profile is not None
    assert profile.model_id == "walkers"


@pytest.mark.slow
def test_a_command_does_not_wait_for_ever_for_a_broker(tmp_path: Path, fleet: FleetCommand) -> None:
    address = f"nats://127.0.0.1:{free_port()}"
    code, said = fleet("fleet", "setup", settings_in(tmp_path, "[bus]", f'servers = ["{address}"]'))
    assert (code, "Traceback" in said) == (1, False), said
    assert f"expected a connection to {address}, got none within 5 s" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "number"), [("worker", signal.SIGTERM), ("events", signal.SIGINT)]
)
def test_a_service_without_a_broker_ends_when_it_is_told(
    tmp_path: Path, verb: str, number: signal.Signals
) -> None:
    bus = f'servers = ["nats://127.0.0.1:{free_port()}"]'
    path = settings_in(tmp_path, "[bus]", bus, "[[models]]", 'model = "demo:"')
    dsn = f"postgresql://writer@127.0.0.1:{free_port()}/none"
    process = subprocess.Popen(
        command(verb, str(path)),
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"STEPVAD_EVENTS_DSN": dsn},
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "Connect call failed" in line:
                break
        process.send_signal(number)
        began = time.monotonic()
        assert process.wait(10 * SLOWER) == 0
        assert time.monotonic() - began < 5 * SLOWER
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()


def test_a_broker_without_tls_hears_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BUS_PASSWORD", CANARY)

    async def talk(address: str) -> None:
        settings = BusSettings(servers=[address], user="worker", password="env:BUS_PASSWORD")
        with pytest.raises(UnavailableError, match="got none within 1 s"):
            async with connected_soon(settings, "test", 1.0):
                pass

    with broker(tmp_path, "trace: true\ndebug: true\n") as plain:
        asyncio.run(talk(plain.address.replace("nats:", "tls:")))
        heard = (tmp_path / "n1.log").read_text()
    assert "Client connection created" in heard
    assert "CONNECT" not in heard
    assert "expected TLS as configured" in caplog.text


def test_a_wrong_password_is_said_and_not_shown(tmp_path: Path, fleet: FleetCommand) -> None:
    users = "authorization { users: [{ user: worker, password: another }] }\n"
    with broker(tmp_path, users) as secured:
        path = settings_in(
            *(tmp_path, "[bus]", f'servers = ["{secured.address}"]'),
            *('user = "worker"', 'password = "env:BUS_PASSWORD"'),
        )
        code, said = fleet("fleet", "setup", path, BUS_PASSWORD=CANARY)
    assert (code, CANARY in said, "Traceback" in said) == (1, False, False), said
    assert "Authorization Violation" in said
    assert "are address, user and certificates right?" in said


def test_a_broker_without_jetstream_is_told_what_it_lacks(
    tmp_path: Path, fleet: FleetCommand
) -> None:
    with broker(tmp_path) as one:
        config = tmp_path / "n1.conf"
        config.write_text(config.read_text().partition("jetstream")[0])
        one.kill()
        one.start()
        settings = settings_in(tmp_path, "[bus]", f'servers = ["{one.address}"]')
        code, said = fleet("fleet", "setup", settings)
    assert (code, "expected JetStream" in said, "-js" in said) == (1, True, True), said


@pytest.mark.parametrize("missing", ["ca", "cert", "key"])
def test_the_certificate_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    for name, path in files.items():
        if name != missing:
            path.write_text("no certificate")
    settings = BusSettings(servers=["tls://nowhere:4222"], tls=TlsFiles(**files))
    with pytest.raises(ConfigError, match=rf"bus\.tls\.{missing}: .*{missing}\.pem: No such file"):
        login(settings)
    files[missing].write_text("neither")
    with pytest.raises(ConfigError, match=r"bus\.tls: expected ca in PEM"):
        login(settings)


CHANGED = {
    "poses_mb": 100,
    "poses_s": 60,
    "events_days": 3,
    "events_mb": 200,
    "dead_mb": 8,
    "duplicates_s": 900,
    "lease_s": 1,
}


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path / "nats") as made:
        yield made


def talk(
    brokers: Sequence[Broker], what: Callable[[NatsBus], Awaitable[Any]], **more: object
) -> Any:
    """Do something on a bus with these settings."""

    async def go() -> Any:
        async with connected(bus_settings(brokers, **more), "test") as bus:
            return await what(bus)

    return asyncio.run(go())


async def facts(bus: NatsBus) -> dict[str, float]:
    """What the broker has, in the units of the settings."""
    names = ("POSES", "EVENTS", "DEAD", "KV_stepvad-leases")
    found = {name: (await bus._js.stream_info(name)).config for name in names}
    poses, events, dead, leases = found.values()
    return {
        "poses_mb": (poses.max_bytes or 0) / 1e6,
        "poses_s": poses.max_age or 0,
        "events_days": (events.max_age or 0) / 86400,
        "events_mb": (events.max_bytes or 0) / 1e6,
        "dead_mb": (dead.max_bytes or 0) / 1e6,
        "duplicates_s": events.duplicate_window or 0,
        "lease_s": leases.max_age or 0,
    }


def test_setup_changes_a_running_fleet_and_says_what(
    one: Broker, tmp_path: Path, fleet: FleetCommand
) -> None:
    async def before(bus: NatsBus) -> None:
        await bus.setup()
        await bus.publish(bus.subjects.events(1), b"kept", id="a")
        await bus.write("shard-1", b"state", 0)

    talk([one], before)
    path = tmp_path / "fleet.toml"
    path.write_text(bus_section(one, more="\n".join(f"{k} = {v}" for k, v in CHANGED.items())))
    code, words = fleet("fleet", "setup", path)
    assert code == 0, words
    for said in ("POSES: max_age 120 -> 60", "KV_stepvad-leases: max_age 2 -> 1"):
        assert f"changed: {said}" in words, words
    again, words = fleet("fleet", "setup", path)
    assert (again, "changed" in words) == (0, False), words

    async def after(bus: NatsBus) -> None:
        assert await facts(bus) == CHANGED
        assert await bus.said(bus.subjects.events(1), 0) == [b"kept"]
        assert (await bus.publish(bus.subjects.events(1), b"kept", id="a")).is_duplicate
        state = await bus.read("shard-1")
        assert state is not None
        await bus.write("shard-1", b"next", state.revision)
        mine = await bus.lease("w1", b"1")
        await asyncio.sleep(1.6)
        assert await bus.leases() == {}  # after a second, no longer two
        with pytest.raises(ConflictError):
            await bus.lease("w1", b"1", mine)

    talk([one], after, **CHANGED)


def test_a_worker_with_other_settings_changes_nothing(one: Broker) -> None:
    asyncio.run(set_up(FleetSettings(bus=bus_settings([one], **CHANGED))))

    async def what(bus: NatsBus) -> dict[str, float]:
        await bus.setup()
        return await facts(bus)

    assert talk([one], what, poses_mb=300, lease_s=0.5) == CHANGED


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"replicas": 3}, r"bus.replicas: expected 1 with one broker, got: .*non-clustered"),
        ({"poses_mb": 5000}, r"bus.poses_mb: expected less than the broker's max_memory_store"),
        ({"events_mb": 50_000}, r"expected less than the broker's max_file_store"),
        ({"duplicates_s": 86400, "events_days": 0.5}, "expected settings that go together"),
        ({"prefix": "other"}, r"bus.prefix: expected that of the stream POSES, stepvad"),
    ],
)
def test_what_the_broker_cannot_do_is_refused_at_once(
    one: Broker, more: dict[str, Any], said: str
) -> None:
    async def admin(bus: NatsBus) -> None:
        with pytest.raises(ConfigError, match=said):
            await asyncio.wait_for(bus.change(), 10 * SLOWER)

    if "prefix" not in more:
        talk([one], admin, **more)  # before there are streams
    talk([one], lambda bus: bus.setup())
    before = talk([one], facts)
    talk([one], admin, **more)
    assert talk([one], facts) == before


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"replicas": 3}, r"bus.replicas: expected 1 with one broker"),
        ({"lease_s": 10}, None),
    ],
)
def test_a_worker_ends_with_what_to_do_instead_of_trying_for_ever(
    one: Broker, more: dict[str, Any], said: str | None
) -> None:
    if said is None:
        talk([one], lambda bus: bus.setup())
        said = r"bus.lease_s: expected at most 2 as the broker has it, got 10"

    async def work(bus: NatsBus) -> None:
        with pytest.raises(ConfigError, match=said):
            await asyncio.wait_for(service.set_up(bus, asyncio.Event()), 10 * SLOWER)

    talk([one], work, **more)


@pytest.mark.slow
def test_a_fleet_gets_more_replicas(tmp_path: Path) -> None:
    async def replicas(bus: NatsBus) -> set[int | None]:
        names = ("POSES", "EVENTS", "DEAD", "KV_stepvad-leases", "KV_stepvad-state")
        return {(await bus._js.stream_info(name)).config.num_replicas for name in names}

    with cluster(tmp_path) as three:
        talk(three, lambda bus: until_led(bus.change, within_s=120.0), replicas=1)
        found = asyncio.run(set_up(FleetSettings(bus=bus_settings(three))))
        assert "POSES: num_replicas 1 -> 3" in found
        assert talk(three, replicas) == {3}


@pytest.mark.slow
def test_setup_waits_for_a_leader(tmp_path: Path) -> None:
    async def changed(bus: NatsBus, others: Sequence[Broker]) -> list[str]:
        for other in others:
            other.send(signal.SIGSTOP)
        changing = asyncio.create_task(bus.change())
        await asyncio.sleep(2 * TIMEOUT_S)  # longer than a request: without patience it failed
        assert not changing.done()
        for other in others:
            other.send(signal.SIGCONT)
        return await changing

    with cluster(tmp_path) as three:
        address = [three[0].address]
        asyncio.run(set_up(FleetSettings(bus=bus_settings(three, servers=address))))

        async def go() -> list[str]:
            async with connected(bus_settings(three, servers=address, poses_s=300), "test") as bus:
                return await changed(bus, three[1:])

        assert "POSES: max_age 120 -> 300" in asyncio.run(go())
