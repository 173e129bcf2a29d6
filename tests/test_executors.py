"""The same work, wherever it is done: all of it, each part once, on its share of the cores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from stepvad import executors
from stepvad.config import Config
from stepvad.errors import ConfigError, DataError, MissingExtraError, StepvadError
from stepvad.evaluation import comparison
from stepvad.evaluation.experiment import Experiment
from stepvad.evaluation.protocol import FrameView
from stepvad.evaluation.runs import SweepPlace, sweep
from stepvad.evaluation.walkers import write_dataset
from stepvad.executors import Executor
from tests.local_ray import local_ray
from tests.pages import ROOT
from tests.processes import LIMIT_S, answer, wait_for, wait_until_nobody_is_left

TINY = Config(K=12, width=16, max_steps=6, ema_warmup=True)
with_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs the ray extra")

ENDS = [None, signal.SIGINT, *([signal.SIGKILL] if os.environ.get("STEPVAD_LONG_TESTS") else [])]
"""How a sweep ends; Ray takes a minute to notice that one was killed."""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("executors") / "people"
    write_dataset(root, seed=1, train_clips=3, test_clips=4, seconds=4.0)
    return root


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Any]:
    """A real cluster of two worker processes on this machine."""
    with local_ray(2) as ray:
        yield ray


def threads_and_double(number: int) -> tuple[int, int, str]:
    """Work to tell where it was done."""
    time.sleep(0.2)
    return 2 * number, os.getpid(), os.environ["OMP_NUM_THREADS"]


def while_it_ran(number: int) -> tuple[float, float]:
    """Work to tell when it was done."""
    started = time.monotonic()
    time.sleep(0.3)
    return started, time.monotonic()


def refuse(number: int) -> int:
    """Work that fails at 3."""
    if number == 3:
        raise DataError("expected less, got 3", hint="count again")
    return number


def be_killed(number: int) -> int:
    """Work that the system ends, as it does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def fill_memory(number: int) -> int:
    """Work that gets no memory."""
    raise MemoryError


def seen_by(executor: Executor) -> list[tuple[int, int, str]]:
    return [*executors.run(threads_and_double, range(7), jobs=2, executor=executor)]


def assert_shared_out(found: list[tuple[int, int, str]]) -> None:
    assert sorted(doubled for doubled, _, _ in found) == [0, 2, 4, 6, 8, 10, 12]
    workers = {worker for _, worker, _ in found}
    assert len(workers) == 2
    assert os.getpid() not in workers
    assert {threads for _, _, threads in found} == {str(executors.threads_per_job(2))}


def test_threads_per_job_are_those_asked_for_or_a_share_of_the_usable_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [executors.threads_per_job(jobs) for jobs in (1, 2, 3, 8)] == [4, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert executors.threads_per_job(1) == 1


@pytest.mark.slow
def test_processes_do_everything_once_and_pass_errors_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "usable_cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert_shared_out(seen_by("processes"))
    ((_, _, threads),) = executors.run(
        threads_and_double, [1], jobs=1, executor="processes", threads=2
    )
    assert threads == "2"
    with pytest.raises(DataError, match="expected less, got 3; count again"):
        list(executors.run(refuse, range(9), jobs=2, executor="processes"))


@pytest.mark.slow
@pytest.mark.parametrize("work", [be_killed, fill_memory])
def test_a_worker_that_runs_out_of_memory_ends_the_run_in_words(work: Callable[[int], int]) -> None:
    with pytest.raises(StepvadError, match="expected worker processes to finish, got one") as error:
        list(executors.run(work, range(3), jobs=2, executor="processes"))
    assert error.value.hint == "add memory or lower --jobs, then repeat the command"
    with pytest.raises(StepvadError, match="expected worker processes to finish, got one") as error:
        list(executors.run(work, range(1), jobs=1, executor="processes"))
    assert error.value.hint == "add memory, then repeat the command"


@pytest.mark.slow
@with_ray
@pytest.mark.parametrize("work", [be_killed, fill_memory])
def test_a_worker_of_ray_that_runs_out_of_memory_ends_the_run_in_words(
    two_workers: Any, work: Callable[[int], int]
) -> None:
    with pytest.raises(StepvadError, match="expected worker processes to finish, got one"):
        list(executors.run(work, range(3), jobs=2, executor="ray"))


@pytest.mark.slow
@with_ray
def test_ray_does_everything_once_and_passes_errors_on(
    two_workers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "usable_cores", lambda: 6)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert executors.threads_per_job(2) == 3
    assert_shared_out(seen_by("ray"))
    with pytest.raises(DataError, match="expected less, got 3; count again"):
        list(executors.run(refuse, range(9), jobs=2, executor="ray"))
    assert two_workers.is_initialized()  # it was there before


@pytest.mark.slow
@with_ray
def test_no_more_than_the_jobs_asked_for_run_at_a_time(two_workers: Any) -> None:
    spans = sorted(executors.run(while_it_ran, range(4), jobs=1, executor="ray"))
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.slow
@with_ray
def test_ray_gives_the_table_and_the_scores_of_one_process(
    two_workers: Any, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(people.parent)
    chosen = comparison.experiments(
        ["step", "raw", "mahalanobis"], TINY, comparison.Trials(seeds=[0, 1])
    )
    chosen["step"] += [replace(chosen["step"][0], fit_on=("people",))]
    experiments = [experiment for several in chosen.values() for experiment in several]
    tables = []
    for name, executor, jobs in (("one", "processes", 1), ("ray", "ray", 2)):
        results = tmp_path / name
        place = SweepPlace(data=Path("people"), results=results, jobs=jobs, executor=executor)  # type: ignore[arg-type]  # a plain str
        runs = iter(sweep(experiments, place))
        scored = {method: [next(runs).clips for _ in several] for method, several in chosen.items()}
        lines = comparison.table(
            scored, scored["step"][0], place.open(), FrameView(smoothed=False, frames="covered")
        )
        tables.append(lines)
    assert tables[0] == tables[1]
    files = sorted(file.name for file in (tmp_path / "one").iterdir())
    assert len(files) == 6
    assert files == sorted(file.name for file in (tmp_path / "ray").iterdir())
    for file in files:
        one, other = (pq.read_table(tmp_path / name / file) for name in ("one", "ray"))
        assert one.column_names == other.column_names
        for column in one.column_names:
            left, right = (np.asarray(table[column]) for table in (one, other))
            np.testing.assert_array_equal(left, right)


@pytest.mark.slow
@with_ray
@pytest.mark.parametrize("end", ENDS)
def test_a_cluster_that_a_sweep_started_ends_with_it(
    people: Path, tmp_path: Path, end: signal.Signals | None
) -> None:
    program = (
        "import sys; from stepvad.cli import main; "
        "sys.argv = ['stepvad', 'compare', *sys.argv[1:]]; main()"
    )
    words = [people, tmp_path / "r", "--methods", "step", "--seeds", "3"]
    (tmp_path / "small.toml").write_text("K = 12\n")
    words += ["--executor", "ray", "--settings", tmp_path / "small.toml", "--width", "16"]
    words += ["--max-steps", "200", "--jobs", "2"]
    mark = f"STEPVAD_TEST_MARK={tmp_path}"
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "STEPVAD_TEST_MARK": str(tmp_path)},
    )
    if end is not None:
        while not [*tmp_path.glob("r/*.parquet")]:
            assert process.poll() is None
            time.sleep(0.05)
        assert len(marked(mark)) > 2
        process.send_signal(end)
    out, said = (text.decode() for text in process.communicate(timeout=600))
    assert "Traceback" not in said
    deadline = time.monotonic() + 120
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not marked(mark)
    if end is None:
        assert process.returncode == 0, said
        assert said == ""
        assert "STEP" in out
    else:
        assert 1 <= len([*tmp_path.glob("r/*.parquet")]) <= 3


def marked(mark: str) -> list[str]:
    """The processes with this variable: all that come from one program."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environment.read_bytes().split(b"\0"):
                found.append(environment.parent.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def test_what_cannot_run_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    nowhere = SweepPlace(data=tmp_path / "nowhere", results=tmp_path / "results")
    with pytest.raises(MissingExtraError, match=r"executor ray needs the ray extra; .*\[ray\]"):
        sweep([Experiment()], replace(nowhere, executor="ray"))
    with pytest.raises(ConfigError, match="jobs: expected at least 1, got 0"):
        sweep([Experiment()], replace(nowhere, jobs=0))
    with pytest.raises(ConfigError, match="expected 'processes' or 'ray', got 'threads'"):
        sweep([Experiment()], replace(nowhere, executor="threads"))  # type: ignore[arg-type]  # wrong on purpose
    assert list(executors.run(refuse, [], jobs=1, executor="processes")) == []


PROGRAM = """
import sys
from stepvad import executors
from tests.processes import begin
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
