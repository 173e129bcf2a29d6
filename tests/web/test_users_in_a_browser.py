"""Accounts in Chromium: first log-in, users, links; by keyboard, on a phone, read aloud."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from stepvad.site.accounts import Accounts, link_path
from tests.browser import IN_CHROMIUM, complaints, new_page, resize, violations
from tests.web.sites import PASSWORD, Site, happen, serve, site, with_people

pytestmark = IN_CHROMIUM


@contextmanager
def served(directory: Path, accounts: Accounts) -> Iterator[tuple[Site, str]]:
    with site(directory) as mill:
        server = serve(mill.app(accounts=accounts), "127.0.0.1", 0)
        try:
            yield mill, server.url.rstrip("/")
        finally:
            server.stop()


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[Accounts]:
    with closing(Accounts(tmp_path / "accounts.db")) as made:
        yield made


@pytest.fixture
def mill(tmp_path: Path, accounts: Accounts) -> Iterator[tuple[Site, str]]:
    """A site with one user per role."""
    with_people(accounts)
    with served(tmp_path, accounts) as made:
        yield made


@pytest.fixture
def page(mill: tuple[Site, str], blank: Page) -> Page:
    """A browser in which nobody is logged in."""
    return blank


def type_into(page: Page, *texts: str) -> None:
    """Fill in the fields from the one with the focus on, then press Enter."""
    expect(page.locator("input:focus")).to_be_visible()
    for number, text in enumerate(texts):
        if number:
            page.keyboard.press("Tab")
        page.keyboard.insert_text(text)
    page.keyboard.press("Enter")


def log_in(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}/")
    with page.expect_navigation():
        type_into(page, name, PASSWORD)
    expect(page.locator("body")).to_have_attribute("data-role", re.compile("."))


def open_users(page: Page, url: str) -> None:
    """As an administrator."""
    log_in(page, url, "ada")
    page.goto(f"{url}/users")
    expect(page.locator("#list strong")).to_have_text(["ada", "jan", "lena"])


def test_a_new_site_is_opened_by_its_link(
    accounts: Accounts, tmp_path: Path, chromium: Browser
) -> None:
    key = accounts.first_link()
    assert key is not None
    with served(tmp_path, accounts) as (_, url), new_page(chromium) as page:
        page.goto(url + link_path(key))
        assert violations(page) == []
        with page.expect_navigation():
            type_into(page, "eva", PASSWORD)
        expect(page.locator("body")).to_have_attribute("data-role", "administer")
        expect(page.locator("#me")).to_have_text("eva")
        page.goto(url + link_path(key))
        expect(page.locator("body")).to_contain_text("has been used")


@pytest.mark.parametrize(
    ("name", "marks", "deletes"),
    [("lena", False, False), ("jan", True, False), ("ada", True, True)],
)
def test_the_page_shows_what_a_role_may_do(
    page: Page, mill: tuple[Site, str], name: str, marks: bool, deletes: bool
) -> None:
    one = happen(mill[0], 1)
    log_in(page, mill[1], name)
    page.evaluate(f"location.hash = 'event/{one.id}'")
    expect(page.locator("#event")).to_be_visible()
    expect(page.locator("#event .mark-normal")).to_be_visible(visible=marks)
    expect(page.locator("#event .delete")).to_be_visible(visible=deletes)
    expect(page.locator(".bar nav a[href='/users']")).to_be_visible(visible=deletes)
    complaints(page)  # there is no explanation


def test_users_are_managed_by_keyboard(
    page: Page, mill: tuple[Site, str], accounts: Accounts
) -> None:
    open_users(page, mill[1])
    names, said, sure = page.locator("#list strong"), page.locator("#said"), page.locator("#sure")
    page.locator("#add input").focus()
    type_into(page, "zoe")
    expect(names).to_have_text(["ada", "jan", "lena", "zoe"])
    expect(page.locator("#one-time")).to_be_visible()
    expect(page.locator("#copy")).to_be_focused()
    link = page.locator("#link-url").input_value()
    assert accounts.link(link.partition("=")[2]) is not None
    page.keyboard.press("Enter")
    expect(page.locator("#copy")).to_have_text("Copied")
    page.locator("[data-name=zoe] select").focus()
    page.keyboard.press("ArrowDown")
    expect(said).to_have_text("zoe may judge now.")
    assert accounts.account("zoe").role == "judge"
    remove = page.get_by_label("Remove zoe", exact=True)
    for _ in range(2):
        page.keyboard.press("Tab")
    expect(remove).to_be_focused()
    page.keyboard.press("Enter")
    expect(sure).to_be_visible()
    page.keyboard.press("Escape")
    expect(sure).to_be_hidden()
    assert accounts.find("zoe") is not None
    expect(remove).to_be_focused()
    page.keyboard.press("Enter")
    expect(sure.get_by_text("Remove zoe?")).to_be_focused()
    for button in ("Keep", "Remove"):
        page.keyboard.press("Tab")
        expect(sure.get_by_role("button", name=button)).to_be_focused()
    page.keyboard.press("Enter")
    expect(said).to_have_text("zoe is removed and logged out.")
    expect(names).to_have_text(["ada", "jan", "lena"])
    assert accounts.find("zoe") is None
    expect(page.locator("#entries")).to_contain_text("ada removed user zoe")
    expect(page.locator("#entries")).to_contain_text("ada added user zoe: look")


def test_a_late_word_of_the_last_question_does_not_answer_the_next(
    page: Page, mill: tuple[Site, str], accounts: Accounts
) -> None:
    """A browser reports that a dialog was closed when it has time to."""
    open_users(page, mill[1])
    page.locator("[data-name=jan] .remove").click()
    expect(page.locator("#sure")).to_be_visible()
    page.locator("#sure").dispatch_event("close")
    page.locator("#sure button[value=yes]").click()
    expect(page.locator("#said")).to_have_text("jan is removed and logged out.")
    expect(page.locator("#list strong")).to_have_text(["ada", "lena"])
    assert accounts.find("jan") is None


def test_a_name_that_is_taken_is_said(page: Page, mill: tuple[Site, str]) -> None:
    open_users(page, mill[1])
    page.locator("#add input").focus()
    type_into(page, "jan")
    expect(page.locator("#said")).to_contain_text("taken")
    expect(page.locator("#add [name=name]")).to_be_focused()
    expect(page.locator("#one-time")).to_be_hidden()
    expect(page.locator("[data-name=ada] .remove")).to_be_disabled()
    assert all("409" in said for said in complaints(page))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_pages_fit_and_can_be_read_aloud(
    *,
    page: Page,
    mill: tuple[Site, str],
    accounts: Accounts,
    width: int,
    scheme: Literal["light", "dark"],
) -> None:
    resize(page, width)
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{mill[1]}/login")
    page.locator("details summary").click()
    assert violations(page) == []
    accounts.create("zoe", "look")
    page.goto(mill[1] + link_path(accounts.new_link("zoe")))
    assert violations(page) == []
    log_in(page, mill[1], "ada")
    for path in ("/users", "/password"):
        page.goto(f"{mill[1]}{path}")
        if path == "/users":
            expect(page.locator("#entries li").first).to_be_visible()
            page.locator(".new-link").first.click()
            expect(page.locator("#one-time")).to_be_visible()
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_axe_finds_what_is_wrong(page: Page, mill: tuple[Site, str]) -> None:
    page.goto(f"{mill[1]}/login")
    page.evaluate("document.querySelector('label').remove()")
    assert any(one.startswith("label (critical)") for one in violations(page))
