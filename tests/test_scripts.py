"""Scripts, workflows and planted faults name what exists."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pages import ROOT

SCRIPTS = sorted(
    path
    for path in (ROOT / "scripts").iterdir()
    if path.is_file() and path.read_bytes().startswith(b"#!/usr/bin/env python")
)
CALLED = re.compile(r"(?<![\w./-])(?:\./)?((?:\.ci/|scripts/|deploy/publish-)[\w-]*\w)")
STUDY = re.compile(r"python -m studies (?:\\\n\s*)?([a-z][\w-]*)")
CALLERS = [
    ROOT / ".ci" / "run",
    *(path for path in (ROOT / ".github").rglob("*") if path.is_file()),
    *(path for path in (ROOT / "deploy").rglob("*") if path.is_file()),
    *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(path for path in (ROOT / "scripts").iterdir() if path.is_file()),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_asked_for_help_a_script_gives_its_first_line_and_does_nothing(
    script: Path, tmp_path: Path
) -> None:
    command = [sys.executable, str(script), "--help"]
    wide = os.environ | {"COLUMNS": "200"}
    made = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env=wide
    )
    assert script.read_text("utf-8").split('"""')[1].splitlines()[0] in made.stdout
    assert [*tmp_path.iterdir()] == []


def test_every_program_that_pages_and_workflows_call_is_there() -> None:
    called = {name for path in CALLERS for name in CALLED.findall(path.read_text("utf-8"))}
    assert {".ci/run", "scripts/check", "scripts/versions", "deploy/publish-image"} <= called
    assert [name for name in sorted(called) if not os.access(ROOT / name, os.X_OK)] == []


def test_every_study_that_pages_and_workflows_call_is_there() -> None:
    called = {name for path in CALLERS for name in STUDY.findall(path.read_text("utf-8"))}
    assert len(called) > 30
    files = {name: ROOT / "studies" / f"{name.replace('-', '_')}.py" for name in called}
    assert [name for name, path in sorted(files.items()) if not path.exists()] == []


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


ROOT = Path(__file__).parents[1]
MUTANTS = runpy.run_path(str(ROOT / "scripts" / "mutants"))["read"]()


def test_there_are_enough_faults_and_each_has_its_own_name() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_code_that_a_fault_changes_is_there_once(mutant: tuple[str, ...]) -> None:
    name, file, old, new, tests = mutant
    text = (ROOT / "src" / "stepvad" / file).read_text(encoding="utf-8")
    assert text.count(old) == 1, name
    assert old != new
    assert all((ROOT / test).exists() for test in tests.split())
