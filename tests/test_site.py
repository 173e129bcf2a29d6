"""The built documentation in Chromium: it reads well for all, and asks no other server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.accessibility import violations
from tests.browser import CHROMIUM, Page, browser
from tests.pages import ROOT

PROGRAMS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
MKDOCS = shutil.which("mkdocs", path=PROGRAMS)
pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
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


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.mark.parametrize(("name", "width", "scheme"), VIEWS)
def test_a_page_reads_well_and_asks_no_other_server(
    chromium: Page, built: Path, name: str, width: int, scheme: str
) -> None:
    chromium.requests.clear()
    chromium.open(built / name / "index.html", width=width, scheme=scheme)
    assert violations(chromium) == []
    assert chromium.run("document.scrollingElement.scrollWidth") <= width
    assert len(chromium.requests) > 3
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:"))] == []


def test_a_phone_lists_the_sections_above_a_page(chromium: Page, built: Path) -> None:
    listed = "document.querySelector('.on-this-page').checkVisibility()"
    chromium.open(built / "reference" / "cli" / "index.html", width=1280)
    assert not chromium.run(listed)
    chromium.open(built / "reference" / "cli" / "index.html", width=390)
    assert chromium.run(listed)
    assert chromium.run("[...document.querySelectorAll('.on-this-page a')]"
                        ".every((a) => document.getElementById(a.hash.slice(1)))")  # fmt: skip


def test_cells_of_tables_have_room(chromium: Page, built: Path) -> None:
    tallest = "Math.max(...[...document.querySelectorAll('td')].map((cell) => cell.clientHeight))"
    for name in ("reference/settings", "benchmarks/what-holds"):
        chromium.open(built / name / "index.html", width=390)
        assert (name, chromium.run(tallest) < 300) == (name, True)
    chromium.open(built / "paper-map" / "index.html", width=1280)
    assert chromium.run("[...document.querySelectorAll('.md-typeset__scrollwrap')]"
                        ".every((table) => table.scrollWidth <= table.clientWidth)")  # fmt: skip


def test_the_demo_is_on_the_first_screen(chromium: Page, built: Path) -> None:
    for width, height in ((1280, 720), (390, 844)):
        chromium.open(built / "index.html", width=width, height=height)
        for part in (".hero h1", ".hero picture img", ".hero code"):
            assert chromium.run(
                f"document.querySelector({part!r}).getBoundingClientRect().bottom < innerHeight"
            ), (part, width)


def test_equations_are_set(chromium: Page, built: Path) -> None:
    displayed = inline = 0
    for page in built.rglob("index.html"):
        if 'class="arithmatex"' not in page.read_text("utf-8"):
            continue
        chromium.open(page, width=1280)
        left = chromium.run("[...document.querySelectorAll('.arithmatex')].filter("
                            "(one) => !one.querySelector('.katex')).length")  # fmt: skip
        assert (page.parent.name, left, chromium.run(REFUSED)) == (page.parent.name, 0, [])
        displayed += chromium.run("document.querySelectorAll('.katex-display').length")
        inline += chromium.run("document.querySelectorAll('span.arithmatex').length")
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


def test_the_copy_button_takes_commands_alone(chromium: Page, built: Path) -> None:
    chromium.open(built / "index.html", width=1280)
    copied = chromium.run(
        "[...document.querySelectorAll('.highlight code:has(.gp)')].map((code) => {"
        "code.setAttribute('data-md-copying', ''); const text = code.innerText;"
        "code.removeAttribute('data-md-copying'); return text.trim(); })"
    )
    assert copied[0] == "pip install 'stepvad[train,plots]'"
    assert copied[1].splitlines()[0] == "stepvad benchmark walkers people"
    assert "$" not in "".join(copied)
    assert "AUROC" not in "".join(copied)


def test_every_page_is_in_one_of_five_sections(built: Path) -> None:
    home = (built / "index.html").read_text("utf-8")
    tabs = re.search(r'<nav class="md-tabs".*?</nav>', home, re.DOTALL)
    assert tabs
    names = [name.strip() for name in re.findall(r">([^<>]+)</?a?", tabs[0]) if name.strip()]
    assert names == ["Start", "Guides", "Concepts", "Reference", "Benchmarks"]
