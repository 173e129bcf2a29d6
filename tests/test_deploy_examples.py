"""The examples in deploy/: a single site that starts as it is, Home Assistant and Frigate."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import stepvad
from stepvad.codec import decode
from stepvad.incidents.review import MarkMessage
from stepvad.intake import demo
from stepvad.settings import file as settings
from stepvad.site.checking import check
from stepvad.site.sinks.mqtt import MARKS
from tests.pages import ROOT

DEPLOY = ROOT / "deploy"
SINGLE = DEPLOY / "single-site"
yaml = pytest.importorskip("yaml")
PREFIX = str(settings.MqttSettings.model_fields["prefix"].default)


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
    site = settings.load(SINGLE / "site.toml")
    assert site.sinks.mqtt is not None
    assert site.sinks.mqtt.host in compose["services"]
    assert site.web.token is None, "one is made"


def test_the_model_of_the_single_site_is_where_the_image_has_it() -> None:
    site = settings.load(SINGLE / "site.toml")
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
    told = [*check(settings.load(path))]
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
    site = settings.load(DEPLOY / "frigate" / "site.toml")
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
