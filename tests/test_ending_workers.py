"""Worker processes end with their run, whatever ends it, and take their temporary files along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing import active_children
from pathlib import Path

import pytest

from stepvad import executors
from tests.endless_work import LIMIT_S, answer, wait_for
from tests.pages import ROOT
from tests.processes import wait_until_nobody_is_left

PROGRAM = """
import sys
from stepvad import executors
from tests.endless_work import begin
tasks = [(sys.argv[1], word) for word in sys.argv[2:]]
list(executors.run(begin, tasks, jobs=2, executor="processes"))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture
def run(place: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A run in a session of its own, of tasks whose words are the parameter."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(place), *request.param.split()],
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def left(place: Path) -> list[str]:
    return [path.name for path in place.iterdir() if path.name != "begun"]


@pytest.mark.parametrize("run", ["fail sleep", "sleep fail"], indirect=True)
def test_the_first_error_ends_the_other_tasks(run: subprocess.Popen[str], place: Path) -> None:
    _, words = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 1
    assert words.splitlines()[-1].endswith("expected patience, got none")
    assert left(place) == []
    wait_until_nobody_is_left(run.pid)


@pytest.mark.parametrize("run", ["fail hang"], indirect=True)
def test_a_worker_that_hangs_is_killed(run: subprocess.Popen[str]) -> None:
    _, words = run.communicate(timeout=LIMIT_S)
    assert words.splitlines()[-1].endswith("expected patience, got none")
    wait_until_nobody_is_left(run.pid)


@pytest.mark.parametrize("run", ["sleep sleep"], indirect=True)
@pytest.mark.parametrize("all_at_once", [False, True])
def test_ctrl_c_ends_the_workers_even_if_only_their_parent_gets_it(
    run: subprocess.Popen[str], place: Path, *, all_at_once: bool
) -> None:
    wait_for(place / "begun")
    if all_at_once:
        os.killpg(run.pid, signal.SIGINT)
    else:
        os.kill(run.pid, signal.SIGINT)
    run.communicate(timeout=LIMIT_S)
    assert run.returncode
    assert left(place) == []
    wait_until_nobody_is_left(run.pid)


@pytest.mark.parametrize("run", ["sleep sleep"], indirect=True)
def test_workers_whose_parent_was_killed_remove_their_files(
    run: subprocess.Popen[str], place: Path
) -> None:
    wait_for(place / "begun")
    run.kill()
    run.communicate(timeout=LIMIT_S)
    wait_until_nobody_is_left(run.pid)
    assert left(place) == []


def test_a_run_that_nobody_follows_any_longer_ends_its_workers(place: Path) -> None:
    results = executors.run(answer, ["at once", str(place)], jobs=2, executor="processes")
    assert next(results) == "at once"
    results.close()  # type: ignore[attr-defined]  # a generator
    assert not active_children()
