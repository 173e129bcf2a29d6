"""Run many tasks in local processes or on a Ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context, parent_process
from multiprocessing.process import BaseProcess
from typing import Any, Literal, TypeVar, get_args

from stepvad.errors import ConfigError, MissingExtraError, StepvadError

Executor = Literal["processes", "ray"]
Task = TypeVar("Task")
Result = TypeVar("Result")
RETRIES = 2
"""Retries by Ray of a task whose worker or node died: tasks write all of their output or none."""
END_S = 3.0
"""Time for a worker to unwind its task, which removes its temporary files, before it is killed."""
ENDS = (signal.SIGINT, signal.SIGTERM)


def check_choice(executor: Executor, jobs: int) -> None:
    """Raise if the executor is unknown or not installed, or `jobs` is below 1."""
    if executor not in get_args(Executor):
        expected = " or ".join(map(repr, get_args(Executor)))
        raise ConfigError(f"executor: expected {expected}, got {executor!r}")
    if jobs < 1:
        raise ConfigError(f"jobs: expected at least 1, got {jobs}")
    if executor == "ray":
        _import_ray()


def run(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    jobs: int,
    executor: Executor,
    threads: int | None = None,
) -> Iterator[Result]:
    """Run `work` for every task, `jobs` at a time, each on `threads` or on `threads_per_job`.

    Results are yielded as they complete. The first error or Ctrl-C ends all tasks: those under way
    are interrupted, and a process that does not stop within `END_S` is killed. A worker that the
    system kills, or that runs out of memory, ends the run with a `StepvadError`; Ray tries its task
    up to `RETRIES` times more.
    """
    check_choice(executor, jobs)
    if not tasks:
        return iter(())
    each = threads or threads_per_job(jobs)
    start = _on_ray if executor == "ray" else _in_processes
    return _in_words(start(work, tasks, jobs, each), jobs)


def _in_words(results: Iterator[Result], jobs: int) -> Iterator[Result]:
    """The same results; a lack of memory is an error with a remedy."""
    try:
        yield from results
    except (BrokenExecutor, MemoryError) as error:
        killed = isinstance(error, BrokenExecutor)
        got = "was killed, probably for lack of memory" if killed else "ran out of memory"
        fewer = " or lower --jobs" if jobs > 1 else ""
        raise StepvadError(
            f"expected worker processes to finish, got one that {got}",
            hint=f"add memory{fewer}, then repeat the command",
        ) from error


def threads_per_job(jobs: int) -> int:
    """OMP_NUM_THREADS if it is set, else the usable cores divided by `jobs`, at least 1."""
    return threads_asked() or max(usable_cores() // jobs, 1)


def _in_processes(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, threads: int
) -> Iterator[Result]:
    with (
        _environment("OMP_NUM_THREADS", str(threads)),
        ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent) as pool,
    ):
        workers: Mapping[int, BaseProcess] = {}
        try:
            waiting = {pool.submit(_interruptible, work, task) for task in tasks}
            workers = dict(pool._processes)  # all of them: each task may start one
            while waiting:
                # Poll: a signal delivered to another thread does not wake this one.
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BaseException:
            _end([*(workers or pool._processes).values()])
            raise  # leaving the pool, whose tasks fail without processes, joins its thread


def _end(workers: Sequence[BaseProcess]) -> None:
    """Terminate processes, and kill those that are still alive after `END_S`."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + END_S
    for worker in workers:
        worker.join(max(deadline - time.monotonic(), 0))
        if worker.is_alive():
            worker.kill()


def _interruptible(work: Callable[[Task], Result], task: Task) -> Result:
    """Run a task; a signal unwinds it, so it removes its temporary files, and ends the process."""
    for number in ENDS:
        signal.signal(number, _interrupt)
    try:
        return work(task)
    except KeyboardInterrupt:
        os._exit(1)
    finally:
        for number in ENDS:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(*_: object) -> None:
    """Interrupt the task once: a second signal, such as of the parent, would stop its unwinding."""
    for number in ENDS:
        signal.signal(number, _ignore)
    raise KeyboardInterrupt


def _ignore(*_: object) -> None:
    """Ignore a signal; Python reports one that arrived before it was set to SIG_IGN."""


def _end_with_parent() -> None:
    """Make a worker exit silently on Ctrl-C and when its parent dies."""

    def watch() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)  # they are to wake the task, not this
        parent = parent_process()
        if parent is not None:
            parent.join()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
            time.sleep(END_S)
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=watch, daemon=True).start()


def _on_ray(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, threads: int
) -> Iterator[Result]:
    """Run the tasks on the configured Ray cluster, or else on a local one."""
    ray = _import_ray()
    variables = {"OMP_NUM_THREADS": str(threads)}
    with _cluster(ray, jobs):
        remote = ray.remote(work).options(
            num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": variables}
        )
        waiting = iter(tasks)
        running = [remote.remote(task) for task in islice(waiting, jobs)]
        try:
            while running:
                (ready,), running = ray.wait(running)
                running += [remote.remote(task) for task in islice(waiting, 1)]
                yield ray.get(ready)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except (
            ray.exceptions.WorkerCrashedError,
            ray.exceptions.NodeDiedError,
            ray.exceptions.OutOfMemoryError,
        ) as error:
            raise BrokenExecutor from error
        finally:
            for under_way in running:
                ray.cancel(under_way, force=True)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("executor ray", "ray") from error
    return ray


@contextmanager
def _cluster(ray: Any, jobs: int) -> Iterator[None]:
    """Connect to a Ray cluster; disconnect on exit unless already connected before."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if os.environ.get("RAY_ADDRESS"):
        ray.init(address="auto", **quiet)
    else:
        with _environment("RAY_USAGE_STATS_ENABLED", "0"):  # no telemetry
            ray.init(address="local", num_cpus=jobs, include_dashboard=False, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable for processes started inside the context."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def usable_cores() -> int:
    """Cores that this process may run on; `taskset` and containers may leave it fewer than all."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def threads_asked() -> int | None:
    """OMP_NUM_THREADS, which numpy and torch also follow; None if it is unset or not a number."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) > 0 else None
