"""Chromium for the tests, by playwright: started once, with contexts that end with their test."""

from __future__ import annotations

import asyncio
import math
import shutil
import time
from asyncio.events import _set_running_loop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
IN_CHROMIUM = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
"""Marks of tests that open a browser."""
PATIENCE_S = 60.0
SERIOUS = ("serious", "critical")
AXE = """(selector) => axe.run(document.querySelector(selector), { resultTypes: ['violations'] })
  .then((found) => found.violations.map((one) => ({
    id: one.id, impact: one.impact, help: one.help, at: one.nodes[0].html, n: one.nodes.length,
  })))"""


@contextmanager
def launched() -> Iterator[Browser]:
    """The installed Chromium, which finds names of `example.org` on this machine."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--host-resolver-rules=MAP *.example.org 127.0.0.1"]
        )
        try:
            yield browser
        finally:
            browser.close()


def new_page(browser: Browser, *, width: int = 1280, height: int = 800, **options: Any) -> Page:
    """A page in a context of its own, which knows no cookie."""
    made = browser.new_page(
        viewport={"width": width, "height": height}, ignore_https_errors=True, **options
    )
    made.set_default_timeout(PATIENCE_S * 1000)
    return made


def log_in(page: Page, url: str, token: str) -> None:
    """By the form, into which one may type at once."""
    from playwright.sync_api import expect

    page.goto(url)
    expect(page.locator("input[name=token]")).to_be_focused()
    page.keyboard.insert_text(token)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def resize(page: Page, width: int, height: int = 800) -> None:
    page.set_viewport_size({"width": width, "height": height})


def until(page: Page, script: str, again: Callable[[], object] | None = None) -> None:
    """Wait for an expression to be true; playwright's own wait is against the page's policy.

    A push that reaches a worker which is just being stopped is lost: `again` sends it every second.
    """
    late = time.monotonic() + PATIENCE_S
    sent = -math.inf
    while not page.evaluate(script):
        assert time.monotonic() < late, f"waited in vain for {script}"
        if again is not None and time.monotonic() > sent + 1:
            again()
            sent = time.monotonic()
        page.wait_for_timeout(30)


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element that fits has the focus."""
    for _ in range(60):
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"Tab does not lead to {selector}")


def complaints(page: Page) -> list[str]:
    """All that a page wrote to the console, and its errors; they are forgotten."""
    said = [f"{one.type}: {one.text}" for one in page.console_messages()]
    said += [one.message for one in page.page_errors()]
    page.clear_console_messages()
    page.clear_page_errors()
    return said


def violations(page: Page, within: str = "body") -> list[str]:
    """Serious and critical findings of axe in a part of the page, each with the first place.

    axe comes in through the debugger, as the policy of the page lets no other script run.
    """
    if not page.evaluate("typeof window.axe === 'object'"):
        script = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
        page.evaluate(f"{script}; true")
    return [
        f"{one['id']} ({one['impact']}): {one['help']}, {one['n']} times, as in {one['at']}"
        for one in page.evaluate(AXE, within)
        if one["impact"] in SERIOUS
    ]


@pytest.fixture(scope="session")
def _started() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """A browser and its event loop, which lets no other run in its thread: it is set aside."""
    with launched() as browser:
        loop = asyncio.get_running_loop()
        _set_running_loop(None)
        yield browser, loop
        _set_running_loop(loop)


@pytest.fixture
def chromium(_started: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """Chromium; `asyncio.run` has to come before it in a test, or in a thread."""
    browser, loop = _started
    _set_running_loop(loop)
    yield browser
    for context in browser.contexts:
        context.close()
    _set_running_loop(None)


@pytest.fixture
def blank(chromium: Browser) -> Iterator[Page]:
    """An empty page; nothing that a test does with it makes it complain."""
    page = new_page(chromium)
    yield page
    said = complaints(page)
    assert said == [], said
