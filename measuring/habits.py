"""Phrases to keep out of pages and messages, and where they are."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FIRST = r"(?:\A|\n\n|[.:;]\s|\n\s*(?:[*-]|\d\.)\s)"
"""Where a sentence starts."""
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|<!--.*?-->", re.DOTALL | re.MULTILINE)
SAYS = {
    *("debug", "info", "warning", "error", "exception", "critical", "log"),
    *("echo", "print", "say", "confirm"),
}
"""Calls whose text somebody reads."""
WEB = {
    ".html": re.compile(r"(?<=>)[^<]+"),
    ".js": re.compile(r"//[^\n]*|\"[^\"\n]*\"|`[^`]*`"),
}
"""What a reader sees of a file of the page: the text of HTML, the strings of scripts."""
VALUE = re.compile(r"\$\{[^{}`]*\}")
"""A value inside of a string of a script."""


@dataclass(frozen=True)
class Habit:
    """One phrase, what to write instead, and the text around it in which it is right."""

    pattern: re.Pattern[str]
    instead: str
    allow: tuple[str, ...]

    def find(self, text: str) -> Iterator[re.Match[str]]:
        """Every place in a text, except those that are allowed."""
        for match in self.pattern.finditer(text):
            around = " ".join(text[max(0, match.start() - 30) : match.end() + 30].lower().split())
            if not any(phrase in around for phrase in self.allow):
                yield match


@dataclass(frozen=True)
class Habits:
    """All phrases, and the pages that are counted but not held to zero yet."""

    habits: tuple[Habit, ...]
    later: tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """One phrase in one place."""

    place: str
    line: int
    text: str
    instead: str


def read_habits(path: Path) -> Habits:
    """The phrases of a file."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    habits = [
        Habit(_compiled(one["pattern"]), one["instead"], tuple(one.get("allow", ())))
        for one in content["habit"]
    ]
    return Habits(tuple(habits), tuple(content["later"]))


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(" ", r"\s+").replace("FIRST", FIRST), re.IGNORECASE)


def in_pages(root: Path, habits: Habits) -> Iterator[Found]:
    """What the pages have, outside of code."""
    names = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
    for page in [*(root / name for name in names), *sorted((root / "docs").rglob("*.md"))]:
        text = CODE.sub(_blank, page.read_text(encoding="utf-8"))
        yield from _in_text(text, page.relative_to(root).as_posix(), 1, habits)


def in_messages(root: Path, habits: Habits) -> Iterator[Found]:
    """What errors, log lines and output in the source say."""
    for path in sorted((root / "src").rglob("*.py")):
        for line, text in _messages(ast.parse(path.read_text(encoding="utf-8"))):
            yield from _in_text(text, path.relative_to(root).as_posix(), line, habits)


def in_web(root: Path, habits: Habits) -> Iterator[Found]:
    """What the page of a site shows: the text of its HTML and of its scripts."""
    for path in sorted((root / "src" / "stepvad" / "web" / "static").glob("*")):
        if path.suffix in WEB:
            text = VALUE.sub(_blank, path.read_text(encoding="utf-8"))
            for part in WEB[path.suffix].finditer(text):
                if not part[0].startswith("//"):
                    line = 1 + text.count("\n", 0, part.start())
                    yield from _in_text(part[0], path.relative_to(root).as_posix(), line, habits)


def _blank(code: re.Match[str]) -> str:
    """As many characters and lines as a piece of code has."""
    return re.sub(r"[^\n]", "_", code[0])


def _in_text(text: str, place: str, line: int, habits: Habits) -> Iterator[Found]:
    for habit in habits.habits:
        for match in habit.find(text):
            phrase = match[0].lstrip(" \n.:;*-0123456789")
            at = line + text.count("\n", 0, match.end() - len(phrase))
            yield Found(place, at, " ".join(phrase.split()), habit.instead)


def _messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from _texts(node.exc)
        elif isinstance(node, ast.Call) and _name(node.func) in SAYS:
            for argument in node.args:
                yield from _texts(argument)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _texts(node: ast.expr) -> Iterator[tuple[int, str]]:
    """The constants in an expression; values inside of texts become …."""
    if isinstance(node, ast.JoinedStr):
        parts = [str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values]
        yield node.lineno, "".join(parts)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.lineno, node.value
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from _texts(child)
