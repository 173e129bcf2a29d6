"""Many fits on one data set, in parallel; each result is on disk the moment it is there."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from multiprocessing import get_context, parent_process
from pathlib import Path

from stepvad.atomic import replacing
from stepvad.benchmark import protocol, runs
from stepvad.benchmark.datasets import Dataset, Split, open_dataset
from stepvad.benchmark.experiment import Experiment
from stepvad.errors import ConfigError
from stepvad.progress import Progress, Report, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A data set that other processes can open too, and where its results go."""

    data: Path
    results: Path
    split: Split = "full"

    def open(self) -> Dataset:
        """The data set."""
        return open_dataset(self.data, split=self.split)

    def file(self, experiment: Experiment, digest: str) -> Path:
        """Where the result of an experiment on data of this digest is, or will be."""
        return self.results / f"{experiment.key(digest)}.parquet"


@dataclass(frozen=True, slots=True)
class Task:
    """One fit, and the experiments that share it."""

    experiments: tuple[Experiment, ...]
    place: Place
    digest: str
    """Of the data that they see."""


def sweep(
    experiments: Sequence[Experiment], place: Place, *, jobs: int = 1, report: Report = silent
) -> list[runs.Run]:
    """The runs of all experiments in their order; those with a result are not run again.

    Experiments that differ in jitter or aggregation alone share a fit. Interrupted, it loses what
    was under way and nothing else.
    """
    if jobs < 1:
        raise ConfigError(f"jobs: expected at least 1, got {jobs}")
    dataset = place.open()
    digests = _digests(experiments, dataset)
    place.results.mkdir(parents=True, exist_ok=True)
    files = [place.file(experiment, digests[experiment.fit_on]) for experiment in experiments]
    wanted = dict(zip(files, experiments, strict=True))
    fits: dict[Experiment, list[Experiment]] = {}
    for file, experiment in wanted.items():
        if not file.exists():
            fits.setdefault(experiment.fitting, []).append(experiment)
    tasks = [Task(tuple(several), place, digests[fit.fit_on]) for fit, several in fits.items()]
    done = len(wanted) - sum(len(task.experiments) for task in tasks)
    report(Progress("experiments", done, len(wanted)))
    for finished in _in_processes(tasks, jobs):
        done += finished
        report(Progress("experiments", done, len(wanted)))
    clips = [*dataset.test_clips()]
    return [runs.read(file, clips) for file in files]


def digest_of(dataset: Dataset) -> str:
    """A digest of everything an experiment can see of a data set."""
    sha = _hash_of_training(dataset)
    pairs = [*dataset.test_clips()]
    pairs += [*dataset.validation_clips()] if dataset.validation is not None else []
    for clip, labels in pairs:
        sha.update(clip.digest() + labels.abnormal.tobytes() + labels.counted.tobytes())
    return sha.hexdigest()


def _digests(experiments: Sequence[Experiment], dataset: Dataset) -> dict[tuple[str, ...], str]:
    """Of the data that each choice of `fit_on` sees; each data set is read once."""
    own = digest_of(dataset)
    directories = dict.fromkeys(name for experiment in experiments for name in experiment.fit_on)
    of_training = {name: _hash_of_training(open_dataset(name)).hexdigest() for name in directories}
    choices = {experiment.fit_on for experiment in experiments}
    return {names: " ".join([own, *(of_training[n] for n in names)]) for names in choices}


def _hash_of_training(dataset: Dataset) -> hashlib._Hash:
    sha = hashlib.sha256()
    for clip in dataset.train_clips():
        sha.update(clip.digest())
    return sha


def run_fit(task: Task) -> int:
    """Fit once, look as often as there are experiments, and write each result; how many."""
    dataset = task.place.open()
    started = time.monotonic()
    fitted = task.experiments[0].fit(dataset)
    fit_s = time.monotonic() - started
    for experiment in task.experiments:
        scorer = experiment.scorer(fitted)
        facts = {
            **_facts(experiment, task.digest),
            "config": asdict(scorer.config),
            "windows": fitted.origin.windows,
            "fit_s": fit_s,
        }
        with replacing(task.place.file(experiment, task.digest)) as temporary:
            runs.write(protocol.score_clips(scorer, dataset), facts, temporary)
    return len(task.experiments)


def _facts(experiment: Experiment, digest: str) -> dict[str, object]:
    """What a result tells of its origin."""
    return {
        "experiment": asdict(experiment),
        "data": digest,
        "version": version("stepvad"),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _in_processes(tasks: Sequence[Task], jobs: int) -> Iterator[int]:
    """Run the tasks, `jobs` at a time, each on its share of the cores."""
    if not tasks:
        return
    with (
        _threads_per_job(jobs),
        ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent) as pool,
    ):
        waiting = [pool.submit(run_fit, task) for task in tasks]
        try:
            for future in as_completed(waiting):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _end_with_parent() -> None:
    """Let a worker go without a word on Ctrl-C, and when its parent is gone."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _threads_per_job(jobs: int) -> Iterator[None]:
    """Let processes started meanwhile use their share of the cores and no more."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) // jobs, 1))
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
