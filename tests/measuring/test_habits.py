"""Phrases to keep out of the documentation: found where they are, and on none of its pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from measuring.habits import Habits, in_messages, in_pages, in_web, read_habits
from tests.pages import ROOT

HABITS = ROOT / "docs" / "data" / "habits.toml"


@pytest.fixture(scope="module")
def habits() -> Habits:
    return read_habits(HABITS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository without any phrase."""
    names = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/page.md")
    for name in (*names, "src/code.py", "src/stepvad/web/static/page.js"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


def test_no_page_has_a_phrase_of_the_list(habits: Habits) -> None:
    found = [one for one in in_pages(ROOT, habits) if one.place not in habits.later]
    assert [f"{one.place}:{one.line}: {one.text}; write {one.instead}" for one in found] == []


def test_the_page_of_a_site_has_no_phrase_of_the_list(habits: Habits) -> None:
    assert [f"{one.place}:{one.line}: {one.text}" for one in in_web(ROOT, habits)] == []


def test_pages_that_may_wait_exist(habits: Habits) -> None:
    assert [name for name in habits.later if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (3, "# Page\n\nThe log tells it."),
        (2, "It is\nso\nmany."),
        (1, "Promised is nothing."),
        (3, "# Page\n\n* Who comes late waits."),
        (3, "# Page\n\nA camera that is\naway."),
    ],
)
def test_a_phrase_is_found_in_its_line(tree: Path, habits: Habits, line: int, text: str) -> None:
    (tree / "docs/page.md").write_text(text)
    (found,) = in_pages(tree, habits)
    assert (found.place, found.line) == ("docs/page.md", line)


@pytest.mark.parametrize(
    "text",
    [
        "Run `stepvad tells`.",
        "```sh\nit tells\n```\n",
        "They tell people apart, and a person stands still.",
        "## What it is\n\nA page.",
        "What is it? A page.",
        "<!-- it tells -->",
    ],
)
def test_code_and_allowed_text_are_left_alone(tree: Path, habits: Habits, text: str) -> None:
    (tree / "docs/page.md").write_text(text)
    assert [*in_pages(tree, habits)] == []


def test_messages_are_those_of_errors_and_calls_that_print(tree: Path, habits: Habits) -> None:
    (tree / "src/code.py").write_text(
        '"""It tells."""\n'
        "name = 'it tells'\n"
        "logger.warning('%s tells', name)\n"
        "raise ValueError(f'{name}: whoever it is | hint')\n"
    )
    found = sorted((one.line, one.text) for one in in_messages(tree, habits))
    assert found == [(3, "tells"), (4, "whoever")]


def test_texts_of_the_page_are_its_html_and_its_strings(tree: Path, habits: Habits) -> None:
    static = tree / "src/stepvad/web/static"
    (static / "page.js").write_text("// it tells\nconst tells = 1;\nsay(`${told} is\n away`);\n")
    (static / "page.html").write_text('<p class="tells">One\n<b>tells</b></p>\n')
    (static / "page.css").write_text("/* it tells */")
    found = sorted((one.place.rpartition("/")[2], one.line) for one in in_web(tree, habits))
    assert found == [("page.html", 2), ("page.js", 3)]
