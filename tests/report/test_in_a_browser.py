"""The page in Chromium: it moves, listens, fits its window, prints and complains of nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from stepvad.report.page import ReportedClip, render
from tests.browser import IN_CHROMIUM, new_page, resize, until

pytestmark = IN_CHROMIUM
FRAME = "Number(document.querySelector('.motion').dataset.frame)"
SEE = "document.querySelector('.stage').scrollIntoView({block: 'center'})"
WATCH = f"""
var seen = new Set();
new MutationObserver(() => seen.add({FRAME})).observe(
  document.querySelector('.motion'), {{attributes: true, attributeFilter: ['data-frame']}}
);
"""


@pytest.fixture(scope="module")
def report(case: ReportedClip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "yard.html"
    path.write_text(render(case), encoding="utf-8")
    return path


@pytest.fixture
def page(blank: Page, report: Path) -> Page:
    """The report, for a reader who wants less motion."""
    blank.emulate_media(reduced_motion="reduce")
    blank.goto(report.as_uri())
    return blank


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_complains_of_nothing(
    blank: Page, report: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    resize(blank, width)
    blank.emulate_media(color_scheme=scheme)
    blank.goto(report.as_uri())
    assert blank.evaluate("document.documentElement.scrollWidth") <= width
    expect(blank.locator(".stage")).to_have_count(20)
    assert {one.url for one in blank.requests()} == {report.as_uri()}


def test_it_plays_and_pauses_by_the_keyboard(page: Page) -> None:
    play = page.locator(".play").first
    play.focus()
    before = page.evaluate(FRAME)
    page.keyboard.press("Space")
    until(page, f"{FRAME} !== {before}")
    expect(play).to_have_text("Pause")
    page.keyboard.press("Space")
    expect(play).to_have_text("Play")
    stopped = page.evaluate(FRAME)
    page.wait_for_timeout(300)
    assert page.evaluate(FRAME) == stopped


def test_the_arrows_seek(page: Page) -> None:
    page.locator(".seek").first.focus()
    bone = page.locator(".stage .bone").first
    before, drawn = page.evaluate(FRAME), bone.get_attribute("d")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(FRAME) == before - 1
    assert bone.get_attribute("d") != drawn


def test_the_normal_motion_can_be_hidden(page: Page) -> None:
    resize(page, 390)
    ghost = page.locator(".stage .ghost").first
    for visibility in ("visible", "hidden", "visible"):
        expect(ghost).to_have_css("visibility", visibility)
        page.locator(".with-ghost").first.click()


def test_it_plays_once_when_seen_but_not_for_who_wants_less_motion(
    page: Page, report: Path
) -> None:
    peak = "JSON.parse(document.querySelector('.motion script').textContent).peak"
    rests = f"{FRAME} === {peak} && document.querySelector('.play').textContent === 'Play'"
    resize(page, 1280, 400)
    page.evaluate(WATCH)
    page.evaluate(SEE)
    page.wait_for_timeout(500)
    assert page.evaluate("seen.size") == 0
    assert page.evaluate(rests)
    page.emulate_media(reduced_motion="no-preference")
    page.goto(report.as_uri())
    page.evaluate(WATCH)
    page.evaluate(SEE)
    until(page, "seen.size > 10")
    until(page, rests)


def test_on_paper_stills_take_the_place_of_motion(page: Page) -> None:
    stage, strip = page.locator(".stage").first, page.locator(".strip").first
    expect(stage).to_be_visible()
    expect(strip).to_be_hidden()
    page.emulate_media(media="print")
    expect(stage).to_be_hidden()
    expect(strip).to_be_visible()
    expect(page.locator(".controls").first).to_be_hidden()


def test_without_scripts_all_but_the_motion_is_there(chromium: Browser, report: Path) -> None:
    page = new_page(chromium, width=390, java_script_enabled=False)
    page.goto(report.as_uri())
    expect(page.locator(".strip").first).to_be_visible()
    expect(page.locator(".stage")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
