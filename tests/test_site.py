"""The built documentation in Chromium: it reads well for all, and asks no other server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import IN_CHROMIUM, new_page, resize, violations
from tests.pages import ROOT

PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
MKDOCS = shutil.which("mkdocs", path=PROGRAMS)
pytestmark = [
    *IN_CHROMIUM,
    pytest.mark.long,
    pytest.mark.skipif(MKDOCS is None, reason="needs mkdocs: scripts/setup --docs"),
]
PAGES = sorted(
    page.relative_to(ROOT / "docs").with_suffix("").as_posix().removesuffix("index")
    for page in (ROOT / "docs").rglob("*.md")
)
KINDS = ("", "start/falls-at-home", "guides/watch-cameras", "concepts/explanations", "start/faq",
         "reference/api", "reference/cli", "benchmarks/what-holds")  # fmt: skip
"""A page of every kind. These are also shown wide and light; all pages would take five minutes."""
VIEWS = [(name, 390, "dark") for name in PAGES] + [(name, 1280, "light") for name in KINDS]
REFUSED = """
    [...document.querySelectorAll(".katex annotation")].map((one) => one.textContent)
    .filter((tex) => {
        try { katex.renderToString(tex, {throwOnError: true, strict: "error"}); }
        catch { return true; }
    })
"""
"""TeX that KaTeX takes only because a page lets it paint unknown commands red."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as scripts/docs builds it."""
    directory = tmp_path_factory.mktemp("built")
    subprocess.run(
        [str(MKDOCS), "build", "--strict", "--quiet", "--site-dir", directory],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PATH": PROGRAMS},
        check=True,
    )
    return directory


def show(page: Page, built: Path, name: str) -> None:
    page.goto((built / name / "index.html").as_uri())


@pytest.mark.parametrize(("name", "width", "scheme"), VIEWS)
def test_a_page_reads_well_and_asks_no_other_server(
    chromium: Browser, built: Path, name: str, width: int, scheme: str
) -> None:
    page = new_page(chromium, width=width, color_scheme=scheme)
    show(page, built, name)
    assert violations(page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    asked = [one.url for one in page.requests()]
    assert len(asked) > 3
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_a_phone_lists_the_sections_above_a_page(chromium: Browser, built: Path) -> None:
    page = new_page(chromium)
    show(page, built, "reference/cli")
    listed = page.locator(".on-this-page")
    expect(listed).to_be_hidden()
    resize(page, 390)
    expect(listed).to_be_visible()
    assert listed.locator("a").evaluate_all(
        "(all) => all.every((a) => document.getElementById(a.hash.slice(1)))"
    )


def test_cells_of_tables_have_room(chromium: Browser, built: Path) -> None:
    page = new_page(chromium, width=390)
    for name in ("reference/settings", "benchmarks/what-holds"):
        show(page, built, name)
        tall = page.locator("td").evaluate_all("(all) => all.map((one) => one.clientHeight)")
        assert max(tall) < 300, name
    resize(page, 1280)
    show(page, built, "paper-map")
    assert page.locator(".md-typeset__scrollwrap").evaluate_all(
        "(all) => all.every((table) => table.scrollWidth <= table.clientWidth)"
    )


def test_the_demo_is_on_the_first_screen(chromium: Browser, built: Path) -> None:
    page = new_page(chromium)
    for width, height in ((1280, 720), (390, 844)):
        resize(page, width, height)
        show(page, built, "")
        for part in (".hero h1", ".hero picture img", ".hero code"):
            box = page.locator(part).first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < height, (part, width)


def test_equations_are_set(chromium: Browser, built: Path) -> None:
    displayed = inline = 0
    page = new_page(chromium)
    for file in built.rglob("index.html"):
        if 'class="arithmatex"' not in file.read_text("utf-8"):
            continue
        page.goto(file.as_uri())
        left = page.locator(".arithmatex:not(:has(.katex))").count()
        assert (file.parent.name, left, page.evaluate(REFUSED)) == (file.parent.name, 0, [])
        displayed += page.locator(".katex-display").count()
        inline += page.locator("span.arithmatex").count()
    assert displayed >= 10
    assert inline >= 100


def test_no_tex_is_left_in_the_text(built: Path) -> None:
    """A dollar or a command of TeX outside code and equations is an equation that was not set."""
    for page in built.rglob("index.html"):
        shown = re.search(r"<article.*?</article>", page.read_text("utf-8"), re.DOTALL)
        assert shown
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", shown[0], flags=re.DOTALL)
        text = re.sub(r'<(span|div) class="arithmatex">.*?</\1>', "", text, flags=re.DOTALL)
        text = re.sub(r"<[^>]*>", "", text)
        assert re.findall(r".{0,30}(?:\$|\\[()\[\]{}]|\\[a-z]{2,}).{0,30}", text) == [], page


def test_the_copy_button_takes_commands_alone(chromium: Browser, built: Path) -> None:
    page = new_page(chromium)
    show(page, built, "")
    copied = page.evaluate(
        "[...document.querySelectorAll('.highlight code:has(.gp)')].map((code) => {"
        "code.setAttribute('data-md-copying', ''); const text = code.innerText;"
        "code.removeAttribute('data-md-copying'); return text.trim(); })"
    )
    assert copied[0] == "pip install 'stepvad[train,plots]'"
    assert copied[1].splitlines()[0] == "stepvad walkers people"
    assert "$" not in "".join(copied)
    assert "AUROC" not in "".join(copied)


def test_every_page_is_in_one_of_five_sections(built: Path) -> None:
    home = (built / "index.html").read_text("utf-8")
    tabs = re.search(r'<nav class="md-tabs".*?</nav>', home, re.DOTALL)
    assert tabs
    names = [name.strip() for name in re.findall(r">([^<>]+)</?a?", tabs[0]) if name.strip()]
    assert names == ["Start", "Guides", "Concepts", "Reference", "Benchmarks"]
