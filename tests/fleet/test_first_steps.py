"""What somebody sees who has not set up everything yet: a sentence, an end, and no secret."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepvad.errors import ConfigError
from stepvad.fleet.broker.bus import UnavailableError
from stepvad.fleet.broker.connection import connected_soon
from stepvad.fleet.broker.login import login
from stepvad.fleet.settings import BusSettings, TlsFiles, load_worker
from stepvad.fleet.worker.models import FleetModels
from tests.fleet.brokers import broker
from tests.fleet.roles import FleetCommand
from tests.video.servers import SLOWER, free_port

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
@pytest.mark.parametrize("verb", ["setup", "lag"])
def test_a_command_does_not_wait_for_ever_for_a_broker(
    tmp_path: Path, fleet: FleetCommand, verb: str
) -> None:
    address = f"nats://127.0.0.1:{free_port()}"
    code, said = fleet("fleet", verb, settings_in(tmp_path, "[bus]", f'servers = ["{address}"]'))
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
