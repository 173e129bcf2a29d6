"""The page in Chromium: it shows people as they move, events as they come, and bears a phone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from stepvad.detector import Detector
from stepvad.explain.event import PartShare
from tests.browser import IN_CHROMIUM, complaints, log_in, new_page, resize, tab_to, until
from tests.report.pages import joined_walkers
from tests.web.feeding import living
from tests.web.sites import TOKEN, ServerThread, Site, happen, person, record, serve

pytestmark = IN_CHROMIUM
DRAWN = "Number(document.querySelector('.camera')?.dataset.drawn ?? 0)"
ROWS = "document.querySelectorAll('#list li').length"
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


@pytest.fixture
def page(blank: Page, life: tuple[Site, ServerThread]) -> Page:
    """The page of the site, logged in, with people who move and an event."""
    enter(blank, life[1].url)
    until(blank, f"{ROWS} > 0")
    return blank


def enter(page: Page, url: str) -> None:
    """Log in through the form, and wait until the wall moves."""
    log_in(page, url, TOKEN)
    until(page, f"location.pathname === '/' && {DRAWN} > 2")


def open_first(page: Page) -> None:
    """Open an event that is over, by its link."""
    page.locator("#list li[data-open=false] a").first.click()
    expect(page.locator("#event .stage")).to_be_visible()


def test_the_wall_moves(page: Page) -> None:
    drawn = page.evaluate(DRAWN)
    until(page, f"{DRAWN} > {drawn} + 5")
    until(page, f"{PAINTED} > 300")  # more than the name of the zone
    expect(page.locator("#link")).to_have_text("Live")
    expect(page.locator(".camera .state")).to_have_text("online")


def test_an_event_appears_by_itself_and_is_said_aloud(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    page.evaluate("document.getElementById('news').textContent = ''; window.same = true")
    one = happen(life[0], 9000 + int(time.time()) % 1000)
    expect(page.locator(f'#list li[data-id="{one.id}"]')).to_be_attached()
    expect(page.locator("#news")).to_contain_text("camera yard")
    assert page.evaluate("window.same") is True
    life[0].store.delete(ids=[one.id])
    expect(page.locator(f'#list li[data-id="{one.id}"]')).not_to_be_attached()


def test_a_score_that_does_not_count_is_shown_with_the_reason(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    status, card = life[0].status, page.locator(".camera[data-camera=gate]")
    doubt, line = card.locator(".doubt"), card.locator(".scores")
    status.camera("gate", rate=10.0, threshold=3.0, model="walkers", zones={})
    try:
        expect(doubt).to_be_attached()
        expect(doubt).to_be_hidden()
        status.frame("gate", 1, time.time(), (640, 360), [person(1)], {1: 9.0}, {1: 0.3})
        expect(doubt).to_be_visible()
        expect(doubt).to_have_text("1 person not judged: seen in 3 of 10 frames")
        line.evaluate("(line) => { line.ariaLabel = ''; }")  # until it is drawn again
        expect(line).to_have_attribute("aria-label", re.compile("none yet"))
        status.frame("gate", 2, time.time(), (640, 360), [person(1)], {1: 9.0})
        expect(doubt).to_be_hidden()
        expect(line).to_have_attribute("aria-label", re.compile(r"highest 3\.0"))
    finally:
        del status._cameras["gate"]


def test_links_on_a_phone_are_not_broken_within_words(page: Page) -> None:
    resize(page, 280)
    links = page.locator(".bar nav a:not([hidden])")
    heights = links.evaluate_all("(all) => all.map((one) => one.offsetHeight)")
    assert len(heights) >= 4
    assert max(heights) <= 40
    assert page.evaluate("document.documentElement.scrollWidth") <= 280


def test_an_empty_list_says_whether_there_are_none_or_none_like_that(page: Page) -> None:
    none = page.locator("#none")
    expect(none).to_be_hidden()
    expect(none).to_have_text("No events yet.")
    page.fill("#filters [name=words]", "xyzzy")
    expect(none).to_be_visible()
    expect(none).to_have_text("No matching events.")


def test_an_event_says_how_much_was_interpolated(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    one = record(8000 + int(time.time()) % 1000, seen=0.7)
    some = next(iter(life[0].explanations.values()))
    life[0].explanations[one.id] = replace(some, score=one.top_score)
    life[0].store.change("new", one)
    life[0].store.change("end", one.ended("calm", one.start_time + 5))
    page.evaluate(f"location.hash = '#event/{one.id}'")
    said = "uncertain: 3 of 10 frames at the peak were interpolated"
    expect(page.locator("#event .facts")).to_contain_text(said)
    expect(page.locator("#event .stage")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#event")).to_be_hidden()
    life[0].store.delete(ids=[one.id])


def test_an_event_is_explained_by_motion_words_and_numbers(page: Page) -> None:
    open_first(page)
    frames = {page.evaluate(FRAME)}
    late = time.monotonic() + 30
    while len(frames) < 4 and time.monotonic() < late:
        frames.add(page.evaluate(FRAME))
    assert len(frames) >= 4
    assert page.locator("#event .words li").count() >= 1
    assert page.locator("#event .parts rect").count() >= 1
    expect(page.locator("#event .stage .ghost")).to_have_count(1)
    expect(page.locator("#event .facts")).to_contain_text("the limit")


def test_an_explanation_that_comes_late_appears_by_itself(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    site = life[0]
    one = happen(site, 8000)
    some = next(iter(site.explanations.values()))
    page.evaluate(f"location.hash = 'event/{one.id}'")
    expect(page.locator("#event .motion")).to_contain_text("There is no")
    site.explanations[one.id] = replace(some, score=one.top_score)
    expect(page.locator("#event .stage")).to_be_visible()
    page.evaluate("location.hash = 'events'")
    expect(page.locator("#event")).to_be_hidden()  # else it asks for an event that is gone
    site.store.delete(ids=[one.id])
    assert all("404" in said for said in complaints(page))


def test_shares_of_several_views_are_shown_without_noise_scales(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    site = life[0]
    one = happen(site, 8001)
    some = next(iter(site.explanations.values()))
    views = PartShare("pose", 0.4), PartShare("motion", 0.55), PartShare("place", 0.05)
    site.explanations[one.id] = replace(some, score=one.top_score, views=views)
    page.evaluate(f"location.hash = 'event/{one.id}'")
    expect(page.locator("#event .stage")).to_be_visible()
    told = page.locator("#event dl")
    expect(told).to_contain_text("pose 40 %, motion 55 %, place 5 %")
    expect(told).not_to_contain_text("noise")
    page.evaluate("location.hash = 'events'")
    expect(page.locator("#event")).to_be_hidden()
    site.store.delete(ids=[one.id])


def test_an_event_is_marked_as_normal_and_that_is_undone(
    page: Page, life: tuple[Site, ServerThread]
) -> None:
    open_first(page)
    id_ = page.evaluate("decodeURIComponent(location.hash.split('/')[1])")
    page.locator("#event .mark-normal").click()
    expect(page.locator("#event .said")).to_have_text("Marked as normal.")
    assert id_ in life[0].store.marked()
    row = page.locator(f'#list li[data-id="{id_}"]')
    expect(row).to_have_attribute("data-mark", "normal")
    page.locator("#event .undo").click()
    expect(page.locator("#event .said")).to_have_text("Mark removed.")
    assert id_ not in life[0].store.marked()


def test_a_keyboard_is_enough(page: Page) -> None:
    expect(page.locator("#list li[data-open=false] a").first).to_be_attached()
    page.evaluate("document.body.focus()")
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUS) == "Skip to the cameras"
    tab_to(page, ".row")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    row = page.evaluate("document.activeElement.getAttribute('href')")
    page.keyboard.press("Enter")
    expect(page.locator("#event-title")).to_be_focused()
    tab_to(page, ".mark-normal")
    page.keyboard.press("Space")
    expect(page.locator("#event .said")).to_have_text("Marked as normal.")
    page.keyboard.press("Space")
    expect(page.locator("#event .said")).to_have_text("Mark removed.")
    page.keyboard.press("Escape")
    expect(page.locator("#event")).to_be_hidden()
    assert page.evaluate("document.activeElement.getAttribute('href')") == row


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_it_fits_and_asks_nobody_else(
    page: Page, life: tuple[Site, ServerThread], width: int, scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    resize(page, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    words = "document.getElementById('counts-words').getBoundingClientRect()"
    assert page.evaluate(f"{words}.right") <= width
    open_first(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    inside = "document.getElementById('event')"
    assert page.evaluate(f"{inside}.scrollWidth <= {inside}.clientWidth")
    hosts = {urlsplit(one.url).netloc for one in page.requests()}
    assert hosts <= {urlsplit(life[1].url).netloc, ""}
    assert len(page.requests()) > 5


def test_events_are_filtered_by_camera(page: Page, life: tuple[Site, ServerThread]) -> None:
    life[0].status.camera("gate", rate=10.0, threshold=3.0, model="walkers", zones={})
    expect(page.locator(".camera")).to_have_count(2)
    rows, none = page.locator("#list li"), page.locator("#none")
    page.locator("#filters summary").click()
    page.select_option("#filters [name=camera]", "gate")
    expect(rows).to_have_count(0)
    expect(none).to_be_visible()
    page.select_option("#filters [name=camera]", "yard")
    expect(rows.first).to_be_visible()
    expect(none).to_be_hidden()


def test_a_camera_that_is_gone_is_said_to_be(page: Page, life: tuple[Site, ServerThread]) -> None:
    life[0].status.camera("roof", rate=10.0, threshold=3.0, model="walkers", zones={})
    life[0].status.state("roof", "offline", "no route to it", time.time() - 90)
    card = page.locator("[data-camera=roof]")
    expect(card.locator(".state")).to_have_text(re.compile("^offline for 1"))
    expect(card.locator(".veil")).to_have_text("no route to it")


def test_a_lost_connection_is_said_and_a_restart_logs_nobody_out(
    small_model: Detector, tmp_path: Path, chromium: Browser
) -> None:
    clips = {"yard": joined_walkers(1, seed=4)}
    with living(tmp_path, small_model, clips) as (site, server), new_page(chromium) as page:
        enter(page, server.url)
        lost = page.locator("#lost")
        expect(lost).to_be_hidden()
        server.stop()
        expect(lost).to_be_visible()
        expect(lost).to_contain_text("lost")
        drawn = page.evaluate(DRAWN)
        again = serve(site.app(), "127.0.0.1", server.port)
        try:
            expect(lost).to_be_hidden()
            until(page, f"{DRAWN} > {drawn}")
            expect(page.locator("#link")).to_have_text("Live")
        finally:
            page.goto("about:blank")
            again.stop()
