"""Scripts and what continuous integration checks: faults that fit, packages, known flaws."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.pages import ROOT
from tests.requirements import wanted

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
    for test in tests.split():
        path, _, function = test.partition("::")
        assert (ROOT / path).exists()
        if function:
            assert f"def {function}(" in (ROOT / path).read_text()


REPORTS = ROOT / "tests" / "data"
AUDIT = runpy.run_path(str(ROOT / "scripts" / "security"))["audit"]
LOCK = "".join((ROOT / name).read_text() for name in ("requirements.lock", "torch.lock"))


def audit(*words: str, required: bool = False) -> tuple[int, str]:
    """The status that scripts/security has from pip-audit, and what it says."""
    told = StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(told):
        patch.setenv("STEPVAD_AUDIT", "required" if required else "")
        return AUDIT(words), told.getvalue()


@pytest.mark.parametrize(("required", "status"), [(False, 3), (True, 1)])
def test_packages_that_were_skipped_are_no_answer(required: bool, status: int) -> None:
    code, told = audit("--report", str(REPORTS / "pip-audit-skipped.json"), required=required)
    assert code == status
    assert re.search(r"NO ANSWER \(\d+ packages skipped: ", told)
    assert "no known" not in told


@pytest.mark.parametrize("required", [False, True])
def test_a_vulnerability_fails_whatever_else_was_skipped(required: bool) -> None:
    code, told = audit("--report", str(REPORTS / "pip-audit-vulnerable.json"), required=required)
    assert code == 1
    assert "VULNERABLE requests 2.19.0: PYSEC-2018-28, fixed in 2.20.0" in told


@pytest.mark.parametrize("report", ["", "{}", '{"dependencies": []}', "[]", "Traceback"])
def test_a_report_of_nothing_is_no_answer(report: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(report)
    code, told = audit("--report", str(tmp_path / "report.json"))
    assert (code, "NO ANSWER" in told) == (3, True)


@contextmanager
def advisories(answer: Callable[[str, str], dict[str, Any]]) -> Iterator[str]:
    """A service that speaks the protocol of osv.dev, on the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(answer(asked["package"]["name"], asked["version"])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()


@pytest.mark.slow
def test_every_version_in_the_lock_is_looked_up(tmp_path: Path) -> None:
    asked: set[str] = set()

    def answer(name: str, version: str) -> dict[str, Any]:
        asked.add(f"{name}=={version}")
        return {}

    with advisories(answer) as url:
        code, told = audit("-s", "osv", "--osv-url", url, f"--cache-dir={tmp_path}", required=True)
    assert (code, "no known vulnerability" in told) == (0, True), told
    assert asked == set(re.findall(r"^[A-Za-z0-9._-]+==[^ ;\\+]+", LOCK, re.MULTILINE))


@pytest.mark.slow
def test_a_service_that_knows_a_flaw_or_is_away_ends_in_no_success(tmp_path: Path) -> None:
    def answer(name: str, version: str) -> dict[str, Any]:
        affected = {"package": {"name": name, "ecosystem": "PyPI"}, "versions": [version]}
        flaw = {"id": "PYSEC-0000-1", "summary": "bad", "affected": [affected]}
        return {"vulns": [flaw]} if name == "numpy" else {}

    with advisories(answer) as url:
        code, told = audit("-s", "osv", "--osv-url", url, f"--cache-dir={tmp_path / 'a'}")
        assert (code, "VULNERABLE numpy" in told) == (1, True), told
    code, told = audit("-s", "osv", "--osv-url", url, f"--cache-dir={tmp_path / 'b'}")
    assert (code, "NO ANSWER" in told) == (3, True), told


@pytest.mark.slow
@pytest.mark.parametrize(("required", "status"), [("", 0), ("required", 1)])
def test_the_gate_says_that_nobody_answered_and_fails_where_one_must(
    required: str, status: int
) -> None:
    done = subprocess.run(
        [str(ROOT / "scripts" / "security"), "--report", str(REPORTS / "pip-audit-skipped.json")],
        capture_output=True,
        text=True,
        env=os.environ | {"STEPVAD_AUDIT": required},
        timeout=300,
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert "NO ANSWER" in done.stdout
    assert ("security: FAILED: pip-audit" in done.stderr) == bool(status)


def locked() -> dict[str, list[Requirement]]:
    """What the lock file pins, by name."""
    found: dict[str, list[Requirement]] = {}
    for line in re.findall(r"^[A-Za-z0-9._-]+==[^\\\n]+", LOCK, re.MULTILINE):
        one = Requirement(line)
        found.setdefault(canonicalize_name(one.name), []).append(one)
    return found


def test_the_lock_file_fits_what_pyproject_asks_for() -> None:
    pins = locked()
    for name, versions in wanted("stepvad", ("all", "ray"), pins).items():
        assert name in pins, f"{name} is not in requirements.lock; run scripts/lock"
        for pin in pins[name]:
            (exact,) = pin.specifier
            for one in versions:
                assert one.specifier.contains(exact.version, prereleases=True), (
                    f"{pin} in requirements.lock, {one} wanted; run scripts/lock"
                )


def test_every_pin_has_hashes_and_torch_is_the_one_for_cpus() -> None:
    pieces = re.split(r"^(?=[A-Za-z0-9._-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(pieces) > 60
    assert all("--hash=sha256:" in piece for piece in pieces)
    assert [str(pin) for pin in locked()["torch"]] == ["torch==2.13.0+cpu"]
    assert not any(name.startswith(("nvidia", "cuda")) for name in locked())


def test_what_bandit_leaves_out_ruff_looks_for() -> None:
    facts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    told = subprocess.run(
        [str(Path(sys.executable).with_name("ruff")), "rule", "--all", "--output-format=json"],
        capture_output=True,
        check=True,
    ).stdout
    stable = {rule["code"] for rule in json.loads(told) if not rule["preview"]}
    lint = facts["ruff"]["lint"]
    assert "S" in lint["select"]
    assert [code for code in lint["ignore"] if code.startswith("S")] == ["S603"]
    skipped = {f"S{code[1:]}" for code in facts["bandit"]["skips"]}
    assert skipped - stable == {"S403", "S404"}
