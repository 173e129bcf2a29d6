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
from stepvad.config import Compute, Config
from stepvad.errors import ConfigError
from stepvad.progress import Progress, Report, silent


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A data set that other processes can open too, and where its results go."""

    data: Path
    results: Path
    split: Split = "full"
    compute: Compute = Compute()
    """How trainings run there."""
    checkpoints: bool = False
    """Whether trainings that are stopped go on where they were, rather than start anew."""

    def open(self) -> Dataset:
        """The data set."""
        return open_dataset(self.data, split=self.split)

    def file(self, experiment: Experiment, digest: str) -> Path:
        """Where the result of an experiment on data of this digest is, or will be."""
        return self.results / f"{experiment.key(digest)}.parquet"

    def checkpoint(self, experiment: Experiment, digest: str) -> Path | None:
        """Where the state of its training is kept, if it is."""
        name = f"{experiment.fitting.key(digest)}.checkpoint"
        return self.results / name if self.checkpoints else None


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
    digest = digest_of(dataset)
    place.results.mkdir(parents=True, exist_ok=True)
    files = [place.file(experiment, digest) for experiment in experiments]
    missing = [e for e, file in zip(experiments, files, strict=True) if not file.exists()]
    fits: dict[str, list[Experiment]] = {}
    for experiment in dict.fromkeys(missing):
        fits.setdefault(experiment.fitting.key(digest), []).append(experiment)
    done = len(files) - len(missing)
    report(Progress("experiments", done, len(files)))
    for finished in _in_processes([*fits.values()], place, digest, jobs):
        done += finished
        report(Progress("experiments", done, len(files)))
    clips = [*dataset.test_clips()]
    return [runs.read(file, clips) for file in files]


def digest_of(dataset: Dataset) -> str:
    """A digest of everything an experiment can see of a data set."""
    sha = hashlib.sha256()
    for clip in dataset.train_clips():
        sha.update(clip.digest())
    pairs = [*dataset.test_clips()]
    pairs += [*dataset.validation_clips()] if dataset.validation is not None else []
    for clip, labels in pairs:
        sha.update(clip.digest() + labels.abnormal.tobytes() + labels.counted.tobytes())
    return sha.hexdigest()


def run_fit(experiments: Sequence[Experiment], place: Place, digest: str) -> int:
    """Fit once, look as often as there are experiments, and write each result; how many."""
    dataset = place.open()
    started = time.monotonic()
    checkpoint = place.checkpoint(experiments[0], digest)
    fitted = experiments[0].fitting.fit(dataset, compute=place.compute, checkpoint=checkpoint)
    fit_s = time.monotonic() - started
    for experiment in experiments:
        scorer = experiment.scorer(fitted)
        facts = _facts(experiment, scorer.config, digest, fit_s)
        facts["windows"] = fitted.origin.windows
        with replacing(place.file(experiment, digest)) as temporary:
            runs.write(protocol.score_clips(scorer, dataset), facts, temporary)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return len(experiments)


def _facts(experiment: Experiment, config: Config, digest: str, fit_s: float) -> dict[str, object]:
    """What a result tells of itself."""
    return {
        "experiment": asdict(experiment),
        "config": asdict(config),
        "data": digest,
        "version": version("stepvad"),
        "fit_s": fit_s,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _in_processes(
    fits: Sequence[Sequence[Experiment]], place: Place, digest: str, jobs: int
) -> Iterator[int]:
    """Run the fits, `jobs` at a time, each on its share of the cores."""
    if not fits:
        return
    with (
        _threads_per_job(jobs),
        ProcessPoolExecutor(jobs, get_context("spawn"), initializer=_end_with_parent) as pool,
    ):
        waiting = [pool.submit(run_fit, fit, place, digest) for fit in fits]
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
