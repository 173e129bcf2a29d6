"""The settings page in Chromium, on a site that really runs: drawn, saved, refused, restarted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.detector import Detector
from stepvad.formats import write_clip
from stepvad.intake import demo
from stepvad.settings.file import load
from tests.accessibility import violations
from tests.browser import CHROMIUM, Page, browser
from tests.report.pages import joined_walkers
from tests.site.sites import Running, one_person
from tests.video.servers import free_port, wait_until
from tests.web.feeding import living
from tests.web.sites import TOKEN
from tests.web.test_in_a_browser import go, log_in, resize

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]

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
    "dock": ("crane", "06:30-20:00"),
    "roof": ("hatch", "18:00-07:00"),
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


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    (tmp_path / "site").mkdir()
    return Mill(tmp_path / "site")


@pytest.fixture
def page(mill: Mill, tmp_path: Path) -> Iterator[Page]:
    """A browser on the settings page of the running mill."""
    with Running(mill.file) as running:
        log = running.log
        wait_until(lambda: "is watching" in log.read_text(), 60)
        with browser(tmp_path / "profile") as page:
            log_in(page, mill.url)
            open_settings(page, mill)
            yield page
            page.run("window.onbeforeunload = null")
        assert running.stop() == 0, log.read_text()


def open_settings(page: Page, mill: Mill) -> None:
    go(page, f"{mill.url}settings")
    page.wait("!document.getElementById('parts').hidden")


def fill(page: Page, where: str, text: str) -> None:
    """Type into a field that has something else."""
    page.run(
        f"document.querySelector('{where}').focus(); document.querySelector('{where}').select()"
    )
    page.call("Input.insertText", text=text)


def click(page: Page, where: str) -> None:
    page.run(f"document.querySelector('{where}').click()")


def point(page: Page, x: float, y: float) -> None:
    """Click into the picture, at fractions of it, with a real mouse."""
    page.run("document.getElementById('picture').scrollIntoView({block: 'center'})")
    box = page.run(
        "(() => { const b = document.getElementById('picture').getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    at = {"x": box[0] + x * box[2], "y": box[1] + y * box[3], "button": "left", "clickCount": 1}
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, **at)


def shoot(page: Page, name: str, width: int = 1280, scheme: str = "light") -> None:
    if PICTURES:
        resize(page, width, scheme)
        page.picture(Path(PICTURES) / f"{name}-{width}-{scheme}.png")
        resize(page, 1280)


STARTED = (
    "fetch('/api/site').then((one) => one.json()).then((site) => { "
    "document.body.dataset.started = Date.now() / 1000 - site.uptime_s; }).catch(() => {})"
)
"""When the site started; how long it runs may be the same before and after a restart."""


def save(page: Page) -> None:
    """Save and wait until the site has started again and is back."""
    page.run("document.body.dataset.saved = ''; delete document.body.dataset.started")
    page.wait(f"({STARTED}, !!document.body.dataset.started)")
    before = page.run("Number(document.body.dataset.started)")
    click(page, "#save")
    page.wait(
        "!!document.body.dataset.saved || document.getElementById('said').classList.contains('bad')"
    )
    assert not page.run("document.querySelector('#said.bad')?.textContent")
    page.wait(f"({STARTED}, Number(document.body.dataset.started)) > {before + 0.5}")
    page.wait("document.getElementById('link').textContent === 'Live'")


def add(page: Page, name: str, zone: str, hours: str) -> None:
    """Add a camera as a newcomer would: address, try, draw, name."""
    click(page, "#add-camera")
    fill(page, "[name=url]", f"{name}.parquet")
    click(page, "#try")
    page.wait("document.getElementById('tried').textContent.startsWith('It works: ')")
    click(page, "#new-zone")
    for corner in CORNERS:
        point(page, *corner)
    fill(page, "#zones .zone-name", zone)
    fill(page, "[name=name]", name)
    fill(page, "[name=rate]", "12.5")
    fill(page, "[name=threshold]", "20")
    fill(page, "[name=hours]", hours)
    click(page, "[name=loop]")


@pytest.mark.ci
def test_five_cameras_are_drawn_and_saved_as_a_person_would_have_written_them(
    page: Page, mill: Mill
) -> None:
    for name, (zone, hours) in CAMERAS.items():
        add(page, name, zone, hours)
    shoot(page, "five")
    shoot(page, "five", 390)
    shoot(page, "five", 1280, "dark")
    assert page.run("document.getElementById('changes').textContent") == "5 changes not saved"
    assert mill.file.read_text() == mill.text
    save(page)
    new = "".join(
        BY_HAND.format(name=name, zone=zone, hours=hours) for name, (zone, hours) in CAMERAS.items()
    )
    assert mill.file.read_text() == mill.text.replace("[sinks.file]", f"{new}[sinks.file]")
    assert (mill.file.parent / "site.toml.before").read_text() == mill.text
    assert len(load(mill.file).cameras) == 6
    assert page.run("document.querySelectorAll('#camera-list li').length") == 6
    states = "[...document.querySelectorAll('#camera-list .small:last-child')]"
    page.wait(f"{states}.every((one) => one.textContent.startsWith('online'))")
    log = (mill.file.parent / "log.txt").read_text()
    assert "the site restarts with new settings" in log
    assert "restarting in" not in log  # it counts as no crash
    click(page, "[data-camera=yard]")
    page.wait("document.querySelector('#zones fieldset').dataset.zone === 'ramp'")
    page.wait("document.getElementById('veil').hidden")
    page.wait("document.getElementById('picture').dataset.people === '1'")
    shoot(page, "saved")
    assert page.complaints == [] or all(
        "WebSocket" in one or "ERR_" in one for one in page.complaints
    )


def said(page: Page) -> str:
    return str(page.run("document.getElementById('said').innerText"))


def refused(page: Page) -> str:
    """Save what the site will not take; what it says."""
    click(page, "#save")
    page.wait("document.getElementById('said').classList.contains('bad')")
    return said(page)


def test_a_broken_edit_is_refused_with_the_line(page: Page, mill: Mill) -> None:
    fill(page, "[name=rate]", "-3")
    words = refused(page)
    assert "Line 9: cameras.rate: expected greater than 0, got -3" in words
    assert "rate = -3" in words
    shoot(page, "refused")
    shoot(page, "refused", 390)
    fill(page, "[name=rate]", "12.5")
    page.wait("document.getElementById('unsaved').hidden")
    fill(page, "[name=hours]", "8 to 18")
    assert "Line 10: cameras.hours: expected hours as HH:MM-HH:MM, got '8 to 18'" in refused(page)
    fill(page, "[name=hours]", "")
    fill(page, "[name=credentials]", "admin:tops3cret")
    assert "expected env:NAME or file:PATH, got something else" in refused(page)
    click(page, "#new-zone")
    assert "zone-1 of gate needs at least 3 corners" in refused(page)
    assert mill.file.read_text() == mill.text
    click(page, "#discard")
    page.wait("document.getElementById('unsaved').hidden")

    text = mill.text.replace("rate = 12.5", "ratte = 12.5")
    page.run("document.getElementById('text').focus()")
    page.run("document.getElementById('text').select()")
    page.call("Input.insertText", text=text)
    click(page, "#save-text")
    answer = "document.getElementById('text-answer').innerText"
    page.wait(f"{answer}.includes(\"Line 9: cameras.ratte: expected a known key, got 'ratte'\")")
    assert page.run("document.querySelector('#numbers .bad').textContent.trim()") == "9"
    chosen = "text.value.slice(text.selectionStart, text.selectionEnd)"
    assert page.run(
        f"(() => {{ const text = document.getElementById('text'); return {chosen}; }})()"
    ) == ("ratte = 12.5")
    shoot(page, "text-refused")
    assert mill.file.read_text() == mill.text
    page.run("document.getElementById('text').focus(); document.getElementById('text').select()")
    page.call("Input.insertText", text=mill.text)


def test_a_change_by_hand_meanwhile_is_said_and_kept(page: Page, mill: Mill) -> None:
    fill(page, "[name=rate]", "10")
    by_hand = mill.text.replace("# fitted in May", "# fitted in June")
    mill.file.write_text(by_hand)
    words = refused(page)
    assert "was changed since" in words
    assert "Load it again" in words
    assert mill.file.read_text() == by_hand
    click(page, "#discard")
    page.wait("document.getElementById('text').value.includes('fitted in June')")
    mill.file.write_text(mill.text.replace("rate = 12.5", "rate = fast"))
    open_settings(page, mill)
    answer = "document.getElementById('text-answer').innerText"
    page.wait(f"{answer}.includes('The file was edited by hand and has an error')")
    assert "Line 9: expected TOML" in page.run(answer)
    assert page.run("document.getElementById('cameras').hidden")
    mill.file.write_text(mill.text)


def test_zones_are_drawn_by_keyboard_moved_undone_and_deleted(page: Page, mill: Mill) -> None:
    page.run("document.getElementById('new-zone').focus()")
    page.press("Enter", "Enter", "\r")
    for _ in range(3):
        page.run("document.querySelector('#zones fieldset .zone-bar button').focus()")
        page.press("Enter", "Enter", "\r")
    numbers = [0.1, 0.2, 0.6, 0.2, 0.6, 0.9]
    for n, number in enumerate(numbers):
        field = f"document.querySelectorAll('.corners input')[{n}]"
        page.run(f"{field}.focus(); {field}.select()")
        page.call("Input.insertText", text=str(number))
        page.press("Tab", "Tab")
    page.run("document.querySelector('.zone-when').value = 'never'")
    page.run("document.querySelector('.zone-when').dispatchEvent(new Event('change'))")
    drag(page, (0.6, 0.9), (0.7, 0.95))
    corners = "[...document.querySelectorAll('.corners input')].map((one) => Number(one.value))"
    assert page.run(corners) == [0.1, 0.2, 0.6, 0.2, 0.7, 0.95]
    click(page, "#undo")
    assert page.run(corners) == numbers
    shoot(page, "zone", 390)
    save(page)
    zone = "zones.zone-1 = [[0.1, 0.2], [0.6, 0.2], [0.6, 0.9]]\nzone_hours.zone-1 = []\n"
    assert mill.file.read_text() == mill.text.replace("rate = 12.5\n", f"rate = 12.5\n{zone}")
    fill(page, "#zones .zone-name", "pond")
    save(page)
    assert mill.file.read_text() == mill.text.replace(
        "rate = 12.5\n", "rate = 12.5\n" + zone.replace("zone-1", "pond")
    )
    page.run("[...document.querySelectorAll('#zones button')].at(-1).click()")
    save(page)
    assert mill.file.read_text() == mill.text


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.run("document.getElementById('picture').scrollIntoView({block: 'center'})")
    box = page.run(
        "(() => { const b = document.getElementById('picture').getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    for kind, (x, y) in (
        ("mousePressed", start),
        ("mouseMoved", end),
        ("mouseReleased", end),
    ):
        at = {"x": box[0] + x * box[2], "y": box[1] + y * box[3], "button": "left"}
        page.call("Input.dispatchMouseEvent", type=kind, clickCount=1, **at)


def test_a_sink_is_tested_and_a_camera_that_does_not_answer_is_said(page: Page, mill: Mill) -> None:
    click(page, "[data-sink=file] button")
    told = "document.querySelector('[data-sink=file] .answer').textContent"
    page.wait(f"{told} && !{told}.startsWith('Sending')")
    assert page.run(told) == "Sent: file accepted a test event and its end"
    assert len((mill.file.parent / "events.jsonl").read_text().splitlines()) >= 2
    fill(page, "[name=url]", "none.parquet")
    click(page, "#try")
    tried = "document.getElementById('tried').textContent"
    page.wait(f"{tried}.startsWith('No picture: ')")
    assert "No such file" in page.run(tried)
    fill(page, "[name=url]", "ftp://host/stream")
    click(page, "#try")
    page.wait(f"{tried}.includes('expected one of')")
    click(page, "#discard")


def test_a_site_without_a_file_says_so(small_model: Detector, tmp_path: Path) -> None:
    for part in ("site", "profile"):
        (tmp_path / part).mkdir()
    clips = {"yard": joined_walkers(1, seed=4)}
    with (
        living(tmp_path / "site", small_model, clips) as (_, server),
        browser(tmp_path / "profile") as page,
    ):
        log_in(page, server.url)
        page.run("document.querySelector('nav a[href=\\'/settings\\']').click()")
        page.wait("location.pathname === '/settings'")
        page.wait("!document.getElementById('no-file').hidden")
        words = page.run("document.getElementById('no-file').textContent")
        assert words.startswith("There is no settings file")
        assert page.run("document.getElementById('parts').hidden")


def test_it_fits(page: Page) -> None:
    click(page, "#new-zone")
    for width, scheme in ((1280, "light"), (390, "light"), (390, "dark"), (1280, "dark")):
        resize(page, width, scheme)
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("document.getElementById('save').getBoundingClientRect().right") <= width
        assert violations(page) == []
    assert page.complaints == []
    click(page, "#discard")
