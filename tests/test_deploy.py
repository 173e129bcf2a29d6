"""Files to install a site with: unit, images, compose; and that they start what they say."""

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
from urllib.parse import urlsplit

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

import stepvad
from stepvad.codec import decode
from stepvad.evaluation.walkers import make_clips
from stepvad.events.record import MarkMessage
from stepvad.site import demo
from stepvad.site.checking import check
from stepvad.site.learning.versions import Versions
from stepvad.site.settings.file import load
from stepvad.site.settings.sections import MqttSettings
from stepvad.site.sinks.mqtt import MARKS
from stepvad.site.stages import Health, StageHealth
from stepvad.site.status import LiveStatus
from stepvad.site.store.events import FILE_NAME, Store
from stepvad.web.metrics import render
from tests.pages import ROOT
from tests.requirements import extras, python_of
from tests.site.records import record_clips
from tests.video.servers import free_port

DEPLOY = ROOT / "deploy"
CONFIG = DEPLOY / ".compose-lint.yml"
HADOLINT = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
yaml = pytest.importorskip("yaml")


def read_yaml(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def said(*words: str | Path) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_finds_the_unit_right_and_safe(tmp_path: Path) -> None:
    text = (DEPLOY / "stepvad.service").read_text("utf-8")
    unit = tmp_path / "stepvad.service"
    unit.write_text(re.sub("^ExecStart=.*$", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    assert said("systemd-analyze", "verify", unit) == ""
    told = said("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    exposure = re.search(r"exposure level for stepvad.service: ([0-9.]+)", told)
    assert exposure is not None
    assert float(exposure[1]) < 2.0


def test_the_unit_is_started_again_and_keeps_its_hands_to_itself() -> None:
    lines = (DEPLOY / "stepvad.service").read_text("utf-8").splitlines()
    wanted = {"Restart=always", "NoNewPrivileges=yes", "ProtectSystem=strict", "UMask=0077"}
    wanted |= {"User=stepvad", "StateDirectory=stepvad", "CapabilityBoundingSet="}
    assert wanted <= {*lines}
    assert any(line.startswith("LoadCredential=") for line in lines)
    assert "KillMode=mixed" in lines  # the site ends its children itself


def test_the_image_is_small_and_has_no_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8")
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    stages = [line for line in lines if line.startswith("FROM ")]
    assert len(stages) == 2
    assert stages == ["FROM ${BASE} AS build", "FROM ${BASE}"]
    assert "ARG BASE=python:3.12-slim-bookworm" in lines
    last = lines[lines.index(stages[-1]) :]
    assert "USER 10001:10001" in last
    assert any(line.startswith("HEALTHCHECK ") and "/healthz" in line for line in last)
    assert "ARG EXTRAS=live,web,notify" in lines
    assert "ARG TORCH_WHEELS=https://download.pytorch.org/whl/cpu/torch/" in lines
    makers = '--find-links "${TORCH_WHEELS}"'
    locks = "--constraints requirements.lock --constraints torch.lock"
    assert any(f'{makers} {locks} ".[${{EXTRAS}}]"' in line for line in lines)
    for name in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE):
        for source in name.split():
            assert (ROOT / source).exists(), source
            assert f"!{source}" in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()


@pytest.mark.skipif(HADOLINT is None, reason="no hadolint")
def test_hadolint_has_nothing_to_say() -> None:
    assert said(str(HADOLINT), DEPLOY / "Dockerfile") == ""


def test_everything_that_compose_names_is_there() -> None:
    compose = read_yaml("compose.yaml")
    secrets, volumes = compose["secrets"], compose["volumes"]
    for service in compose["services"].values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert {*service.get("secrets", [])} <= {*secrets}
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source
            else:
                assert source in volumes
        image = service["image"]
        assert image == "stepvad" or re.search(r":v?\d+\.\d+\.\d+$", image), image
    site = compose["services"]["stepvad"]
    assert (site["read_only"], site["cap_drop"]) == (True, ["ALL"])
    assert (ROOT / "deploy" / site["build"]["context"] / site["build"]["dockerfile"]).is_file()


def test_every_service_of_compose_is_watched_and_can_do_little() -> None:
    for name, service in read_yaml("compose.yaml")["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["pids_limit"] > 0, name
        assert service["mem_limit"], name
        assert service["healthcheck"]["test"][0] == "CMD", name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_the_compose_file_is_of_the_specification_and_safe() -> None:
    spec = pytest.importorskip("compose_spec")
    facts = {key: one for key, one in read_yaml("compose.yaml").items() if key[:2] != "x-"}
    spec.PyCompose.from_yaml(yaml.safe_dump(facts)).validate()
    lint = Path(sys.executable).with_name("compose-lint")
    said(lint, "check", "--fail-on", "low", "--config", CONFIG, DEPLOY / "compose.yaml")


def test_the_settings_of_the_compose_file_can_be_read_and_fit_it() -> None:
    site = load(DEPLOY / "site.toml")
    compose = read_yaml("compose.yaml")
    assert site.sinks.mqtt is not None
    assert site.sinks.mqtt.host in compose["services"]
    assert f"127.0.0.1:{site.web.port}:{site.web.port}" in compose["services"]["stepvad"]["ports"]
    assert site.web.token is not None
    assert Path(site.web.token).name in compose["services"]["stepvad"]["secrets"]
    (target,) = read_yaml("prometheus.yml")["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target == f"stepvad:{site.web.port}"


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text("utf-8"))
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel["targets"]]


def test_the_panels_of_the_dashboard_have_titles_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 8
    assert all(panel["title"] for panel in panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert all(text.count("(") == text.count(")") for text in expressions())


def test_every_metric_of_the_dashboard_and_the_guide_is_one_that_a_site_has() -> None:
    status = LiveStatus()
    status.camera("yard", rate=10.0, threshold=3.0, model="m", zones={})
    status.state("yard", "online", "", time.time())
    status.observe_latency("yard", 0.1)
    status.observe_alert("yard", 0.1)
    status.sink("mqtt", 0, 0, "")
    text = render(status, "1", Health((StageHealth("web", 0.1, 30.0),))).decode()
    names = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines()}
    guide = (ROOT / "docs" / "guides" / "run-a-site.md").read_text("utf-8")
    used = {name for one in [*expressions(), guide] for name in re.findall(r"stepvad_[a-z_]+", one)}
    assert len(used) > 10
    assert used <= names, used - names


SINGLE = DEPLOY / "single-site"
PREFIX = str(MqttSettings.model_fields["prefix"].default)


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_the_single_site_is_of_the_specification_and_safe() -> None:
    spec = pytest.importorskip("compose_spec")
    compose = read(SINGLE / "compose.yaml")
    facts = {key: one for key, one in compose.items() if key[:2] != "x-"}
    spec.PyCompose.from_yaml(yaml.safe_dump(facts)).validate()
    lint = Path(sys.executable).with_name("compose-lint")
    config = SINGLE / ".compose-lint.yml"
    command = [lint, "check", "--fail-on", "low", "--config", config, SINGLE / "compose.yaml"]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    for name, service in compose["services"].items():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        assert service["healthcheck"]["test"][0] == "CMD", name


def test_the_single_site_needs_nothing_that_is_not_there() -> None:
    compose = read(SINGLE / "compose.yaml")
    assert "secrets" not in compose
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert (SINGLE / source).is_file() if source[0] == "." else source in compose["volumes"]
    build = compose["services"]["stepvad"]["build"]
    assert (SINGLE / build["context"] / build["dockerfile"]).is_file()
    site = load(SINGLE / "site.toml")
    assert site.sinks.mqtt is not None
    assert site.sinks.mqtt.host in compose["services"]
    assert site.web.token is None, "one is made"


def test_the_model_of_the_single_site_is_where_the_image_has_it() -> None:
    site = load(SINGLE / "site.toml")
    image = (DEPLOY / "Dockerfile").read_text("utf-8")
    version = re.search(r"ARG BASE=python:(3\.\d+)-", image)
    assert version is not None
    packages = f"/opt/stepvad/lib/python{version[1]}/site-packages/"
    assert str(site.model) == packages + str(
        demo.MODEL.relative_to(Path(stepvad.__file__).parents[1])
    )
    assert "notify" in image.partition("ARG EXTRAS=")[2].partition("\n")[0].split(",")


def test_the_single_site_can_watch(tmp_path: Path) -> None:
    """All but the paths of the container."""
    text = (SINGLE / "site.toml").read_text("utf-8")
    path = tmp_path / "site.toml"
    text = re.sub(r"^model = .*$", f'model = "{demo.MODEL}"', text, flags=re.MULTILINE)
    path.write_text(text.replace('"/data"', f'"{tmp_path}/data"'))
    told = [*check(load(path))]
    assert "ok: people people: browsers: none yet" in told


def automations() -> dict[str, Any]:
    found = read(DEPLOY / "home-assistant" / "stepvad.yaml")
    return {one["id"]: one for one in found["automation"]}


def test_home_assistant_listens_and_answers_where_a_site_speaks_and_listens() -> None:
    alert, answer = automations()["stepvad_alert"], automations()["stepvad_answer"]
    assert alert["triggers"][0]["topic"] == f"{PREFIX}/events"
    assert answer["actions"][0]["data"]["topic"] == f"{PREFIX}/{MARKS}"


def test_the_answer_of_a_phone_is_a_mark_that_a_site_takes() -> None:
    """The templates as Home Assistant renders them, which has `to_json` in its Jinja."""
    jinja = pytest.importorskip("jinja2").Environment()
    jinja.filters["to_json"] = json.dumps
    alert, answer = automations()["stepvad_alert"], automations()["stepvad_answer"]
    buttons = alert["actions"][0]["data"]["data"]["actions"]
    heard = {"payload_json": {"after": {"id": "ab-1-2-3"}}}
    marks = []
    for button in buttons:
        pressed = jinja.from_string(button["action"]).render(trigger=heard)
        trigger = {"event": {"data": {"action": pressed}}}
        condition = jinja.from_string(answer["conditions"][0]["value_template"])
        assert condition.render(trigger=trigger) == "True"
        payload = jinja.from_string(answer["actions"][0]["data"]["payload"])
        marks.append(decode(MarkMessage, payload.render(trigger=trigger), "mark"))
    assert marks == [MarkMessage("ab-1-2-3", "right"), MarkMessage("ab-1-2-3", "normal")]


def test_frigate_and_the_site_share_a_camera_and_a_broker() -> None:
    frigate = read(DEPLOY / "frigate" / "config.yml")
    site = load(DEPLOY / "frigate" / "site.toml")
    assert site.sinks.mqtt is not None
    assert site.sinks.mqtt.host == frigate["mqtt"]["host"]
    assert site.sinks.mqtt.marks
    streams = frigate["go2rtc"]["streams"]
    for camera in site.cameras:
        parts = urlsplit(camera.url)
        assert (parts.port, parts.path[1:] in streams) == (8554, True)
        assert camera.name in frigate["cameras"]
        (source,) = frigate["cameras"][camera.name]["ffmpeg"]["inputs"]
        assert urlsplit(source["path"]).path == parts.path
    assert frigate["record"]["enabled"]


PACKAGES = "/opt/stepvad/lib/python3.12/site-packages"
WITHIN_S = 90.0


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


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="no Mosquitto")
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


LEARN = """
import sys
from pathlib import Path
from stepvad.site.settings.file import load
from stepvad.site.learning import rounds

rounds.fit(load(Path(sys.argv[1])))
assert "torch" not in sys.modules
"""
"""A round of learning."""


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """A program, in the environment of an image and not in that of the tests."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [*map(str, words)], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize("image", [*extras()])
def test_an_image_has_its_packages_and_no_others(image: str, tmp_path: Path) -> None:
    done = run(
        python_of(image, tmp_path / "image"),
        "-c",
        "import json, sys\n"
        "from importlib.util import find_spec\n"
        "import stepvad\n"
        "names = ('torch', 'nats', 'paho', 'apprise', 'av', 'fastapi', 'pytest', 'matplotlib')\n"
        "print(json.dumps([stepvad.__file__] + [name for name in names if find_spec(name)]))",
    )
    assert done.returncode == 0, done.stderr
    own, *found = json.loads(done.stdout)
    assert Path(own).is_relative_to(ROOT / "src")
    more = {"stepvad": {"apprise"}, "stepvad-fleet": {"nats"}}
    assert {*found} == {"paho", "av", "fastapi"} | more[image]


def test_a_site_in_its_image_learns_from_its_recordings(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('data = "data"\n[[cameras]]\nname = "yard"\nurl = "demo:"\nrate = 25.0\n')
    data = load(path).data
    Store(data / FILE_NAME).close()
    walks = [clip for clip, _ in make_clips(24, seed=3, seconds=6.0, anomalies=False)]
    record_clips(data, "yard", walks, time.time() - 7200)
    python = python_of("stepvad", tmp_path / "image")
    done = run(python, "-c", LEARN, path)
    assert done.returncode == 0, done.stderr
    learned = Versions(data).current
    assert learned is not None
    assert learned.footage.people > 0


def test_the_image_of_a_fleet_says_what_fitting_needs(tmp_path: Path) -> None:
    python = python_of("stepvad-fleet", tmp_path / "image")
    (tmp_path / "poses").mkdir()
    done = run(python, "-m", "stepvad", "fit", tmp_path / "poses")
    assert done.returncode == 1
    assert "fit needs the train extra" in done.stderr
