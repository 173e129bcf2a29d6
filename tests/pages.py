"""The pages of the documentation: their blocks, and how a reader would run them.

A comment before a block says what is special: `<!-- not run: reason -->` or `<!-- fails -->`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from stepvad.cli import main
from studies.__main__ import main as studies

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TOLERANCE = 3.0
"""How far a decimal that a page shows may be from what this machine gives."""
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>not run: [^\n]+|fails) -->\n+)?"
    r"```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    mark: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What a reader types: the lines of a console block after `$`."""
        joined = self.text.replace("\\\n", " ")
        return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]

    @property
    def output(self) -> list[str]:
        """What the page shows as the answer of a console, without blank lines."""
        if self.language != "console":
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.startswith("$ ")]

    def __str__(self) -> str:
        """Where it stands."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """The README and every page under docs."""
    return [README, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page that can be run, in order."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        if found["language"] in ("console", "python"):
            line = text.count("\n", 0, found.start("language")) + 1
            yield Block(page, line, found["language"], found["mark"] or "", found["text"])


def run(
    block: Block, directory: Path, *, bin: Path = Path(sys.executable).parent, pip: bool = False
) -> str:
    """Run a block as written, in a directory, and return what it printed.

    `bin` holds the python and stepvad to use; lines of pip are left out unless `pip` says so.
    """
    if block.language == "python":
        words = [str(bin / "python"), "-W", "error", "-c", block.text]
    else:
        typed = [line for line in block.commands if pip or not line.startswith("pip ")]
        words = ["bash", "-euo", "pipefail", "-c", "\n".join(typed)]
    environment = os.environ | {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        words, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    return _checked(block, done.returncode, done.stdout + done.stderr)


def run_here(block: Block, directory: Path) -> str:
    """Run a block as `run` does, in this process, which has imported everything."""
    out, err = StringIO(), StringIO()
    modules = {*sys.modules}
    with (
        pytest.MonkeyPatch.context() as patch,
        chdir(directory),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        patch.syspath_prepend(directory)
        code = _exit_code(block, patch)
    for name in {*sys.modules} - modules:  # of files beside the page's data, not of libraries
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(directory)):
            del sys.modules[name]
    return _checked(block, code, out.getvalue() + err.getvalue())


def _exit_code(block: Block, patch: pytest.MonkeyPatch) -> int:
    """Run Python, or each command up to the first that fails."""
    if block.language == "python":
        exec(compile(block.text, str(block), "exec"), {"__name__": "__main__"})
        return 0
    for line in block.commands:
        if code := _command(shlex.split(line), patch):
            return code
    return 0


def _command(words: list[str], patch: pytest.MonkeyPatch) -> int:
    """Run one command and return its exit code."""
    if words[:3] == ["python", "-m", "studies"]:
        studies(words[3:])
        return 0
    if words[0] != "stepvad":
        return subprocess.run(words, check=False).returncode
    patch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def _checked(block: Block, code: int, printed: str) -> str:
    """What a block printed, if it ended as the page says."""
    assert (code != 0) == (block.mark == "fails"), f"{block}: exit code {code}\n{printed}"
    assert "Traceback" not in printed, f"{block}: {printed}"
    return printed


def check_output(block: Block, printed: str) -> None:
    """Every line that the page shows was printed, decimals within the tolerance."""
    lines = [line.split() for line in printed.splitlines()]
    for shown in block.output:
        if shown != "…":
            assert any(alike(shown.split(), line) for line in lines), f"{block}: {shown}\n{printed}"


def alike(shown: list[str], printed: list[str]) -> bool:
    return len(shown) == len(printed) and all(
        a == b or (is_decimal(a) and is_decimal(b) and abs(float(a) - float(b)) <= TOLERANCE)
        for a, b in zip(shown, printed, strict=True)
    )


def is_decimal(word: str) -> bool:
    return re.fullmatch(r"-?[0-9]+\.[0-9]+", word) is not None
