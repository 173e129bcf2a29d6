"""Options and scripts that a page names exist, also where the command is not run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from stepvad.cli import app
from tests.pages import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for kind in ("md", "toml") for path in sorted((ROOT / "docs").rglob(f"*.{kind}"))),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
OPTION = re.compile(r"--[a-z][a-z-]*")
WORD = re.compile(r"[a-z][a-z-]*\Z")
STEPVAD: Any = typer.main.get_command(app)
ENDS = ("&&", ";", "|", ">", "#")


def commands(program: str) -> Iterator[tuple[str, list[str]]]:
    """A page, and the words after the name of a program, in a block or in a sentence."""
    for page in PAGES:
        text = page.read_text("utf-8").replace("\\\n", " ")
        for found in re.finditer(rf"(?:`|\$ |^){program}([^\n`]*)", text, re.MULTILINE):
            words = found[1].split()
            end = next((i for i, word in enumerate(words) if word in ENDS), None)
            yield str(page.relative_to(ROOT)), words[:end]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, or the group if they name none of it, and the other words."""
    command = STEPVAD
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def options(words: list[str]) -> list[str]:
    return [found[0] for word in words if (found := OPTION.match(word))]


def test_options_of_stepvad_on_the_pages_exist() -> None:
    unknown, n = [], 0
    for page, words in commands("stepvad "):
        command, rest = command_of(words)
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        named = [] if rest[:1] == ["…"] else options(rest)  # …: of several commands
        unknown += [(page, words, one) for one in named if one not in {*known, "--help"}]
        n += len(named)
    assert unknown == []
    assert n > 300


def test_commands_of_stepvad_on_the_pages_exist() -> None:
    """In a block of commands and between backticks; a sentence may begin with our name."""
    code = re.compile(
        r"(?<!`)`stepvad ([^`\n]+)`|^\$ stepvad (.+)|(?<=\n)```sh\n(.*?)```", re.M | re.S
    )
    unknown, n = [], 0
    for page in PAGES:
        for found in code.finditer(page.read_text("utf-8")):
            lines = [found[1] or found[2] or ""]
            if found[3]:
                lines = re.findall(r"^stepvad (.+)", found[3], re.MULTILINE)
            for words in filter(None, map(str.split, lines)):
                command, rest = command_of(words)
                is_group = bool(getattr(command, "commands", {}))
                unknown += (
                    [(page.name, words)]
                    if is_group and WORD.match(rest[0] if rest else "-")
                    else []
                )
                n += 1
    assert unknown == []
    assert n > 200


def test_scripts_on_the_pages_exist_and_have_their_options() -> None:
    named = [*commands(r"(?:[\w./=-]+ )*?scripts/(?=[a-z])")]
    assert len(named) > 30
    unknown = []
    for page, (name, *rest) in named:
        script = ROOT / "scripts" / name.rstrip(".,:;)")
        source = script.read_text("utf-8") if script.is_file() else ""
        # scripts/test hands on what it does not know
        known = {*OPTION.findall(source)} | ({"--hypothesis-profile"} if name == "test" else set())
        if not source or not {*options(rest)} <= known:
            unknown.append((page, name, *rest))
    assert unknown == []
