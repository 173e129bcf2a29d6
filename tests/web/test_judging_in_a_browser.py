"""What a guard does on the page, in Chromium: see the state of cameras, find, open and judge."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepvad.explain.eventexplanation import MotionFrames, Phrase
from stepvad.incidents.record import Record
from stepvad.site.explainer import packed
from stepvad.web import ServerThread, serve
from tests.accessibility import violations
from tests.browser import CHROMIUM, Page, browser
from tests.web.scenes import crowd, explained
from tests.web.sites import TOKEN, Site, happen, person, record, site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
YARD = "document.querySelector('.camera[data-camera=yard]')"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[tuple[Site, ServerThread]]:
    """A site without sources whose page is served."""
    with site(tmp_path) as made:
        server = serve(made.app(), "127.0.0.1", 0)
        try:
            yield made, server
        finally:
            server.stop()


@pytest.fixture
def page(chromium: Page, mill: tuple[Site, ServerThread]) -> Iterator[Page]:
    """The page of that site, logged in; nothing that a test does makes it complain."""
    show(chromium, mill[1].url)
    chromium.complaints.clear()
    yield chromium
    assert chromium.complaints == []


def show(page: Page, url: str, *, width: int = 1280) -> None:
    """Log in and wait for the wall."""
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    page.call("Network.clearBrowserCookies")
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=url)
    page.wait("location.pathname === '/login' && document.readyState === 'complete'")
    page.run("document.querySelector('input[name=token]').focus()")
    page.call("Input.insertText", text=TOKEN)
    page.press("Enter", "Enter", "\r")
    page.wait(f"location.pathname === '/' && !!{YARD}")


@contextmanager
def overloaded(site: Site, *, scored: int, shed: int) -> Iterator[None]:
    """A camera that scores and drops so many frames of ten."""
    stop = threading.Event()

    def run() -> None:
        n = 0
        while not stop.wait(0.1):
            n += 1
            site.status.count("yard", "scored" if n % (scored + shed) < scored else "shed")
            poses = [person(1)]
            site.status.frame("yard", n, time.time(), (640, 360), poses, {1: 9.0}, {1: 0.2})

    site.status.state("yard", "online", "", time.time())
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_an_overloaded_camera_says_that_it_is_not_watching_and_what_to_do(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    banner = f"{YARD}.querySelector('.load')"
    assert page.run(f"{banner}.hidden")
    with overloaded(mill[0], scored=2, shed=8):
        page.wait(f"!{banner}.hidden && {banner}.textContent.startsWith('Not watching: 4 of 5')")
        said = page.run(f"{banner}.textContent")
        assert "Nobody is judged here" in said
        assert "more cores" in said
        assert page.run(f"{YARD}.querySelector('.state').textContent") == "not watching"
        doubt = f"{YARD}.querySelector('.doubt').textContent"
        page.wait(f"{doubt} === '1 person not judged: seen in 2 of 10 frames'")
        seen = page.run(f"{banner}.getBoundingClientRect().height")
        assert seen > 20
    assert mill[0].store.events() == []


OPEN = "document.getElementById('event').open"
TITLE = "document.getElementById('event-title').textContent"
STATES = "[...document.querySelectorAll('#list .state')].map((one) => one.textContent)"
SAID = "document.querySelector('#event .said').textContent"


def told(site: Site, number: int, **changes: Any) -> Record:
    """An event that is over, with poses of everybody and an explanation."""
    one = record(number, **changes)
    site.store.change("new", one)
    one = one.ended("calm", one.start_time + 5)
    site.store.change("end", one)
    site.store.put_poses(one.id, packed(crowd()))
    made = replace(
        explained(200), score=one.top_score, motion=moving(180, 30), words=(Phrase("x", 180, 209),)
    )
    site.store.put_explanation(one.id, made)
    site.explanations[one.id] = made
    return one


def moving(first: int, n: int) -> MotionFrames:
    """The motion of one person, as it is shown close up."""
    joints = tuple(tuple(1000 + 10 * k + row for k in range(34)) for row in range(n))
    return MotionFrames(
        first=first,
        fps=10.0,
        peak=20,
        size=900,
        bones=((0, 1), (1, 2)),
        camera=tuple((1100, 1100) for _ in range(n)),
        observed=joints,
        ghost=joints,
        heat=tuple((50,) * 17 for _ in range(n)),
    )


def test_events_are_reviewed_and_judged_by_keyboard_alone(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    store = mill[0].store
    first, second, third = (told(mill[0], n) for n in (1, 2, 3))
    page.wait(f"String({STATES}) === 'to review,to review,to review'")
    page.wait("document.title.startsWith('3 to review · ')")
    assert page.run("document.getElementById('to-review').textContent") == "3 to review"
    weight = "getComputedStyle(document.querySelector('#list .what')).fontWeight"
    assert page.run(weight) == "700"
    tab_to(page, "document.activeElement.matches('.row')")
    page.press("j", "KeyJ", "j")
    page.press("Enter", "Enter", "\r")
    page.wait(f"{OPEN} && location.hash === '#event/{second.id}'")
    page.wait("document.title.startsWith('2 to review · ')")  # a look is a review
    assert set(store.reviews()) == {second.id}
    page.press("r", "KeyR", "r")
    page.wait(f"{SAID} === 'Marked as right.'")
    page.press("u", "KeyU", "u")
    page.wait(f"{SAID} === 'Mark removed.'")
    page.press("n", "KeyN", "n")
    page.wait(f"{SAID} === 'Marked as normal.'")
    assert store.reviews()[second.id].mark == "normal"
    judged = "document.querySelector('#event .judged').textContent"
    page.press("j", "KeyJ", "j")
    page.wait(f"location.hash === '#event/{first.id}' && {judged}.startsWith('seen')")
    page.press("r", "KeyR", "r")
    page.wait(f"{SAID} === 'Marked as right.'")
    page.wait("!document.querySelector('#event .next').hidden")
    tab_to(page, "document.activeElement.matches('.next')")
    assert page.run("document.activeElement.textContent") == "Next to review (1)"
    page.press("Enter", "Enter", "\r")
    page.wait(f"location.hash === '#event/{third.id}' && {judged}.startsWith('seen')")
    page.press("Escape", "Escape", number=27)
    page.wait(f"!{OPEN}")
    focused = "document.activeElement.closest('li')?.dataset.id"
    page.wait(f"{focused} === '{third.id}'")
    page.wait(f"String({STATES}) === 'seen,was normal,right alert'")
    page.wait("!document.title.includes('to review')")
    assert page.run("document.getElementById('to-review').hidden")


def tab_to(page: Page, found: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(60):
        if page.run(found):
            return
        page.press("Tab", "Tab")
    pytest.fail(f"Tab does not lead to {found}")


def choose(page: Page, name: str, value: str) -> None:
    page.run(
        f"var field = document.querySelector('#filters [name={name}]'); field.value = '{value}';"
        "field.dispatchEvent(new Event(field.type === 'search' ? 'input' : 'change',"
        "{bubbles: true}))"
    )


def test_the_list_is_filtered_by_review_zone_score_and_words(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    low = told(mill[0], 1, why="left arm raised", top_score=3.5)
    high = told(mill[0], 2, why="whole body crouched", zones=("lane",), top_score=9.0)
    mill[0].store.mark(low.id, "normal", 5.0)
    shown = "[...document.querySelectorAll('#list li')].map((row) => row.dataset.id).join()"
    page.wait(f"{shown} === '{high.id},{low.id}'")
    for name, value, found in (
        ("review", "to_review", high.id),
        ("review", "normal", low.id),
        ("review", "right", ""),
        ("zone", "lane", high.id),
        ("least", "2", high.id),
        ("words", "ARM", low.id),
    ):
        choose(page, name, value)
        page.wait(f"{shown} === '{found}'")
        choose(page, name, "")
        page.wait(f"{shown} === '{high.id},{low.id}'")
    page.run("document.getElementById('to-review').click()")
    page.wait(f"{shown} === '{high.id}'")
    words = page.run("document.querySelector('#list .row').innerText")
    assert "3.0× the limit" in words
    assert "yard (lane)" in words
    assert "Whole body crouched" in words


def test_the_replay_shows_everybody_and_drives_the_close_up(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    mill[0].status.frame("yard", 1, time.time(), (640, 360), [], {})
    one = told(mill[0], 2)
    page.run(f"location.hash = '#event/{one.id}'")
    page.wait(f"{OPEN} && !!document.querySelector('#event .replay')")
    page.wait("!!document.querySelector('#event .motion.driven .stage')")
    seek = "document.querySelector('#event .scene .seek')"
    page.run(f"{seek}.value = 62; {seek}.dispatchEvent(new Event('input'))")
    assert page.run("document.querySelector('#event .motion').dataset.frame") == "2"
    assert page.run("document.querySelector('#event .scene .clock').textContent") == "1.8 s before"
    colours = page.run(COLOURS)
    assert colours["strong"] > 20  # the one who decided
    assert colours["faint"] > 20  # somebody else
    page.run(f"{seek}.value = 0; {seek}.dispatchEvent(new Event('input'))")
    assert page.run("document.querySelector('#event .motion').classList.contains('away')")
    shown = page.run("document.getElementById('event').innerText")
    for jargon in ("σ", "noise", "energy", "component", "interpolated", "threshold"):
        assert jargon not in shown
    page.run("document.querySelector('#event .experts summary').click()")
    assert "σ" in page.run("document.querySelector('#event .experts').innerText")


COLOURS = """(() => {
  const canvas = document.querySelector('#event .replay');
  const { width, height } = canvas;
  const copy = Object.assign(document.createElement('canvas'), { width, height });
  const pen = copy.getContext('2d', { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const { data } = pen.getImageData(0, 0, width, height);
  let [strong, faint] = [0, 0];
  for (let n = 0; n < data.length; n += 4) {
    const [r, g, b] = data.slice(n, n + 3);
    if (r > 200 && b < 90) strong += 1;
    if (r > 60 && r < 140 && b > r && b < 160) faint += 1;
  }
  return { strong, faint };
})()"""


def test_a_moment_on_the_score_line_opens_by_click_and_by_keyboard(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    now = time.time()
    for n in range(100):
        mill[0].status.frame("yard", n, now - 10 + n / 10, (640, 360), [person(1)], {1: 1.0})
    mill[0].status.state("yard", "online", "", now)
    line = f"{YARD}.querySelector('.scores')"
    page.wait(f"{line}.ariaLabel?.includes('Enter opens a moment')")
    tab_to(page, f"document.activeElement === {line}")
    for _ in range(6):
        page.press("ArrowLeft", "ArrowLeft")
    assert page.run(f"{line}.getAttribute('aria-valuetext')").count(":") == 2
    page.press("Enter", "Enter", "\r")
    page.wait("document.getElementById('moment').open")
    page.wait("!!document.querySelector('#moment .replay')")
    facts = "document.querySelector('#moment .facts').textContent"
    assert page.run(facts) == "No event at this time. In these seconds: 1 person."
    page.press("Escape", "Escape", number=27)
    page.wait("!document.getElementById('moment').open")
    page.wait(f"document.activeElement === {line}")
    for _ in range(5):  # the page may move under the pointer while it is laid out anew
        page.run(f"{line}.scrollIntoView({{block: 'center'}})")
        place = json.loads(page.run(f"JSON.stringify({line}.getBoundingClientRect())"))
        at = {"x": place["x"] + 20, "y": place["y"] + 20}
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            page.call("Input.dispatchMouseEvent", type=kind, **at, button="left", clickCount=1)
        time.sleep(1.0)
        if page.run("document.getElementById('moment').open"):
            break
    page.wait(f"{facts}.includes('no longer in memory')")
    assert page.run("document.querySelector('#moment .scene').hidden")


def test_a_moment_of_an_event_opens_the_event(page: Page, mill: tuple[Site, ServerThread]) -> None:
    one = told(mill[0], 3)
    page.run(f"location.hash = '#moment/yard/{one.start_time + 1}'")
    page.wait(f"{OPEN} && location.hash === '#event/{one.id}'")
    assert not page.run("document.getElementById('moment').open")


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(page: Page, mill: tuple[Site, ServerThread], width: int) -> None:
    show(page, mill[1].url, width=width)
    page.complaints.clear()
    one = told(mill[0], 2)
    told(mill[0], 1)
    mill[0].store.mark(record(1).id, "normal", 5.0)
    page.wait(f"{STATES}.length === 2")
    with overloaded(mill[0], scored=2, shed=8):
        page.wait(f"!{YARD}.querySelector('.load').hidden")
        assert violations(page) == []
        page.run(f"location.hash = '#event/{one.id}'")
        page.wait("!!document.querySelector('#event .motion.driven .stage')")
        page.press("r", "KeyR", "r")
        page.wait(f"{SAID} === 'Marked as right.'")
        assert violations(page, "#event") == []
        page.run(f"location.hash = '#moment/yard/{int(time.time())}'")
        page.wait("!!document.querySelector('#moment .replay')")
        assert violations(page, "#moment") == []
    inside = "document.documentElement.scrollWidth"
    assert page.run(inside) <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_new_event_can_be_read_from_its_first_moment(
    page: Page, mill: tuple[Site, ServerThread], scheme: str
) -> None:
    page.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    page.wait("document.getElementById('none').textContent === 'No events yet.'")
    happen(mill[0], 1)
    happen(mill[0], 2, over=False)
    page.wait("document.querySelectorAll('#list .fresh').length === 2")
    page.run("document.getAnimations().forEach((one) => { one.pause(); one.currentTime = 0; })")
    assert page.run("document.getAnimations().length") == 2
    states = "[...document.querySelectorAll('#list .state')].map((one) => one.innerText)"
    assert page.run(states) == ["ongoing", "to review"]
    assert violations(page, "#list") == []


def test_a_late_word_of_the_last_event_does_not_empty_the_next(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    """A browser reports that a dialog was closed when it has time to."""
    one = told(mill[0], 1)
    page.run(f"location.hash = '#event/{one.id}'")
    page.wait("!!document.querySelector('#event .motion.driven .stage')")
    page.run("document.getElementById('event').dispatchEvent(new Event('close'))")
    assert page.run("location.hash") == f"#event/{one.id}"
    assert page.run("!!document.querySelector('#event .motion.driven .stage')")


def test_a_late_word_of_the_last_moment_does_not_end_the_next(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    page.run(f"location.hash = '#moment/yard/{int(time.time())}'")
    page.wait("document.getElementById('moment').open")
    page.run("document.getElementById('moment').dispatchEvent(new Event('close'))")
    assert page.run("location.hash").startswith("#moment/yard/")
