"""A table of cameras as the files of a fleet."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from stepvad.errors import StepvadError
from stepvad.files import secret
from stepvad.fleet import plan
from stepvad.fleet.connection import connected
from stepvad.fleet.settings import load as load_fleet
from stepvad.site.settings.file import load
from tests.fleet.servers import Broker, broker

CAMERAS = """\
site,camera,url,group,rate,credentials
north,door,rtsp://10.0.0.1/low,shops,5,env:DOOR
south,yard,nats:yard-7,,,
north,hall,rtsp://10.0.0.2/low,shops,,
"""
TLS, PLAIN = ["tls://nats-0.nats:4222"], ["nats://127.0.0.1:4222"]


def table(tmp_path: Path, text: str = CAMERAS) -> Path:
    path = tmp_path / "cameras.csv"
    path.write_text(text)
    return path


def test_each_site_gets_its_cameras_in_the_order_of_the_table(tmp_path: Path) -> None:
    north, south = plan.read_cameras(table(tmp_path))
    assert (north.name, north.group, south.group) == ("north", "shops", "sites")
    assert [row["camera"] for row in north.cameras] == ["door", "hall"]
    assert [north.is_central, south.is_central] == [False, True]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("site,camera\na,b\n", "expected the columns site, camera, url"),
        ("site,camera,url,colour\na,b,rtsp://h/1,red\n", "got site, camera, url, colour"),
        ("site,camera,url\n", "expected at least one camera"),
        ("site,camera,url\na,b c,rtsp://h/1\n", "line 2: camera: expected letters"),
        ("site,camera,url\na/b,c,rtsp://h/1\n", "line 2: site: expected letters"),
        ("site,camera,url\na,b,\n", "line 2: expected the address of the camera"),
        ("site,camera,url\na,b,rtsp://h/1\na,b,rtsp://h/2\n", "line 3: expected b of a once"),
        ("site,camera,url\na,b,rtsp://h/1\na,c,nats:c\n", "line 3: expected cameras of a that all"),
        (
            "site,camera,url,group\na,b,rtsp://h/1,x\na,c,rtsp://h/2,y\n",
            "line 3: expected one group and certificate for a",
        ),
    ],
)
def test_a_table_that_is_wrong_is_refused_by_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(StepvadError, match=problem):
        plan.read_cameras(table(tmp_path, text))


@pytest.mark.parametrize("url", ["rtsp://admin:secret@10.0.0.1/low", "ftp://10.0.0.1/low"])
def test_a_camera_that_a_site_would_refuse_is_refused_at_once(tmp_path: Path, url: str) -> None:
    (site,) = plan.read_cameras(table(tmp_path, f"site,camera,url\na,b,{url}\n"))
    with pytest.raises(StepvadError, match=r"sites/a\.toml, line 6") as caught:
        plan.site_toml(site, TLS)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("servers", [TLS, PLAIN])
def test_sites_and_the_centre_read_the_files_that_are_planned_for_them(
    tmp_path: Path, servers: list[str]
) -> None:
    plan.write_plan(tmp_path, plan.read_cameras(table(tmp_path)), servers)
    settings = load(tmp_path / "sites" / "north.toml")
    assert settings.fleet is not None
    assert (settings.fleet.servers, settings.fleet.group) == (servers, "shops")
    assert [camera.rate for camera in settings.cameras] == [5.0, 10.0]
    centre = load_fleet(tmp_path / "fleet.toml")
    assert centre.broker.servers == servers
    for login in (settings.fleet, centre.broker):
        assert (login.tls is None) == (servers == PLAIN)
        assert login.password is None or secret(login.password)


def test_a_plan_made_again_keeps_secrets_and_writes_what_differs_alone(tmp_path: Path) -> None:
    written = plan.write_plan(tmp_path, plan.read_cameras(table(tmp_path)), PLAIN)
    assert {"secrets/north", "secrets/south-yard", "secrets/token", "fleet.toml"} <= {*written}
    one = tmp_path / "secrets" / "north"
    first = one.read_text()
    assert one.stat().st_mode & 0o777 == 0o600
    (tmp_path / "fleet.toml").write_text("# ours\n")
    more = plan.read_cameras(table(tmp_path, CAMERAS + "west,hall,rtsp://10.0.0.3/low,,,\n"))
    written = plan.write_plan(tmp_path, more, PLAIN)
    assert sorted(written) == ["accounts.conf", "secrets/west", "sites/west.toml"]
    assert one.read_text() == first
    assert plan.write_plan(tmp_path, more, PLAIN) == []


def test_a_certificate_that_was_replaced_is_no_longer_let_in(tmp_path: Path) -> None:
    text = "site,camera,url,certificate\nnorth,door,rtsp://h/1,2\nsouth,door,rtsp://h/1,\n"
    accounts = plan.accounts_of(plan.read_cameras(table(tmp_path, text)), {})
    assert '"user": "CN=north,OU=2"' in accounts
    assert '"user": "CN=south"' in accounts


def test_brokers_take_the_users_of_a_plan(tmp_path: Path) -> None:
    plan.write_plan(tmp_path, plan.read_cameras(table(tmp_path)), PLAIN)
    settings = load_fleet(tmp_path / "fleet.toml").broker

    async def ask(server: Broker) -> bytes:
        own = settings.model_copy(update={"servers": [server.address]})
        async with connected(own, "admin") as admin:
            return await admin.request("$JS.API.INFO", b"")

    with broker(tmp_path / "broker", (tmp_path / "accounts.conf").read_text()) as server:
        assert b"limits" in asyncio.run(ask(server))


def test_the_chart_runs_the_sites_whose_cameras_send_poses(tmp_path: Path) -> None:
    values = json.loads(plan.chart_values(plan.read_cameras(table(tmp_path)), TLS))
    assert [*values["sites"]] == ["south"]
    assert 'url = "nats:yard-7"' in values["sites"]["south"]["settings"]
