"""The settings page in Chromium, on a site that really runs: drawn, saved, refused, restarted."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Position, expect

from stepvad.detector import Detector
from stepvad.formats import write_clip
from stepvad.site import demo
from stepvad.site.settings.file import load
from tests.browser import IN_CHROMIUM, complaints, log_in, new_page, resize, violations
from tests.report.pages import joined_walkers
from tests.site.sites import Running, one_person
from tests.video.servers import free_port, wait_until
from tests.web.feeding import living
from tests.web.sites import TOKEN

pytestmark = IN_CHROMIUM

Scheme = Literal["light", "dark"]
BEFORE = f"""\
# Our mill. Ask Ada before you change this.
name = "mill"
model = "{demo.MODEL}" # fitted in May

# shows that it works
[[cameras]]
name = "gate"
url = "demo:"
rate = 12.5

[sinks.file]
path = "events.jsonl"

[web]
port = PORT
token = "file:token"
"""
BY_HAND = """\
[[cameras]]
name = "{name}"
url = "{name}.parquet"
rate = 12.5
threshold = 20
hours = ["{hours}"]
loop = true
zones.{zone} = [[0.25, 0.25], [0.75, 0.25], [0.75, 0.8], [0.25, 0.8]]

"""
CAMERAS = {
    "door": ("till", "08:00-18:00"),
    "yard": ("ramp", "22:00-06:00"),
    "hall": ("stairs", "00:00-24:00"),
}
CORNERS = [(0.25, 0.25), (0.75, 0.25), (0.75, 0.8), (0.25, 0.8)]
PICTURES = os.environ.get("STEPVAD_TEST_PICTURES")
"""A directory for pictures of the page, to be looked at by people."""


class Mill:
    """A running site with its settings file and page."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.file = directory / "site.toml"
        self.text = BEFORE.replace("PORT", str(self.port))
        self.file.write_text(self.text)
        (directory / "token").write_text(TOKEN)
        (directory / "token").chmod(0o600)
        for name in CAMERAS:
            write_clip(one_person(6.0), directory / f"{name}.parquet")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mill]:
    """A running site; each test leaves its file as it was, but for the last."""
    mill = Mill(tmp_path_factory.mktemp("site"))
    with Running(mill.file) as running:
        log = running.log
        wait_until(lambda: "is watching" in log.read_text(), 120)
        yield mill
        assert running.stop() == 0, log.read_text()


def answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def page(mill: Mill, chromium: Browser) -> Iterator[Page]:
    """A browser on the settings page of the mill, which may still be starting again."""
    wait_until(lambda: answers(mill.port), 120)
    with new_page(chromium) as page:
        log_in(page, mill.url, TOKEN)
        open_settings(page, mill)
        yield page


def open_settings(page: Page, mill: Mill) -> None:
    page.goto(f"{mill.url}settings")
    expect(page.locator("#parts")).to_be_visible()


def place(page: Page, x: float, y: float) -> Position:
    """Where in the drawing fractions of it are."""
    box = page.locator("#picture").bounding_box()
    assert box is not None
    return {"x": x * box["width"], "y": y * box["height"]}


def shoot(page: Page, name: str, width: int = 1280, scheme: Scheme = "light") -> None:
    if PICTURES:
        resize(page, width)
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=f"{PICTURES}/{name}-{width}-{scheme}.png", full_page=True)
        resize(page, 1280)
        page.emulate_media(color_scheme="light")


def started(page: Page) -> float:
    """When the site started; how long it runs may be the same before and after a restart."""
    asked = "fetch('/api/site').then((one) => one.json()).catch(() => null)"
    while (site := page.evaluate(asked)) is None:
        page.wait_for_timeout(100)
    return time.time() - float(site["uptime_s"])


def save(page: Page, label: Literal["Save", "Save and restart"]) -> None:
    """Save what the button says before, and wait until the site is back if it restarts."""
    before = started(page)
    expect(page.locator("#effect")).not_to_be_empty()
    expect(page.locator("#save")).to_have_text(label)
    page.locator("#save").click()
    expect(page.locator("body[data-saved]:not([data-saved='']), #said.bad")).to_be_attached()
    expect(page.locator("#said.bad")).not_to_be_attached()
    if label == "Save":
        expect(page.locator("#said")).to_contain_text("Saved. It applies at once")
        assert abs(started(page) - before) < 0.5
    while label != "Save" and started(page) <= before + 0.5:
        page.wait_for_timeout(100)
    expect(page.locator("#link")).to_have_text("Live")
    page.evaluate("document.body.dataset.saved = ''")


def add(page: Page, name: str, zone: str, hours: str) -> None:
    """Add a camera as a newcomer would: address, try, draw, name."""
    page.locator("#add-camera").click()
    page.fill("[name=url]", f"{name}.parquet")
    page.locator("#try").click()
    expect(page.locator("#tried")).to_have_text(re.compile("^It works: "))
    page.locator("#new-zone").click()
    for corner in CORNERS:
        page.locator("#picture").click(position=place(page, *corner))
    page.fill("#zones .zone-name", zone)
    page.fill("[name=name]", name)
    page.fill("[name=rate]", "12.5")
    page.fill("[name=threshold]", "20")
    page.fill("[name=hours]", hours)
    page.locator("[name=loop]").click()


def check_refused(page: Page, words: str) -> None:
    """Save what the site will not take."""
    page.locator("#save").click()
    expect(page.locator("#said.bad")).to_contain_text(words)


def test_a_broken_edit_is_refused_with_the_line(page: Page, mill: Mill) -> None:
    page.fill("[name=rate]", "-3")
    check_refused(page, "Line 9: cameras.rate: expected greater than 0, got -3")
    expect(page.locator("#said")).to_contain_text("rate = -3")
    shoot(page, "refused")
    shoot(page, "refused", 390)
    page.fill("[name=rate]", "12.5")
    expect(page.locator("#unsaved")).to_be_hidden()
    page.fill("[name=hours]", "8 to 18")
    check_refused(page, "Line 10: cameras.hours: expected hours as HH:MM-HH:MM, got '8 to 18'")
    page.fill("[name=hours]", "")
    page.fill("[name=credentials]", "tops3cret")
    check_refused(page, "expected env:NAME or file:PATH, got something else")
    page.locator("#new-zone").click()
    check_refused(page, "zone-1 of gate needs at least 3 corners")
    assert mill.file.read_text() == mill.text
    page.locator("#discard").click()
    expect(page.locator("#unsaved")).to_be_hidden()

    text = mill.text.replace("rate = 12.5", "ratte = 12.5")
    page.fill("#text", text)
    page.locator("#save-text").click()
    said = "Line 9: cameras.ratte: expected a known key, got 'ratte'"
    expect(page.locator("#text-answer")).to_contain_text(said)
    expect(page.locator("#numbers .bad")).to_have_text("9")
    chosen = "(text) => text.value.slice(text.selectionStart, text.selectionEnd)"
    assert page.locator("#text").evaluate(chosen) == "ratte = 12.5"
    shoot(page, "text-refused")
    assert mill.file.read_text() == mill.text


def test_a_change_by_hand_meanwhile_is_said_and_kept(page: Page, mill: Mill) -> None:
    page.fill("[name=rate]", "10")
    by_hand = mill.text.replace("# fitted in May", "# fitted in June")
    mill.file.write_text(by_hand)
    check_refused(page, "was changed since")
    expect(page.locator("#said")).to_contain_text("Load it again")
    assert mill.file.read_text() == by_hand
    page.locator("#discard").click()
    expect(page.locator("#text")).to_have_value(re.compile("fitted in June"))
    mill.file.write_text(mill.text.replace("rate = 12.5", "rate = fast"))
    open_settings(page, mill)
    answer = page.locator("#text-answer")
    expect(answer).to_contain_text("The file was edited by hand and has an error")
    expect(answer).to_contain_text("Line 9: expected TOML")
    expect(page.locator("#cameras")).to_be_hidden()
    mill.file.write_text(mill.text)


def test_zones_are_drawn_by_keyboard_moved_undone_and_deleted(page: Page, mill: Mill) -> None:
    page.locator("#new-zone").press("Enter")
    for _ in range(3):
        page.locator("#zones fieldset .zone-bar button").first.press("Enter")
    numbers = [0.1, 0.2, 0.6, 0.2, 0.6, 0.9]
    fields = page.locator(".corners input")
    for n, number in enumerate(numbers):
        fields.nth(n).fill(str(number))
        fields.nth(n).press("Tab")
    page.select_option(".zone-when", "never")
    page.locator("#picture").drag_to(
        page.locator("#picture"),
        source_position=place(page, 0.6, 0.9),
        target_position=place(page, 0.7, 0.95),
    )
    corners = "(all) => all.map((one) => Number(one.value))"
    assert fields.evaluate_all(corners) == [0.1, 0.2, 0.6, 0.2, 0.7, 0.95]
    page.locator("#undo").click()
    assert fields.evaluate_all(corners) == numbers
    page.fill("#zones .zone-name", "pond")
    shoot(page, "zone", 390)
    save(page, "Save")
    zone = "zones.pond = [[0.1, 0.2], [0.6, 0.2], [0.6, 0.9]]\nzone_hours.pond = []\n"
    assert mill.file.read_text() == mill.text.replace("rate = 12.5\n", f"rate = 12.5\n{zone}")
    page.locator("#zones button").last.click()
    save(page, "Save")
    assert mill.file.read_text() == mill.text


def test_a_sink_is_tested_and_a_camera_that_does_not_answer_is_said(page: Page, mill: Mill) -> None:
    page.locator("[data-sink=file] button").click()
    answer = page.locator("[data-sink=file] .answer")
    expect(answer).to_have_text("Sent: file accepted a test event and its end")
    assert len((mill.file.parent / "events.jsonl").read_text().splitlines()) >= 2
    page.fill("[name=url]", "none.parquet")
    page.locator("#try").click()
    tried = page.locator("#tried")
    expect(tried).to_have_text(re.compile("^No picture: .*No such file"))
    page.fill("[name=url]", "ftp://host/stream")
    page.locator("#try").click()
    expect(tried).to_contain_text("expected one of")


def test_a_site_without_a_file_says_so(
    small_model: Detector, tmp_path: Path, chromium: Browser
) -> None:
    clips = {"yard": joined_walkers(1, seed=4)}
    with living(tmp_path, small_model, clips) as (_, server), new_page(chromium) as page:
        log_in(page, server.url, TOKEN)
        page.locator("nav a[href='/settings']").click()
        page.wait_for_url("**/settings")
        expect(page.locator("#no-file")).to_contain_text("There is no settings file")
        expect(page.locator("#parts")).to_be_hidden()


def test_it_fits(page: Page) -> None:
    page.locator("#new-zone").click()
    views: list[tuple[int, Scheme]] = [
        (1280, "light"), (390, "light"), (390, "dark"), (1280, "dark"),
    ]  # fmt: skip
    for width, scheme in views:
        resize(page, width)
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = page.locator("#save").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= width
        assert violations(page) == []
    assert complaints(page) == []


@pytest.mark.ci
def test_three_cameras_are_drawn_and_saved_as_a_person_would_have_written_them(
    page: Page, mill: Mill
) -> None:
    for name, (zone, hours) in CAMERAS.items():
        add(page, name, zone, hours)
    shoot(page, "three")
    shoot(page, "three", 390)
    shoot(page, "three", 1280, "dark")
    expect(page.locator("#changes")).to_have_text("3 changes not saved")
    assert mill.file.read_text() == mill.text
    save(page, "Save and restart")
    new = "".join(
        BY_HAND.format(name=name, zone=zone, hours=hours) for name, (zone, hours) in CAMERAS.items()
    )
    assert mill.file.read_text() == mill.text.replace("[sinks.file]", f"{new}[sinks.file]")
    assert (mill.file.parent / "site.toml.before").read_text() == mill.text
    assert len(load(mill.file).cameras) == 4
    expect(page.locator("#camera-list li")).to_have_count(4)
    states = page.locator("#camera-list .small:last-child")
    expect(states).to_have_text([re.compile("^online")] * 4)
    log = (mill.file.parent / "log.txt").read_text()
    assert "the site restarts with new settings" in log
    assert "restarting in" not in log  # it counts as no crash
    page.locator("[data-camera=yard]").click()
    expect(page.locator("#zones fieldset")).to_have_attribute("data-zone", "ramp")
    expect(page.locator("#veil")).to_be_hidden()
    expect(page.locator("#picture")).to_have_attribute("data-people", "1")
    shoot(page, "saved")
    assert all("WebSocket" in one or "ERR_" in one for one in complaints(page))
