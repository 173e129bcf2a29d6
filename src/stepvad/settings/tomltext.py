"""Parse untrusted TOML; its nesting depth is checked first.

Python's parser needs quadratic time and memory in the number of parts of a key, and recurses for
every nested bracket.
"""

from __future__ import annotations

import re
import tomllib

MAX_PARTS = 16
"""Maximum parts of a dotted key or table name."""
MAX_DEPTH = 16
"""Maximum nesting of brackets."""

TOKENS = re.compile(
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
        raise tomllib.TOMLDecodeError("Values nested too deeply") from None


def _too_deep(text: str) -> str:
    """Describe what is nested too deeply; empty if nothing is."""
    depth = parts = 0
    is_joined = False
    for token in TOKENS.finditer(text):
        match token.lastgroup:
            case "torn":
                return ""  # the parser fails here too
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
