"""Run many tasks in local processes or on a Ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context, parent_process
from typing import Any, Literal, TypeVar, get_args

from stepvad import cores
from stepvad.errors import ConfigError, MissingExtraError

Executor = Literal["processes", "ray"]
Task = TypeVar("Task")
Result = TypeVar("Result")


def check(executor: Executor, jobs: int) -> None:
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

    Results are yielded as they complete. The first error cancels the remaining tasks.
    """
    check(executor, jobs)
    if not tasks:
        return iter(())
    each = threads or threads_per_job(jobs)
    start = _on_ray if executor == "ray" else _in_processes
    return start(work, tasks, jobs, each)


def threads_per_job(jobs: int) -> int:
    """OMP_NUM_THREADS if it is set, else the usable cores divided by `jobs`, at least 1."""
    return cores.threads_asked() or max(cores.usable() // jobs, 1)


def _in_processes(
    work: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, threads: int
) -> Iterator[Result]:
    with (
        _environment("OMP_NUM_THREADS", str(threads)),
        ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent) as pool,
    ):
        waiting = {pool.submit(work, task) for task in tasks}
        try:
            while waiting:
                # Poll: a signal delivered to another thread does not wake this one.
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        except BrokenProcessPool:
            raise  # no process is left to wait for; leaving the pool joins its thread
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """Make a worker exit silently on Ctrl-C and when its parent dies."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
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
            num_cpus=1, max_retries=0, runtime_env={"env_vars": variables}
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
