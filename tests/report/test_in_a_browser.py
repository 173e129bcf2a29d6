"""The page in Chromium: it moves, listens, fits its window, prints and complains of nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvad.report import ReportedClip, render
from tests.browser import CHROMIUM, Page, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
FRAME = "Number(document.querySelector('.motion').dataset.frame)"
SEE = "document.querySelector('.stage').scrollIntoView({block: 'center'})"
WATCH = f"""
var seen = new Set();
new MutationObserver(() => seen.add({FRAME})).observe(
  document.querySelector('.motion'), {{attributes: true, attributeFilter: ['data-frame']}}
);
"""
GHOST = "getComputedStyle(document.querySelector('.stage .ghost')).visibility"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def report(case: ReportedClip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "yard.html"
    path.write_text(render(case), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def content(chromium: Page) -> Iterator[None]:
    """Nothing that a test does makes the page complain."""
    yield
    assert chromium.complaints == []


def displayed(chromium: Page, selector: str) -> bool:
    return bool(
        chromium.run(f"getComputedStyle(document.querySelector('{selector}')).display !== 'none'")
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_and_complains_of_nothing(
    chromium: Page, report: Path, width: int, scheme: str
) -> None:
    chromium.open(report, width=width, scheme=scheme)
    assert chromium.run("document.documentElement.scrollWidth") <= width
    assert chromium.run("document.querySelectorAll('.stage').length") == 20
    assert {*chromium.requests} == {report.as_uri()}


def test_it_plays_and_pauses_by_the_keyboard(chromium: Page, report: Path) -> None:
    chromium.open(report, width=1280, motion="reduce")
    chromium.run("document.querySelector('.play').focus()")
    before = chromium.run(FRAME)
    chromium.press(" ", "Space", " ")
    chromium.wait(f"{FRAME} !== {before}")
    assert chromium.run("document.querySelector('.play').textContent") == "Pause"
    chromium.press(" ", "Space", " ")
    assert chromium.run("document.querySelector('.play').textContent") == "Play"
    stopped = chromium.run(FRAME)
    chromium.run("new Promise(done => setTimeout(done, 300))", wait=True)
    assert chromium.run(FRAME) == stopped


def test_the_arrows_seek(chromium: Page, report: Path) -> None:
    chromium.open(report, width=1280, motion="reduce")
    chromium.run("document.querySelector('.seek').focus()")
    before = chromium.run(FRAME)
    drawn = chromium.run("document.querySelector('.stage .bone').getAttribute('d')")
    chromium.press("ArrowLeft", "ArrowLeft")
    assert chromium.run(FRAME) == before - 1
    assert chromium.run("document.querySelector('.stage .bone').getAttribute('d')") != drawn


def test_the_normal_motion_can_be_hidden(chromium: Page, report: Path) -> None:
    chromium.open(report, width=390, motion="reduce")
    assert chromium.run(GHOST) == "visible"
    chromium.run("document.querySelector('.with-ghost').click()")
    assert chromium.run(GHOST) == "hidden"
    chromium.run("document.querySelector('.with-ghost').click()")
    assert chromium.run(GHOST) == "visible"


def test_it_plays_once_when_seen_but_not_for_who_wants_less_motion(
    chromium: Page, report: Path
) -> None:
    peak = "JSON.parse(document.querySelector('.motion script').textContent).peak"
    chromium.open(report, width=1280, height=400)
    chromium.run(WATCH)
    chromium.run(SEE)
    chromium.wait("seen.size > 10")
    rests = f"{FRAME} === {peak} && document.querySelector('.play').textContent === 'Play'"
    chromium.wait(rests)
    chromium.open(report, width=1280, height=400, motion="reduce")
    chromium.run(WATCH)
    chromium.run(SEE)
    chromium.run("new Promise(done => setTimeout(done, 500))", wait=True)
    assert chromium.run("seen.size") == 0
    assert chromium.run(rests)


def test_on_paper_stills_take_the_place_of_motion(chromium: Page, report: Path) -> None:
    chromium.open(report, width=1280)
    assert (displayed(chromium, ".stage"), displayed(chromium, ".strip")) == (True, False)
    chromium.call("Emulation.setEmulatedMedia", media="print")
    assert (displayed(chromium, ".stage"), displayed(chromium, ".strip")) == (False, True)
    assert not displayed(chromium, ".controls")
    chromium.call("Emulation.setEmulatedMedia", media="")


def test_without_scripts_all_but_the_motion_is_there(chromium: Page, report: Path) -> None:
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(report, width=390)
        assert displayed(chromium, ".strip")
        assert chromium.run("document.querySelector('.stage')") is None
        assert chromium.run("document.documentElement.scrollWidth") <= 390
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
