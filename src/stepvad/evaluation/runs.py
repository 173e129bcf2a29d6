"""Many fits on one data set in parallel, and their result files: window scores in Parquet."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stepvad import executors
from stepvad.config import Compute
from stepvad.detector import Detector
from stepvad.errors import DataError, MissingExtraError, Progress, Report, silent
from stepvad.evaluation import custom, protocol
from stepvad.evaluation.baselines import Fitted
from stepvad.evaluation.datasets import Dataset, Split, clip_digest, open_dataset
from stepvad.evaluation.experiment import Experiment, code_version, resolved_compute, result_suffix
from stepvad.evaluation.protocol import ScoredClip
from stepvad.executors import Executor
from stepvad.files import check_writable, remove_leftovers, replacing
from stepvad.formats.labels import FrameLabels
from stepvad.formats.tables import scores_from_table, scores_to_table
from stepvad.poses import Clip

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError as error:
    raise MissingExtraError("a table of results", "parquet") from error

FACTS_KEY = b"stepvad.experiment"
"""Metadata key of the scores' origin."""
AGAIN = "delete it to run the experiment again"
UNREADABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    MemoryError,
    OverflowError,
    DataError,
)


@dataclass(frozen=True, slots=True, eq=False)
class ExperimentRun:
    """One finished experiment: its origin, and the scored test clips."""

    facts: Mapping[str, Any]
    clips: list[ScoredClip]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlace:
    """A data set that other processes can open, and the directory of its results."""

    data: Path | str
    """Its directory, or the `package.module:name` of a custom data set."""
    results: Path
    split: Split = "full"
    compute: Compute = Compute()
    """How trainings run."""
    checkpoints: bool = False
    """True if interrupted trainings resume from a checkpoint instead of starting over."""
    jobs: int = 1
    """Number of fits at a time."""
    executor: Executor = "processes"
    """`ray` runs fits wherever the cluster has capacity: all its machines see data and results."""

    def open(self) -> Dataset:
        """Open the data set."""
        return custom.opened(self.data, split=self.split)

    def file(self, experiment: Experiment, digest: str) -> Path:
        """Path of the result of an experiment on data with this digest."""
        return self.results / f"{experiment.key(digest)}{self._suffix(experiment)}.parquet"

    def checkpoint(self, experiment: Experiment, digest: str) -> Path | None:
        """Path of the checkpoint of its training, or None without checkpoints."""
        name = f"{experiment.fitting.key(digest)}{self._suffix(experiment)}.checkpoint"
        return self.results / name if self.checkpoints else None

    def _suffix(self, experiment: Experiment) -> str:
        return result_suffix(experiment.method, self.compute, experiment.config)


@dataclass(frozen=True, slots=True)
class SweepTask:
    """One fit, and the experiments that share it."""

    experiments: tuple[Experiment, ...]
    place: SweepPlace
    digest: str
    """Digest of their data."""


def sweep(
    experiments: Sequence[Experiment],
    place: SweepPlace,
    *,
    report: Report = silent,
) -> list[ExperimentRun]:
    """Run all experiments and return their runs in order; stored results are reused.

    Experiments that differ only in jitter or aggregation share a fit. An interruption loses only
    the fits in progress.
    """
    executors.check_choice(place.executor, place.jobs)
    # refuse a device that is not here before any process starts; other machines may have it
    if place.executor != "ray" and place.compute.device != "cpu":
        from stepvad.model.training import torch_device

        torch_device(place.compute.device)
    dataset = place.open()
    if any(experiment.best_on_validation for experiment in experiments):
        dataset.validation_set()  # refuses here rather than after some fits
    digests = _digests(experiments, dataset)
    place.results.mkdir(parents=True, exist_ok=True)
    remove_leftovers(place.results)
    files = [place.file(experiment, digests[experiment.fit_on]) for experiment in experiments]
    wanted = dict(zip(files, experiments, strict=True))
    fits: dict[Experiment, list[Experiment]] = {}
    for file, experiment in wanted.items():
        if not file.exists():
            fits.setdefault(experiment.fitting, []).append(experiment)
    if fits:
        check_writable(place.results)
    tasks = [_task(several, place, digests[fit.fit_on]) for fit, several in fits.items()]
    done = len(wanted) - sum(len(task.experiments) for task in tasks)
    report(Progress("experiments", done, len(wanted)))
    for finished in executors.run(run_fit, tasks, jobs=place.jobs, executor=place.executor):
        done += finished
        report(Progress("experiments", done, len(wanted)))
    clips = [*dataset.test_clips()]
    return [read_run(file, clips) for file in files]


def run_fit(task: SweepTask) -> int:
    """Fit once, score and write the result of each experiment, and return their number."""
    dataset = task.place.open()
    started = time.monotonic()
    shared = task.experiments[0].fitting
    checkpoint = task.place.checkpoint(shared, task.digest)
    fitted = shared.fit(dataset, compute=task.place.compute, checkpoint=checkpoint)
    fit_s = time.monotonic() - started
    scorers = [experiment.scorer(fitted) for experiment in task.experiments]
    scored = [protocol.score_clips(scorer, dataset) for scorer in scorers]
    # results of data that changed since the digest was taken would have the wrong name
    if [*_digests(task.experiments, task.place.open()).values()] != [task.digest]:
        raise data_changed(task.place.data)
    for experiment, scorer, clips in zip(task.experiments, scorers, scored, strict=True):
        facts = {
            "experiment": asdict(experiment),
            "data": task.digest,
            "version": version("stepvad"),
            "code": code_version(),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "config": asdict(scorer.config),
            "windows": fitted.origin.windows,
            **_engine(fitted, task.place.compute),
            "fit_s": fit_s,
        }
        with replacing(task.place.file(experiment, task.digest)) as temporary:
            write_run(clips, facts, temporary)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return len(task.experiments)


def digest_of(dataset: Dataset) -> str:
    """A digest of everything an experiment can see of a data set."""
    sha = _training_hash(dataset)
    parts = {"test": dataset.test_clips}
    if dataset.validation is not None:
        parts["validation"] = dataset.validation().test_clips
    for name, clips in parts.items():
        sha.update(name.encode())
        for clip, labels in clips():
            sha.update(clip_digest(clip, labels))
    return sha.hexdigest()


def data_changed(data: Path | str) -> DataError:
    """Build the error for a data set that changed while it was fitted or scored."""
    return DataError(
        f"{data}: expected the same poses and labels from start to end, got others",
        hint="the result was not stored; run it again when nobody changes the data set",
    )


def write_run(clips: Sequence[ScoredClip], facts: Mapping[str, object], path: Path) -> None:
    """Write the scores of all windows of all clips, with `facts` as further metadata.

    Energies, or what stands in their place, are written if the scores still have them.
    """
    table = scores_to_table([clip.scores for clip in clips])
    metadata = table.schema.metadata | {FACTS_KEY: json.dumps({**facts}, sort_keys=True).encode()}
    whole = table.replace_schema_metadata(metadata)
    pq.write_table(whole, path, compression="zstd", write_page_checksum=True)


def read_run(path: Path, clips: Sequence[tuple[Clip, FrameLabels]]) -> ExperimentRun:
    """Read a result; `clips` are the test clips of its data set, which provide the labels."""
    data = path.read_bytes()
    try:
        table = pq.ParquetFile(
            pa.BufferReader(data), pre_buffer=False, page_checksum_verification=True
        ).read(use_threads=False)
        facts = json.loads((table.schema.metadata or {})[FACTS_KEY])
        found = scores_from_table(table)
    except UNREADABLE as error:
        reason, *_ = str(error).splitlines() or [""]
        raise DataError(
            f"{path}: expected the result of an experiment, got: {reason}", hint=AGAIN
        ) from error
    if [scores.clip for scores in found] != [clip.name for clip, _ in clips]:
        raise DataError(
            f"{path}: expected scores of the clips of this data set, got those of others",
            hint="keep the results of different data sets in different directories",
        )
    scored = [
        ScoredClip(scores, labels, clip.persons_per_frame())
        for scores, (clip, labels) in zip(found, clips, strict=True)
    ]
    return ExperimentRun(facts, scored)


def _task(experiments: Sequence[Experiment], place: SweepPlace, digest: str) -> SweepTask:
    """One fit, with absolute paths."""
    directories = tuple(str(Path(name).absolute()) for name in experiments[0].fit_on)
    data = place.data
    is_name = custom.is_name(str(data)) and not Path(data).exists()
    there = replace(
        place,
        data=str(data) if is_name else Path(data).absolute(),
        results=place.results.absolute(),
        compute=resolved_compute(place.compute, experiments[0].config),
    )
    return SweepTask(
        tuple(replace(experiment, fit_on=directories) for experiment in experiments), there, digest
    )


def _digests(experiments: Sequence[Experiment], dataset: Dataset) -> dict[tuple[str, ...], str]:
    """Digest of the data for each choice of `fit_on`; each data set is read once."""
    own = digest_of(dataset)
    directories = dict.fromkeys(name for experiment in experiments for name in experiment.fit_on)
    of_training = {name: _training_hash(open_dataset(name)).hexdigest() for name in directories}
    choices = {experiment.fit_on for experiment in experiments}
    return {names: " ".join([own, *(of_training[n] for n in names)]) for names in choices}


def _training_hash(dataset: Dataset) -> hashlib._Hash:
    sha = hashlib.sha256()
    for clip in dataset.train_clips():
        sha.update(clip_digest(clip))
    return sha


def _engine(fitted: Fitted, compute: Compute) -> dict[str, object]:
    """The engine, the device and the precision of the training that gave a result."""
    if not isinstance(fitted, Detector) or fitted.config.scored_by == "usual":
        return {"runtime": "numpy", "device": "cpu", "precision": "float32"}
    precision = resolved_compute(compute, fitted.config).precision
    return {"runtime": fitted.engine, "device": compute.device, "precision": precision}
