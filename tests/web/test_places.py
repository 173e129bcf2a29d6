"""The drawing of a place over HTTP, and from a real camera to the page in Chromium."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, Page, expect

from stepvad.site.accounts import Accounts
from stepvad.site.intake.place_drawings import PLACES, SIGNATURE, PlaceDrawings, to_png
from stepvad.video.place_drawing import draw_place, drawing_bytes
from stepvad.video.source import Image
from tests.browser import CHROMIUM, complaints, log_in, new_page
from tests.site.sites import Running, write_networks, write_site
from tests.video.clips import write_images
from tests.video.graphs import yolox_of_bright
from tests.video.servers import SLOWER, free_port, wait_until
from tests.video.test_place_drawing import people
from tests.web.people import browser_of, with_people
from tests.web.sites import BEARER, HERE, TOKEN, Site

PICTURES = os.environ.get("STEPVAD_TEST_PICTURES")
"""A directory for pictures of the page, to be looked at by people."""
SIDE = 240
LIT = """((x, y) => {
  const canvas = document.querySelector('.camera .people');
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height });
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const side = Math.min(width, height); // the picture is square, the card may be wider
  const at = (share, all) => Math.round((all - side) / 2 + share * side);
  const { data } = pen.getImageData(at(x, width) - 4, at(y, height) - 4, 9, 9);
  return Math.max(...data.filter((_, n) => n % 4 < 3));
})"""
"""How bright the wall is around a place, given as fractions of the picture."""


@pytest.fixture
def drawn(mill: Site) -> Site:
    """A site whose yard has a drawing."""
    yard, gate = mill.settings.cameras
    cameras = [yard.model_copy(update={"draw_place": True}), gate]
    mill.settings = mill.settings.model_copy(update={"cameras": cameras})
    folder = mill.settings.data / PLACES
    folder.mkdir()
    (folder / "yard.png").write_bytes(to_png(bytes(drawing_bytes((64, 48))), (64, 48)))
    mill.drawings = PlaceDrawings(mill.settings, mill.status)
    return mill


def test_a_drawing_is_shown_listed_and_deleted(drawn: Site) -> None:
    client = TestClient(drawn.app(), base_url=HERE, headers=BEARER)
    file = drawn.settings.data / PLACES / "yard.png"
    version = client.get("/api/cameras/yard").json()["place"]
    assert version == file.stat().st_mtime_ns // 1_000_000
    assert client.get("/api/cameras/gate").json()["place"] is None
    shown = client.get("/api/cameras/yard/place")
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/png")
    assert shown.content == file.read_bytes()
    assert shown.content.startswith(SIGNATURE)
    (kept,) = [k for k in client.get("/api/stored").json()["kept"] if "drawings" in k["what"]]
    assert (kept["count"], kept["bytes"]) == (1, len(shown.content))
    assert client.delete("/api/cameras/yard/place").status_code == 204
    assert not file.exists()
    assert client.get("/api/cameras/yard").json()["place"] is None
    assert not [k for k in client.get("/api/stored").json()["kept"] if "drawings" in k["what"]]


@pytest.mark.parametrize("camera", ["gate", "nowhere", "..%2Ftoken"])
def test_where_there_is_no_drawing_the_answer_is_404(drawn: Site, camera: str) -> None:
    client = TestClient(drawn.app(), base_url=HERE, headers=BEARER)
    for method in ("GET", "DELETE"):
        assert client.request(method, f"/api/cameras/{camera}/place").status_code == 404


def test_a_guard_sees_a_drawing_and_does_not_delete_it(drawn: Site, tmp_path: Path) -> None:
    accounts = with_people(Accounts(tmp_path / "accounts.db"))
    guard = browser_of(drawn.app(accounts=accounts), "jan")
    assert guard.get("/api/cameras/yard/place").status_code == 200
    assert guard.delete("/api/cameras/yard/place").status_code == 403
    assert guard.get("/api/cameras/yard/place").status_code == 200
    accounts.close()


def scene() -> list[Image]:
    """Two seconds with somebody in bright light at the left, then six of an empty dark room."""
    empty = np.full((SIDE, SIDE, 3), 10, np.uint8)
    empty[SIDE // 4 :, SIDE // 2 : SIDE // 2 + SIDE // 4] = 90  # a door
    lit = np.full((SIDE, SIDE, 3), 230, np.uint8)
    lit[SIDE // 2 :, SIDE // 8 : SIDE // 4] = 20  # somebody
    return [lit] * 20 + [empty] * 60


def write_room(directory: Path, port: int) -> Path:
    networks = write_networks(directory)
    cell = [0.0, 0.0, float(np.log(3)), float(np.log(4)), 0.95, 0.95]
    yolox_of_bright(directory / "yolox_tiny.onnx", 36, cell)
    write_images(directory / "room.mkv", np.stack(scene()))
    camera = (
        '[[cameras]]\nname = "room"\nurl = "room.mkv"\nrate = 10.0\nthreshold = 20.0\n'
        "loop = true\ndraw_place = true\n"
    )
    (directory / "token").write_text(TOKEN)
    (directory / "token").chmod(0o600)
    web = f'[web]\nport = {port}\ntoken = "file:token"\n'
    return write_site(directory, camera, networks, more=web)


def check_wall(page: Page) -> None:
    """The door is painted and the person is not."""
    expect(page.locator(".camera")).to_have_attribute("data-place", "true")
    assert page.evaluate(f"{LIT}(0.5, 0.8)") > 60, "the left side of the door"
    assert page.evaluate(f"{LIT}(0.75, 0.8)") > 60
    assert page.evaluate(f"{LIT}(0.625, 0.25)") > 60, "its top"
    assert page.evaluate(f"{LIT}(0.625, 0.8)") < 20, "within it"
    said = re.compile("on a drawing of the place$")
    expect(page.locator(".people")).to_have_attribute("aria-label", said)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_camera_draws_its_place_and_the_page_paints_it(tmp_path: Path, chromium: Browser) -> None:
    port = free_port()
    settings = write_room(tmp_path, port)
    assert tomllib.loads(settings.read_text())["cameras"][0]["draw_place"]
    file = tmp_path / "site-data" / PLACES / "room.png"
    with Running(settings) as site, new_page(chromium) as page:
        wait_until(file.exists, 90 * SLOWER)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        first = file.stat().st_mtime_ns
        assert file.read_bytes() == to_png(edges_of_the_empty_room(), (SIDE, SIDE))
        log_in(page, f"http://127.0.0.1:{port}/", TOKEN)
        check_wall(page)
        loaded = sum("/place?" in one.url for one in page.requests())
        if PICTURES:
            page.screenshot(path=f"{PICTURES}/place-wall.png")
        assert loaded == 1
        gone = page.evaluate(
            "fetch('/api/cameras/room/place', {method: 'DELETE'}).then((a) => a.status)"
        )
        assert gone == 204
        expect(page.locator(".camera")).to_have_attribute("data-place", "false")
        wait_until(lambda: file.exists() and file.stat().st_mtime_ns != first, 60 * SLOWER)
        check_wall(page)
        page.goto(f"http://127.0.0.1:{port}/settings")
        expect(page.locator("#draw-again")).to_be_visible()
        expect(page.locator("[name=draw_place]")).to_be_checked()
        assert complaints(page) == []
        assert site.stop() == 0


def edges_of_the_empty_room() -> bytes:
    drawing = draw_place(scene()[-1], people(), 0.25)
    assert drawing is not None
    return drawing
