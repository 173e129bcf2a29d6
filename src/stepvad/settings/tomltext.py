"""TOML from outside: how deep it goes is checked before it is parsed.

Python's parser takes memory and time by the square of the parts of a key, and a call for every
bracket in a bracket.
"""

from __future__ import annotations

import re
import tomllib

MAX_PARTS = 16
"""Parts of a dotted key or of the name of a table."""
MAX_DEPTH = 16
"""Brackets in brackets."""

_TOKENS = re.compile(
    r"""
    (?P<text> \"\"\"(?:\\.|[^\\])*?\"\"\""{0,2} | '''.*?''''{0,2}
            | (?!\"\"\")"(?:\\.|[^"\\\n])*" | (?!''')'[^'\n]*' )
    | (?P<torn> ["'] )
    | (?P<comment> \#[^\n]* )
    | (?P<word> [A-Za-z0-9_+:-]+ )
    | (?P<dot> \. )
    | (?P<open> [\[{] )
    | (?P<close> [\]}] )
    | (?P<space> [ \t]+ )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def parse(text: str) -> dict[str, object]:
    """The value of a TOML text, refused as `tomllib.TOMLDecodeError` if it goes too deep."""
    problem = _too_deep(text)
    if problem:
        raise tomllib.TOMLDecodeError(problem)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("Too many values in values") from None


def _too_deep(text: str) -> str:
    """What is too deep in a text; empty if nothing is."""
    depth = parts = 0
    is_joined = False
    for token in _TOKENS.finditer(text):
        match token.lastgroup:
            case "torn":
                return ""  # the parser goes no further than here either
            case "dot":
                is_joined = True
                continue
            case "space":
                continue
            case "word" | "text":
                parts = parts + 1 if is_joined else 1
                if parts > MAX_PARTS:
                    line = text.count("\n", 0, token.start()) + 1
                    return f"A key of more than {MAX_PARTS} parts (at line {line})"
            case "open":
                depth += 1
                if depth > MAX_DEPTH:
                    line = text.count("\n", 0, token.start()) + 1
                    return f"More than {MAX_DEPTH} brackets in brackets (at line {line})"
            case "close":
                depth = max(depth - 1, 0)
        is_joined = False
    return ""
