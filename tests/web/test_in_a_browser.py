"""The page in Chromium: it shows people as they move, events as they come, and bears a phone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stepvad.detector import Detector
from stepvad.explain.eventexplanation import PartShare
from stepvad.web import ServerThread, serve
from tests.browser import CHROMIUM, Page, browser
from tests.report.pages import joined_walkers
from tests.web.feeding import living
from tests.web.sites import TOKEN, Site, happen, person, record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
DRAWN = "Number(document.querySelector('.camera')?.dataset.drawn ?? 0)"
ROWS = "document.querySelectorAll('#list li').length"
OPEN = "document.getElementById('event').open"
FOCUS = "(document.activeElement.textContent || document.activeElement.id).trim()"
FRAME = "Number(document.querySelector('#event .motion').dataset.frame)"
PAINTED = """(() => {
  const canvas = document.querySelector('.people');
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height });
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const { data } = pen.getImageData(0, 0, width, height);
  let lit = 0;
  for (let n = 0; n < data.length; n += 4) if (data[n] + data[n + 1] + data[n + 2] > 300) lit += 1;
  return lit;
})()"""


@pytest.fixture(scope="module")
def life(
    small_model: Detector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, ServerThread]]:
    clips = {"yard": joined_walkers(3, seed=4)}
    with living(tmp_path_factory.mktemp("site"), small_model, clips) as running:
        yield running


@pytest.fixture(scope="module")
def chromium(
    life: tuple[Site, ServerThread], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    """A browser that has logged in through the form."""
    with browser(tmp_path_factory.mktemp("profile")) as page:
        log_in(page, life[1].url)
        yield page


@pytest.fixture
def page(chromium: Page, life: tuple[Site, ServerThread]) -> Iterator[Page]:
    """The page anew; nothing that a test does makes it complain."""
    chromium.complaints.clear()
    go(chromium, life[1].url)
    chromium.wait(f"{DRAWN} > 0 && {ROWS} > 0")
    yield chromium
    assert chromium.complaints == []


def go(page: Page, url: str, *, width: int = 1280, scheme: str = "light") -> None:
    resize(page, width, scheme)
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=url)
    page.wait(f"location.href.startsWith('{url}') && document.readyState === 'complete'")


def log_in(page: Page, url: str) -> None:
    """Through the form, until the wall moves."""
    go(page, url)
    page.wait("location.pathname === '/login'")
    page.call("Input.insertText", text=TOKEN)
    page.press("Enter", "Enter", "\r")
    page.wait(f"location.pathname === '/' && {DRAWN} > 2")


def resize(page: Page, width: int, scheme: str = "light") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=features)
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )


def open_first(page: Page) -> None:
    """Open an event that is over, by its link."""
    page.wait("!!document.querySelector('#list li[data-open=false] a')")
    page.run("document.querySelector('#list li[data-open=false] a').click()")
    page.wait(f"{OPEN} && !!document.querySelector('#event .stage')")


def test_the_wall_moves(page: Page) -> None:
    drawn = page.run(DRAWN)
    page.wait(f"{DRAWN} > {drawn} + 5")
    page.wait(f"{PAINTED} > 300")  # more than the name of the zone
    assert page.run("document.getElementById('link').textContent") == "Live"
    assert page.run("document.querySelector('.state').textContent") == "online"


def test_an_event_appears_by_itself_and_is_said_aloud(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    page.run("document.getElementById('news').textContent = ''; window.same = true")
    one = happen(life[0], 9000 + int(time.time()) % 1000)
    page.wait(f"!!document.querySelector('#list li[data-id=\"{one.id}\"]')")
    page.wait("document.getElementById('news').textContent.includes('camera yard')")
    assert page.run("window.same") is True
    life[0].store.delete(ids=[one.id])
    page.wait(f"!document.querySelector('#list li[data-id=\"{one.id}\"]')")


def test_a_score_that_does_not_count_is_shown_with_the_reason(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    status, doubt = life[0].status, "document.querySelector('.camera[data-camera=gate] .doubt')"
    status.camera("gate", rate=10.0, threshold=3.0, model="walkers", zones={})
    try:
        page.wait(f"!!{doubt} && {doubt}.hidden")
        status.frame("gate", 1, time.time(), (640, 360), [person(1)], {1: 9.0}, {1: 0.3})
        page.wait(f"!{doubt}.hidden")
        said = page.run(f"{doubt}.textContent")
        assert said == "1 person not judged: seen in 3 of 10 frames"
        line = "document.querySelector('.camera[data-camera=gate] .scores').ariaLabel"
        page.run(f"{line} = ''")  # until it is drawn again
        page.wait(f"{line}.includes('none yet')")
        status.frame("gate", 2, time.time(), (640, 360), [person(1)], {1: 9.0})
        page.wait(f"{doubt}.hidden")
        page.wait(f"{line}.includes('highest 3.0')")
    finally:
        del status._cameras["gate"]


def test_links_on_a_phone_are_not_broken_within_words(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    go(page, life[1].url, width=280)
    links = "[...document.querySelectorAll('.bar nav a:not([hidden])')]"
    assert page.run(f"{links}.length") >= 4
    assert page.run(f"{links}.filter((one) => one.offsetHeight > 40).length") == 0
    assert page.run("document.documentElement.scrollWidth") <= 280


def test_an_empty_list_says_whether_there_are_none_or_none_like_that(page: Page) -> None:
    none = "document.getElementById('none')"
    assert page.run(f"{none}.hidden") is True
    assert page.run(f"{none}.textContent") == "No events yet."
    search = "document.querySelector('#filters [name=words]')"
    page.run(
        f"{search}.value = 'xyzzy'; {search}.dispatchEvent(new Event('input', {{bubbles: true}}))"
    )
    page.wait(f"!{none}.hidden && {none}.textContent === 'No matching events.'")


def test_an_event_says_how_much_was_interpolated(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    one = record(8000 + int(time.time()) % 1000, seen=0.7)
    some = next(iter(life[0].explanations.values()))
    life[0].explanations[one.id] = replace(some, score=one.top_score)
    life[0].store.change("new", one)
    life[0].store.change("end", one.ended("calm", one.start_time + 5))
    page.run(f"location.hash = '#event/{one.id}'")
    facts = "document.querySelector('#event .facts').textContent"
    page.wait(
        f"{OPEN} && {facts}.includes('uncertain: 3 of 10 frames at the peak were interpolated')"
    )
    page.wait("!!document.querySelector('#event .stage')")
    page.press("Escape", "Escape", number=27)
    page.wait(f"!{OPEN}")
    life[0].store.delete(ids=[one.id])


def test_an_event_is_explained_by_motion_words_and_numbers(page: Page) -> None:
    open_first(page)
    frames = {page.run(FRAME)}
    late = time.monotonic() + 30
    while len(frames) < 4 and time.monotonic() < late:
        frames.add(page.run(FRAME))
    assert len(frames) >= 4
    assert page.run("document.querySelectorAll('#event .words li').length") >= 1
    assert page.run("document.querySelectorAll('#event .parts rect').length") >= 1
    assert page.run("document.querySelectorAll('#event .stage .ghost').length") == 1
    assert "the limit" in page.run("document.querySelector('#event .facts').textContent")


def test_an_explanation_that_comes_late_appears_by_itself(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    site = life[0]
    one = happen(site, 8000)
    some = next(iter(site.explanations.values()))
    page.run(f"location.hash = 'event/{one.id}'")
    page.wait(
        f"{OPEN} && document.querySelector('#event .motion').textContent.includes('There is no')"
    )
    site.explanations[one.id] = replace(some, score=one.top_score)
    page.wait("!!document.querySelector('#event .stage')")
    page.run("location.hash = 'events'")
    page.wait(f"!{OPEN}")  # else the page asks for an event that is not there any more
    site.store.delete(ids=[one.id])
    assert all("404" in said for said in page.complaints)
    page.complaints.clear()


def test_shares_of_several_views_are_shown_without_noise_scales(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    site = life[0]
    one = happen(site, 8001)
    some = next(iter(site.explanations.values()))
    views = PartShare("pose", 0.4), PartShare("motion", 0.55), PartShare("place", 0.05)
    site.explanations[one.id] = replace(some, score=one.top_score, views=views)
    page.run(f"location.hash = 'event/{one.id}'")
    page.wait("!!document.querySelector('#event .stage')")
    told = page.run("document.querySelector('#event dl').textContent")
    assert "pose 40 %, motion 55 %, place 5 %" in told
    assert "noise" not in told
    page.run("location.hash = 'events'")
    page.wait(f"!{OPEN}")
    site.store.delete(ids=[one.id])


def test_an_event_is_marked_as_normal_and_that_is_undone(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    open_first(page)
    id_ = page.run("decodeURIComponent(location.hash.split('/')[1])")
    page.run("document.querySelector('#event .mark-normal').click()")
    page.wait("document.querySelector('#event .said').textContent === 'Marked as normal.'")
    assert id_ in life[0].store.marked()
    page.wait(f"document.querySelector('#list li[data-id=\"{id_}\"]').dataset.mark === 'normal'")
    page.run("document.querySelector('#event .undo').click()")
    page.wait("document.querySelector('#event .said').textContent === 'Mark removed.'")
    assert id_ not in life[0].store.marked()


def test_a_keyboard_is_enough(page: Page) -> None:
    page.wait("!!document.querySelector('#list li[data-open=false] a')")
    page.run("document.body.focus()")
    page.press("Tab", "Tab")
    assert page.run(FOCUS) == "Skip to the cameras"
    for _ in range(40):
        page.press("Tab", "Tab")
        if page.run("document.activeElement.className") == "row":
            break
    assert page.run("document.activeElement.className") == "row"
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    row = page.run("document.activeElement.getAttribute('href')")
    page.press("Enter", "Enter", "\r")
    page.wait(OPEN)
    assert page.run("document.activeElement.id") == "event-title"
    for _ in range(12):
        page.press("Tab", "Tab")
        if page.run("document.activeElement.className").endswith("mark-normal"):
            break
    page.press(" ", "Space", " ")
    page.wait("document.querySelector('#event .said').textContent === 'Marked as normal.'")
    page.press(" ", "Space", " ")
    page.wait("document.querySelector('#event .said').textContent === 'Mark removed.'")
    page.press("Escape", "Escape", number=27)
    page.wait(f"!{OPEN}")
    assert page.run("document.activeElement.getAttribute('href')") == row


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_fits_and_asks_nobody_else(
    page: Page, life: tuple[Site, ServerThread], width: int, scheme: str
) -> None:
    resize(page, width, scheme)
    assert page.run("document.documentElement.scrollWidth") <= width
    words = "document.getElementById('counts-words').getBoundingClientRect()"
    assert page.run(f"{words}.right") <= width
    open_first(page)
    assert page.run("document.documentElement.scrollWidth") <= width
    inside = "document.getElementById('event')"
    assert page.run(f"{inside}.scrollWidth <= {inside}.clientWidth")
    hosts = {urlsplit(url).netloc for url in page.requests}
    assert hosts <= {urlsplit(life[1].url).netloc, ""}


def test_events_are_filtered_by_camera(page: Page, life: tuple[Site, ServerThread]) -> None:
    life[0].status.camera("gate", rate=10.0, threshold=3.0, model="walkers", zones={})
    page.wait("document.querySelectorAll('.camera').length === 2")
    choose = (
        "var camera = document.querySelector('#filters [name=camera]'); camera.value = '{0}';"
        "camera.dispatchEvent(new Event('change', {{bubbles: true}}))"
    )
    page.run(choose.format("gate"))
    page.wait(f"{ROWS} === 0 && !document.getElementById('none').hidden")
    page.run(choose.format("yard"))
    page.wait(f"{ROWS} > 0 && document.getElementById('none').hidden")


def test_a_camera_that_is_gone_is_said_to_be(page: Page, life: tuple[Site, ServerThread]) -> None:
    life[0].status.camera("roof", rate=10.0, threshold=3.0, model="walkers", zones={})
    life[0].status.state("roof", "offline", "no route to it", time.time() - 90)
    card = "document.querySelector('[data-camera=roof]')"
    page.wait(f"{card} && {card}.querySelector('.state').textContent.startsWith('offline for 1')")
    assert page.run(f"{card}.querySelector('.veil').textContent") == "no route to it"


def test_a_lost_connection_is_said_and_a_restart_logs_nobody_out(
    small_model: Detector, tmp_path: Path
) -> None:
    clips = {"yard": joined_walkers(1, seed=4)}
    for part in ("site", "profile"):
        (tmp_path / part).mkdir()
    with (
        living(tmp_path / "site", small_model, clips) as (site, server),
        browser(tmp_path / "profile") as page,
    ):
        log_in(page, server.url)
        lost = "!document.getElementById('lost').hidden"
        assert not page.run(lost)
        server.stop()
        page.wait(lost)
        assert "lost" in page.run("document.getElementById('lost').textContent")
        drawn = page.run(DRAWN)
        app = site.app(session_file=tmp_path / "site" / "sessions")
        again = serve(app, "127.0.0.1", server.port)
        try:
            page.wait(f"!({lost}) && {DRAWN} > {drawn}")
            assert page.run("document.getElementById('link').textContent") == "Live"
        finally:
            page.call("Page.navigate", url="about:blank")
            again.stop()


def test_without_the_cookie_the_page_leads_to_the_form(
    chromium: Page, life: tuple[Site, ServerThread]
) -> None:
    go(chromium, life[1].url)
    chromium.wait(f"{DRAWN} > 0")
    chromium.run("document.querySelector('.bar form button').click()")
    chromium.wait("location.pathname === '/login'")
    assert not chromium.run("document.cookie")
