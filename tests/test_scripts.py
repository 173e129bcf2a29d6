"""Every script in Python answers --help, and does nothing then; a test that hangs is ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.pages import ROOT

SCRIPTS = sorted(
    path
    for path in (ROOT / "scripts").iterdir()
    if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python")
)
ASK = """
import contextlib, io, json, runpy, sys
found, path = {}, [*sys.path]
for script in sys.argv[1:]:
    said, sys.argv = io.StringIO(), [script, "--help"]
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        said.write("" if not end.code else f"exit status {end.code}")
    except Exception as error:
        said.write(f"{type(error).__name__}: {error}")
    found[script] = said.getvalue()
    sys.path[:] = path  # as a script finds them that is run alone
    ours = ("tests", "measuring", "studies")
    for name in [name for name in sys.modules if name.split(".")[0] in ours]:
        del sys.modules[name]
print(json.dumps(found))
"""


def answers(directory: Path) -> dict[Path, str]:
    """What each script answers to --help."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    made = subprocess.run(
        [sys.executable, "-c", ASK, *map(str, SCRIPTS)],
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment | {"COLUMNS": "200"},
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    found: dict[str, str] = json.loads(made.stdout.splitlines()[-1])
    return {Path(script): said for script, said in found.items()}


def test_asked_for_help_a_script_gives_its_first_line_and_does_nothing(tmp_path: Path) -> None:
    found = answers(tmp_path)
    assert len(found) > 40
    wrong = {
        script.name: said[-300:]
        for script, said in found.items()
        if first_line(script) not in said or "exit status" in said
    }
    assert wrong == {}
    assert [*tmp_path.iterdir()] == []


def first_line(script: Path) -> str:
    """The first line of its docstring."""
    return script.read_text("utf-8").split('"""')[1].splitlines()[0]


HANGS = """
import ctypes

def test_that_hangs():
    ctypes.PyDLL(None).sleep(60)  # holds the GIL: neither a signal nor a thread could end it

def test_after_it():
    pass
"""


def test_a_test_that_hangs_fails_by_name_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGS, encoding="utf-8")
    limit = ["-o", "faulthandler_timeout=2", "-p", "no:cacheprovider"]
    command = ["-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-q", "-n", "1", *limit]
    began = time.monotonic()
    made = subprocess.run(
        [sys.executable, "-m", "pytest", *map(str, command), str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=50,
    )
    assert time.monotonic() - began < 40
    assert made.returncode == 1, made.stdout + made.stderr
    assert "crashed while running 'test_hanging.py::test_that_hangs'" in made.stdout
    assert "1 failed, 1 passed" in made.stdout
    assert "in test_that_hangs" in made.stderr
