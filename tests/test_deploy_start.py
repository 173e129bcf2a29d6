"""The compose files as shipped: their services as processes, with the files that they mount.

There is no Docker in a test. Every path and host of a container is replaced by one of this machine,
and nothing else: the settings, the command of the image, its packages and its health check are
those that ship.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.images import python_of
from tests.pages import ROOT
from tests.video.servers import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no Mosquitto"),
]
DEPLOY = ROOT / "deploy"
PACKAGES = "/opt/stepvad/lib/python3.12/site-packages"
WITHIN_S = 90.0
yaml = pytest.importorskip("yaml")


@dataclass(frozen=True)
class Container:
    """A service of a compose file, as a directory that stands for its file system."""

    compose: Path
    name: str
    root: Path
    ports: dict[int, int]
    """Of this machine, by the port in the containers."""

    @property
    def service(self) -> dict[str, Any]:
        facts = yaml.safe_load(self.compose.read_text("utf-8"))
        found: dict[str, Any] = facts["services"][self.name]
        return found

    def mount(self) -> None:
        """Files are copied and translated, volumes and secrets made; a missing file is an error."""
        for volume in self.service["volumes"]:
            source, target = volume.split(":")[:2]
            place = self.inside(target)
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.startswith("."):
                place.write_text(self.translated((self.compose.parent / source).read_text("utf-8")))
            else:
                place.mkdir(mode=0o700)
        for secret in self.service.get("secrets", []):
            place = self.inside(f"/run/secrets/{secret}")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"a-secret-called-{secret}\n")
            place.chmod(0o600)

    def inside(self, path: str) -> Path:
        return self.root / path.removeprefix("/")

    def translated(self, text: str) -> str:
        text = text.replace(PACKAGES, str(ROOT / "src"))
        text = re.sub(
            r"(?<![\w.}])/(data|etc/stepvad|run/secrets|mosquitto/data)\b", rf"{self.root}/\1", text
        )
        text = re.sub(
            r'^host = "mosquitto"$',
            f'host = "127.0.0.1"\nport = {self.ports[1883]}',
            text,
            flags=re.M,
        )
        text = re.sub(r'^host = "0.0.0.0".*$', f"port = {self.ports[8080]}", text, flags=re.M)
        return re.sub(
            "^listener 1883$", f"user root\nlistener {self.ports[1883]} 127.0.0.1", text, flags=re.M
        )

    @contextmanager
    def running(self, *command: str) -> Iterator[Path]:
        """The command until the block ends; its log."""
        log = self.root / f"{self.name}.log"
        kept = os.environ | {"STEPVAD_CACHE": str(self.inside("/cache"))}
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command], cwd=self.root, stdout=file, stderr=file, env=kept
            )
        try:
            yield log
            assert process.poll() is None, log.read_text("utf-8")
        finally:
            process.terminate()
            process.wait(60)

    def is_healthy(self) -> bool:
        """What its health check says, asked at the port of this machine."""
        words = [
            word.replace(":8080", f":{self.ports[8080]}")
            for word in self.service["healthcheck"]["test"]
        ]
        assert words[:2] == ["CMD", "python"]
        done = subprocess.run([sys.executable, *words[2:]], capture_output=True, timeout=30)
        return done.returncode == 0


def command_of_the_image() -> list[str]:
    """ENTRYPOINT and CMD of the Dockerfile."""
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    found = [re.search(rf"^{word} (\[.*\])$", text, re.MULTILINE) for word in ("ENTRYPOINT", "CMD")]
    return [word for one in found if one for word in json.loads(one[1])]


def first_message(topic: str, port: int, log: Path) -> dict[str, Any]:
    """The next message about a topic."""
    heard: list[bytes] = []
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_message = lambda *words: heard.append(words[2].payload)
    client.connect("127.0.0.1", port)
    client.subscribe(topic)
    client.loop_start()
    try:
        wait(lambda: heard, log)
    finally:
        client.loop_stop()
        client.disconnect()
    found: dict[str, Any] = json.loads(heard[0])
    return found


def wait(happened: Any, log: Path) -> None:
    late = time.monotonic() + WITHIN_S
    while not happened():
        assert time.monotonic() < late, log.read_text("utf-8")
        time.sleep(0.2)


@pytest.mark.parametrize("where", [".", "single-site"])
def test_a_site_starts_as_shipped_and_raises_an_event_over_its_broker(
    where: str, tmp_path: Path
) -> None:
    compose = DEPLOY / where / "compose.yaml"
    ports = {1883: free_port(), 8080: free_port()}
    broker = Container(compose, "mosquitto", tmp_path / "broker", ports)
    site = Container(compose, "stepvad", tmp_path / "site", ports)
    broker.mount()
    site.mount()
    program, *words = command_of_the_image()
    assert program == "stepvad"
    words = [site.translated(word) for word in words]
    python = python_of("stepvad", tmp_path / "image")
    config = str(broker.inside("/mosquitto/config/mosquitto.conf"))
    with (
        broker.running("mosquitto", "-c", config, "-v") as broker_log,
        site.running(str(python), "-m", "stepvad", *words) as log,
    ):
        wait(site.is_healthy, log)
        event = first_message("stepvad/events", ports[1883], broker_log)
    assert event["after"]["camera"] == "demo"
    assert (site.inside("/data") / "events.db").is_file()
