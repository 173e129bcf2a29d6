"""The tables of a TOML text, each with the comment above it: joined they are the text again."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

TablePath = tuple[str, ...]

TOKENS = re.compile(
    r"""
    (?P<text> \"\"\"(?:\\.|[^\\])*?\"\"\""{0,2} | '''.*?''''{0,2}
            | (?!\"\"\")"(?:\\.|[^"\\\n])*" | (?!''')'[^'\n]*' )
    | (?P<comment> \#[^\n]* )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<space> [ \t]+ )
    | (?P<other> [^\[\]{}"'\#\s]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class TextTable:
    """The lines of one table: the comment above its header, the header and keys, what follows."""

    path: TablePath
    is_item: bool
    """Whether its header has two brackets: one item of a list of tables."""
    lead: str
    body: str
    tail: str
    """Blank lines and comments after its last key."""

    @property
    def text(self) -> str:
        """All of its lines."""
        return f"{self.lead}{self.body}{self.tail}"


def split_tables(text: str) -> list[TextTable]:
    """The tables of a valid TOML text in order; the first holds the keys above all headers."""
    starts = [0, *_headers(text)]
    parts = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    found: list[TextTable] = []
    lead = ""
    for number, part in enumerate(parts):
        body, tail = _without_tail(part)
        rest, above = _comment_above(tail) if number < len(parts) - 1 else (tail, "")
        header = body.partition("\n")[0] if number else ""
        found.append(TextTable(_path(header), header.lstrip().startswith("[["), lead, body, rest))
        lead = above
    return found


def join_tables(tables: Iterable[TextTable]) -> str:
    """The text of all tables."""
    return "".join(table.text for table in tables)


def _headers(text: str) -> Iterator[int]:
    """Where the lines of headers start."""
    depth, line, is_first = 0, 0, True
    for token in TOKENS.finditer(text):
        match token.lastgroup:
            case "open":
                if is_first and not depth:
                    yield line
                depth += 1
            case "close":
                depth -= 1
            case "other" if token[0] == "\n":
                line, is_first = token.end(), True
                continue
        is_first = is_first and token.lastgroup == "space"


def _without_tail(part: str) -> tuple[str, str]:
    """The lines up to the last key, and the blank ones and comments after them."""
    lines = part.splitlines(keepends=True)
    end = len(lines)
    while end and re.fullmatch(r"\s*(#.*)?\s*", lines[end - 1]):
        end -= 1
    return "".join(lines[:end]), "".join(lines[end:])


def _comment_above(tail: str) -> tuple[str, str]:
    """What belongs to the table before, and the comment right above the next header."""
    lines = tail.splitlines(keepends=True)
    start = len(lines)
    while start and lines[start - 1].strip():
        start -= 1
    return "".join(lines[:start]), "".join(lines[start:])


def _path(header: str) -> TablePath:
    if not header:
        return ()
    path: TablePath = ()
    facts: object = tomllib.loads(header)
    while isinstance(facts, Mapping) and facts:
        (name, facts), *_ = facts.items()
        path += (str(name),)
        if isinstance(facts, list):
            facts = facts[0]
    return path
