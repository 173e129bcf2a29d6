"""What a guard does on the page, in Chromium: see the state of cameras, find, open and judge."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Page, expect

from stepvad.events.record import Mark, Record
from stepvad.explain.event import MotionFrames, Phrase
from stepvad.formats import tracks
from stepvad.site.marks import MarkEffect
from stepvad.site.status import Trouble
from tests.browser import IN_CHROMIUM, log_in, resize, tab_to, violations
from tests.web.sites import (
    TOKEN,
    ServerThread,
    Site,
    crowd,
    explained,
    happen,
    person,
    record,
    serve,
    site,
)

pytestmark = IN_CHROMIUM
YARD = ".camera[data-camera=yard]"


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
def page(mill: tuple[Site, ServerThread], blank: Page) -> Page:
    """The page of that site, logged in, with the wall."""
    log_in(blank, mill[1].url, TOKEN)
    expect(blank.locator(YARD)).to_be_attached()
    return blank


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
    yard = page.locator(YARD)
    banner = yard.locator(".load")
    expect(banner).to_be_hidden()
    with overloaded(mill[0], scored=0, shed=10):
        expect(banner).to_have_text(
            re.compile("^Not watching: all frames.*Most events are missed here")
        )
        expect(banner).to_contain_text("more cores")
        expect(yard.locator(".state")).to_have_text("not watching")
        said = "1 person not judged: seen in 2 of 10 frames"
        expect(yard.locator(".doubt")).to_have_text(said)
        box, people = banner.bounding_box(), yard.locator(".people").bounding_box()
        assert box is not None
        assert people is not None
        assert box["height"] > 20
        assert box["y"] + box["height"] <= people["y"], "it covers nobody"
    assert mill[0].store.events() == []


def test_what_is_wrong_is_in_red_at_the_top_until_it_is_over(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    box = page.locator("#troubles")
    expect(box).to_be_hidden()
    since = datetime(2026, 3, 2, 12, 0, 5).timestamp()
    words = ("events cannot be stored: no space left", "camera door is offline: no answer")
    mill[0].status.troubles([Trouble(one, one, since) for one in words])
    lines = box.locator("p")
    expect(lines).to_have_text(
        [
            "Events cannot be stored: no space left, since 2 Mar, 12:00:05",
            "Camera door is offline: no answer, since 2 Mar, 12:00:05",
        ]
    )
    expect(box).to_have_css("background-color", "rgb(160, 62, 0)")
    assert violations(page) == []
    mill[0].status.troubles([])
    expect(box).to_be_hidden()


def told(site: Site, number: int, **changes: Any) -> Record:
    """An event that is over, with poses of everybody and an explanation."""
    one = record(number, **changes)
    site.store.change("new", one)
    one = one.ended("calm", one.start_time + 5)
    site.store.change("end", one)
    site.store.put_poses(one.id, tracks.to_bytes(crowd()))
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
    states, said = page.locator("#list .state"), page.locator("#event .said")
    expect(states).to_have_text(["to review"] * 3)
    expect(page).to_have_title(re.compile("^3 to review · "))
    expect(page.locator("#to-review")).to_have_text("3 to review")
    expect(page.locator("#list .what").first).to_have_css("font-weight", "700")
    tab_to(page, ".row")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/#event/{second.id}")
    expect(page).to_have_title(re.compile("^2 to review · "))  # a look is a review
    assert set(store.reviews()) == {second.id}
    for key, words in (
        ("r", "Marked as right."),
        ("u", "Mark removed."),
        ("n", "Marked as normal."),
    ):
        page.keyboard.press(key)
        expect(said).to_have_text(words)
    assert store.reviews()[second.id].mark == "normal"
    judged = page.locator("#event .judged")
    page.keyboard.press("j")
    page.wait_for_url(f"**/#event/{first.id}")
    expect(judged).to_have_text(re.compile("^seen"))
    page.keyboard.press("r")
    expect(said).to_have_text("Marked as right.")
    expect(page.locator("#event .next")).to_be_visible()
    tab_to(page, ".next")
    expect(page.locator("#event .next")).to_have_text("Next to review (1)")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/#event/{third.id}")
    expect(judged).to_have_text(re.compile("^seen"))
    page.keyboard.press("Escape")
    expect(page.locator("#event")).to_be_hidden()
    expect(page.locator(f'#list li[data-id="{third.id}"] .row')).to_be_focused()
    expect(states).to_have_text(["seen", "was normal", "right alert"])
    expect(page).not_to_have_title(re.compile("to review"))
    expect(page.locator("#to-review")).to_be_hidden()


def test_the_list_is_filtered_by_review_zone_score_and_words(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    low = told(mill[0], 1, why="left arm raised", top_score=3.5)
    high = told(mill[0], 2, why="whole body crouched", zones=("lane",), top_score=9.0)
    mill[0].store.mark(low.id, "normal", 5.0)
    page.locator("#filters summary").click()

    def check_listed(*ids: str) -> None:
        expect(page.locator("#list li")).to_have_count(len(ids))
        for row, id in zip(page.locator("#list li").all(), ids, strict=True):
            expect(row).to_have_attribute("data-id", id)

    check_listed(high.id, low.id)
    for name, value, found in (
        ("review", "to_review", [high.id]),
        ("review", "normal", [low.id]),
        ("review", "right", []),
        ("zone", "lane", [high.id]),
        ("least", "2", [high.id]),
    ):
        page.select_option(f"#filters [name={name}]", value)
        check_listed(*found)
        page.select_option(f"#filters [name={name}]", "")
        check_listed(high.id, low.id)
    page.fill("#filters [name=words]", "ARM")
    check_listed(low.id)
    page.fill("#filters [name=words]", "")
    check_listed(high.id, low.id)
    page.locator("#to-review").click()
    check_listed(high.id)
    for words in ("3.0× the limit", "yard (lane)", "Whole body crouched"):
        expect(page.locator("#list .row")).to_contain_text(words)


def test_the_replay_shows_everybody_and_drives_the_close_up(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    mill[0].status.frame("yard", 1, time.time(), (640, 360), [], {})
    one = told(mill[0], 2)
    page.evaluate(f"location.hash = '#event/{one.id}'")
    expect(page.locator("#event .replay")).to_be_visible()
    expect(page.locator("#event .motion.driven .stage")).to_be_attached()
    motion, seek = page.locator("#event .motion"), page.locator("#event .scene .seek")
    seek.fill("62")
    expect(motion).to_have_attribute("data-frame", "2")
    expect(page.locator("#event .scene .clock")).to_have_text("1.8 s before")
    colours = page.evaluate(COLOURS)
    assert colours["strong"] > 20  # the one who decided
    assert colours["faint"] > 20  # somebody else
    seek.fill("0")
    expect(motion).to_contain_class("away")
    shown = page.locator("#event").inner_text()
    for jargon in ("σ", "noise", "energy", "component", "interpolated", "threshold"):
        assert jargon not in shown
    page.locator("#event .experts summary").click()
    expect(page.locator("#event .experts")).to_contain_text("σ", use_inner_text=True)


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
    line, moment = page.locator(f"{YARD} .scores"), page.locator("#moment")
    expect(line).to_have_attribute("aria-label", re.compile("Enter opens a moment"))
    tab_to(page, ".scores")
    for _ in range(6):
        page.keyboard.press("ArrowLeft")
    assert (line.get_attribute("aria-valuetext") or "").count(":") == 2
    page.keyboard.press("Enter")
    expect(moment.locator(".replay")).to_be_visible()
    facts = moment.locator(".facts")
    expect(facts).to_have_text("No event at this time. In these seconds: 1 person.")
    page.keyboard.press("Escape")
    expect(moment).to_be_hidden()
    expect(line).to_be_focused()
    line.click(position={"x": 20, "y": 20})
    expect(facts).to_contain_text("no longer in memory")
    expect(moment.locator(".scene")).to_be_hidden()


def test_a_moment_of_an_event_opens_the_event(page: Page, mill: tuple[Site, ServerThread]) -> None:
    one = told(mill[0], 3)
    page.evaluate(f"location.hash = '#moment/yard/{one.start_time + 1}'")
    page.wait_for_url(f"**/#event/{one.id}")
    expect(page.locator("#event")).to_be_visible()
    expect(page.locator("#moment")).to_be_hidden()


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious(page: Page, mill: tuple[Site, ServerThread], width: int) -> None:
    resize(page, width)
    one = told(mill[0], 2)
    told(mill[0], 1)
    mill[0].store.mark(record(1).id, "normal", 5.0)
    expect(page.locator("#list .state")).to_have_count(2)
    with overloaded(mill[0], scored=2, shed=8):
        expect(page.locator(f"{YARD} .load")).to_be_visible()
        assert violations(page) == []
        page.evaluate(f"location.hash = '#event/{one.id}'")
        expect(page.locator("#event .motion.driven .stage")).to_be_attached()
        page.keyboard.press("r")
        expect(page.locator("#event .said")).to_have_text("Marked as right.")
        assert violations(page, "#event") == []
        page.evaluate(f"location.hash = '#moment/yard/{int(time.time())}'")
        expect(page.locator("#moment .replay")).to_be_attached()
        assert violations(page, "#moment") == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_new_event_can_be_read_from_its_first_moment(
    page: Page, mill: tuple[Site, ServerThread], scheme: Literal["light", "dark"]
) -> None:
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("#none")).to_have_text("No events yet.")
    happen(mill[0], 1)
    happen(mill[0], 2, over=False)
    expect(page.locator("#list .fresh")).to_have_count(2)
    page.evaluate(
        "document.getAnimations().forEach((one) => { one.pause(); one.currentTime = 0; })"
    )
    assert page.evaluate("document.getAnimations().length") == 2
    assert page.locator("#list .state").all_inner_texts() == ["ongoing", "to review"]
    assert violations(page, "#list") == []


def test_a_late_word_of_the_last_event_does_not_empty_the_next(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    """A browser reports that a dialog was closed when it has time to."""
    one = told(mill[0], 1)
    page.evaluate(f"location.hash = '#event/{one.id}'")
    expect(page.locator("#event .motion.driven .stage")).to_be_attached()
    page.evaluate("document.getElementById('event').dispatchEvent(new Event('close'))")
    assert page.evaluate("location.hash") == f"#event/{one.id}"
    expect(page.locator("#event .motion.driven .stage")).to_be_attached()


def test_a_late_word_of_the_last_moment_does_not_end_the_next(
    page: Page, mill: tuple[Site, ServerThread]
) -> None:
    page.evaluate(f"location.hash = '#moment/yard/{int(time.time())}'")
    expect(page.locator("#moment")).to_be_visible()
    page.evaluate("document.getElementById('moment').dispatchEvent(new Event('close'))")
    assert page.evaluate("location.hash").startswith("#moment/yard/")


class Follower:
    """What marks would do, where one alert is too like a right one."""

    def __init__(self, refused: str) -> None:
        self.refused = refused

    def effect(self, id: str, mark: Mark | None) -> MarkEffect:
        if mark == "normal" and id == self.refused:
            words, said = "This would hide 1 right alert.", "Not passed over: too like it."
            return MarkEffect(mark=mark, words=words, said=said, hides=("other",))
        return MarkEffect(mark=mark, words="This is usual here.", said=f"{mark} of 2.4.")


def test_what_a_tap_does_is_said_before_it_and_after_it_and_can_be_undone(
    tmp_path: Path, blank: Page
) -> None:
    with site(tmp_path) as made:
        like, other = told(made, 1), told(made, 2)
        made.marks = Follower(like.id)  # type: ignore[assignment]
        server = serve(made.app(), "127.0.0.1", 0)
        try:
            log_in(blank, server.url, TOKEN)
            effect, said = (blank.locator(f"#event .{kind}") for kind in ("effect", "said"))
            normal = blank.locator("#event .mark-normal")
            blank.evaluate(f"location.hash = 'event/{other.id}'")
            expect(effect).to_have_text("Normal: This is usual here.")
            expect(normal).to_have_text("This was normal")
            normal.click()
            expect(said).to_have_text("normal of 2.4.")
            blank.locator("#event .undo").click()
            expect(said).to_have_text("None of 2.4.")
            blank.evaluate(f"location.hash = 'event/{like.id}'")
            expect(effect).to_have_text("Normal: This would hide 1 right alert.")
            expect(normal).to_have_text("Keep raising both")
            assert made.store.marked() == {}
            normal.click()
            expect(said).to_have_text("Not passed over: too like it.")
        finally:
            blank.goto("about:blank")
            server.stop()
