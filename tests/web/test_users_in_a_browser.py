"""Accounts in Chromium: first log-in, users, links; by keyboard, on a phone, read aloud."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stepvad.accounts.accounts import Accounts, link_path
from stepvad.web import serve
from tests.accessibility import violations
from tests.browser import CHROMIUM, Page, browser
from tests.web.people import PASSWORD, with_people
from tests.web.sites import Site, happen, site

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
COMPLETE = "document.readyState === 'complete'"
NAMES = "[...document.querySelectorAll('#list strong')].map((one) => one.textContent).join()"
SAID = "document.getElementById('said').textContent"
FOCUS = "document.activeElement.ariaLabel || document.activeElement.textContent.trim()"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


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
def mill(tmp_path: Path, accounts: Accounts, chromium: Page) -> Iterator[tuple[Site, str]]:
    """A site with one user per role, and a browser without complaints."""
    with_people(accounts)
    with served(tmp_path, accounts) as made:
        yield made
        chromium.call("Page.navigate", url="about:blank")


def go(page: Page, url: str, width: int = 1280, scheme: str = "light") -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.call("Emulation.setEmulatedMedia", features=features)
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=width, height=800, deviceScaleFactor=1, mobile=False,
    )  # fmt: skip
    page.call("Page.navigate", url="about:blank")
    page.call("Page.navigate", url=url)
    page.wait(f"location.href !== 'about:blank' && {COMPLETE}")


def type_into(page: Page, *texts: str) -> None:
    """Fill in the fields from the one with the focus on, then press Enter."""
    for number, text in enumerate(texts):
        if number:
            page.press("Tab", "Tab", number=9)
        page.call("Input.insertText", text=text)
    page.run("window.old = true")
    page.press("Enter", "Enter", "\r")


def log_in(page: Page, url: str, name: str) -> None:
    page.call("Network.clearBrowserCookies")
    go(page, f"{url}/")
    page.wait(f"location.pathname === '/login' && {COMPLETE}")
    type_into(page, name, PASSWORD)
    page.wait(f"location.pathname === '/' && {COMPLETE} && !!document.body.dataset.role")
    page.complaints.clear()


def shown(page: Page, selector: str) -> bool:
    style = f"getComputedStyle(document.querySelector({selector!r})).display"
    return bool(page.run(style) != "none")


def test_a_new_site_is_opened_by_its_link(
    chromium: Page, accounts: Accounts, tmp_path: Path
) -> None:
    key = accounts.first_link()
    assert key is not None
    with served(tmp_path, accounts) as (_, url):
        chromium.call("Network.clearBrowserCookies")
        go(chromium, url + link_path(key))
        assert violations(chromium) == []
        type_into(chromium, "eva", PASSWORD)
        chromium.wait(f"location.pathname === '/' && {COMPLETE} && !!document.body.dataset.role")
        assert chromium.run("document.body.dataset.role") == "administer"
        assert chromium.run("document.getElementById('me').textContent") == "eva"
        go(chromium, url + link_path(key))
        assert "has been used" in chromium.run("document.body.textContent")
        chromium.call("Page.navigate", url="about:blank")


@pytest.mark.parametrize(
    ("name", "marks", "deletes"),
    [("lena", False, False), ("jan", True, False), ("ada", True, True)],
)
def test_the_page_shows_what_a_role_may_do(
    chromium: Page, mill: tuple[Site, str], name: str, marks: bool, deletes: bool
) -> None:
    one = happen(mill[0], 1)
    log_in(chromium, mill[1], name)
    chromium.run(f"location.hash = 'event/{one.id}'")
    chromium.wait("document.getElementById('event').open")
    assert shown(chromium, "#event .mark-normal") == marks
    assert shown(chromium, "#event .delete") == deletes
    assert shown(chromium, ".bar nav a[href='/users']") == deletes


def test_users_are_managed_by_keyboard(
    chromium: Page, mill: tuple[Site, str], accounts: Accounts
) -> None:
    log_in(chromium, mill[1], "ada")
    go(chromium, f"{mill[1]}/users")
    chromium.wait(f"{NAMES} === 'ada,jan,lena'")
    chromium.run("document.querySelector('#add input').focus()")
    type_into(chromium, "zoe")
    chromium.wait(f"{NAMES} === 'ada,jan,lena,zoe'")
    chromium.wait("!document.getElementById('one-time').hidden")
    assert chromium.run(FOCUS) == "Copy"
    link = chromium.run("document.getElementById('link-url').value")
    assert accounts.link(link.partition("=")[2]) is not None
    chromium.press("Enter", "Enter", "\r")
    chromium.wait("document.getElementById('copy').textContent === 'Copied'")
    row = "document.querySelector('[data-name=zoe]')"
    chromium.run(f"{row}.querySelector('select').focus()")
    chromium.press("ArrowDown", "ArrowDown", number=40)
    chromium.wait(f"{SAID} === 'zoe may judge now.'")
    assert accounts.account("zoe").role == "judge"
    for _ in range(2):
        chromium.press("Tab", "Tab", number=9)
    assert chromium.run(FOCUS) == "Remove zoe"
    chromium.press("Enter", "Enter", "\r")
    chromium.wait("document.getElementById('sure').open")
    chromium.press("Escape", "Escape", number=27)
    chromium.wait("!document.getElementById('sure').open")
    assert accounts.find("zoe") is not None
    assert chromium.run(FOCUS) == "Remove zoe"
    chromium.press("Enter", "Enter", "\r")
    chromium.wait("document.getElementById('sure').open")
    chromium.wait(f"({FOCUS}) === 'Remove zoe?'")
    for button in ("Keep", "Remove"):
        chromium.press("Tab", "Tab", number=9)
        chromium.wait(f"({FOCUS}) === '{button}'")
    chromium.press("Enter", "Enter", "\r")
    chromium.wait(f"{SAID} === 'zoe is removed and logged out.' && {NAMES} === 'ada,jan,lena'")
    assert accounts.find("zoe") is None
    entries = chromium.run("document.getElementById('entries').textContent")
    assert "ada removed user zoe" in entries
    assert "ada added user zoe: look" in entries
    assert chromium.complaints == []


def test_a_late_word_of_the_last_question_does_not_answer_the_next(
    chromium: Page, mill: tuple[Site, str], accounts: Accounts
) -> None:
    """A browser reports that a dialog was closed when it has time to."""
    log_in(chromium, mill[1], "ada")
    go(chromium, f"{mill[1]}/users")
    chromium.wait(f"{NAMES} === 'ada,jan,lena'")
    chromium.run("document.querySelector('[data-name=jan] .remove').click()")
    chromium.wait("document.getElementById('sure').open")
    chromium.run("document.getElementById('sure').dispatchEvent(new Event('close'))")
    chromium.run("document.querySelector('#sure button[value=yes]').click()")
    chromium.wait(f"{SAID} === 'jan is removed and logged out.' && {NAMES} === 'ada,lena'")
    assert accounts.find("jan") is None


def test_a_name_that_is_taken_is_said(chromium: Page, mill: tuple[Site, str]) -> None:
    log_in(chromium, mill[1], "ada")
    go(chromium, f"{mill[1]}/users")
    chromium.wait(f"{NAMES} === 'ada,jan,lena'")
    chromium.run("document.querySelector('#add input').focus()")
    type_into(chromium, "jan")
    chromium.wait(f"{SAID}.includes('taken')")
    assert chromium.run("document.activeElement.name") == "name"
    assert chromium.run("document.getElementById('one-time').hidden")
    assert chromium.run("document.querySelector('[data-name=ada] .remove').disabled")


def test_others_are_not_shown_the_users(chromium: Page, mill: tuple[Site, str]) -> None:
    log_in(chromium, mill[1], "jan")
    go(chromium, f"{mill[1]}/users")
    said = chromium.run("document.body.textContent")
    assert "expected the role administer, got judge" in said


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_pages_fit_and_can_be_read_aloud(
    chromium: Page, mill: tuple[Site, str], accounts: Accounts, width: int, scheme: str
) -> None:
    chromium.call("Network.clearBrowserCookies")
    go(chromium, f"{mill[1]}/login", width, scheme)
    chromium.run("document.querySelector('details').open = true")
    assert violations(chromium) == []
    accounts.add("zoe", "look")
    go(chromium, mill[1] + link_path(accounts.new_link("zoe")), width, scheme)
    assert violations(chromium) == []
    log_in(chromium, mill[1], "ada")
    for path in ("/users", "/password"):
        go(chromium, f"{mill[1]}{path}", width, scheme)
        if path == "/users":
            chromium.wait("document.querySelectorAll('#entries li').length > 0")
            chromium.run("document.querySelector('.new-link').click()")
            chromium.wait("!document.getElementById('one-time').hidden")
        assert violations(chromium) == []
        assert chromium.run("document.documentElement.scrollWidth") <= width


def test_axe_finds_what_is_wrong(chromium: Page, mill: tuple[Site, str]) -> None:
    chromium.call("Network.clearBrowserCookies")
    go(chromium, f"{mill[1]}/login")
    chromium.run("document.querySelector('label').remove()")
    assert any(one.startswith("label (critical)") for one in violations(chromium))
