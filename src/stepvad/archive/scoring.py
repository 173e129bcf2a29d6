"""Score an archive: skip finished shards, report bad files, resume after a kill.

The manifest beside the scores names their model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from stepvad import executors
from stepvad.archive import scorefile, storage
from stepvad.archive.scorefile import (
    InputFacts,
    ScoreFacts,
    ScoreFileWriter,
    ScoreIdentity,
)
from stepvad.archive.storage import ArchiveShard, Directory
from stepvad.archive.trackfiles import Tally, load_detector, score_file
from stepvad.codec import decode, to_plain
from stepvad.config import Config, Engine, Runtime
from stepvad.detector import Detector
from stepvad.errors import DataError, Progress, Report, StepvadError, silent
from stepvad.events.calibration import Calibration, find_calibration
from stepvad.executors import Executor
from stepvad.model import modelfile
from stepvad.site.service import limited_memory
from stepvad.windows.runs import is_resampled, rate_note

MEGABYTE = 1_000_000

MANIFEST_NAME = "_manifest.json"
"""Readers of Parquet directories skip names that begin with `_`."""

MEMORY_BYTES = 1 << 32
"""Memory that a worker may take for a shard: a small file can claim any size."""


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """Summary of a scoring run."""

    shards: int
    kept: int
    """Shards whose scores already existed."""
    windows: int
    """Windows of all shards."""
    scored: int
    """Windows scored in this run."""
    failed: dict[str, str]
    """Pose files without scores, and why."""
    warnings: tuple[str, ...] = ()
    """Frame rates of the poses at which the model or its calibration does not hold, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions:
    """Options for the output and the execution of a scoring run."""

    runtime: Runtime = "auto"
    energies: bool = False
    """Also store the energy at each noise scale."""
    quick: bool = False
    """Treat pose files of the same name and size as unchanged."""
    jobs: int = 1
    executor: Executor = "processes"


DEFAULTS = ScoreOptions()


def score(
    poses: str,
    scores: str,
    model: Path,
    options: ScoreOptions = DEFAULTS,
    *,
    report: Report = silent,
) -> ArchiveSummary:
    """Score all poses below a path or URL into another, `jobs` shards at a time.

    Existing scores of the same poses and model are kept. After an interruption or a kill, the same
    call resumes, and its output is byte-identical to that of an uninterrupted run. Executor `ray`
    runs on the existing cluster; all its machines must have access to poses, scores and model.
    """
    executors.check_choice(options.executor, options.jobs)
    # fail early if the model cannot score
    detector = Detector.load(model, runtime=options.runtime, threads=1)
    job = _job(poses, scores, model, detector.engine, options)
    plan = storage.group_shards(job.poses.files(storage.POSE_SUFFIX))
    if not plan:
        raise StepvadError(
            f"{poses}: expected pose files that end in {storage.POSE_SUFFIX}, got none",
            hint="write poses with stepvad extract, stepvad convert or a site that records",
        )
    check_manifest(job)
    views = [asdict(view.config) for view in detector.views]
    under_way = Manifest(
        **asdict(job.identity), model=model.name, views=views, state="under way", failed={}
    )
    write_manifest(under_way, job.scores)
    job.scores.remove_leftovers()
    # shards whose scores are complete stay; the rest is scored, the largest first for balance
    there = {stored.name for stored in job.scores.files(storage.POSE_SUFFIX)}
    looked = [shard for shard in plan if shard.name in there]
    run = _runner(job, options.jobs, options.executor)
    kept = [done for done in _follow(run, check_shard, looked, "checking", report) if done.facts]
    names = {outcome.shard.name for outcome in kept}
    rest = [shard for shard in plan if shard.name not in names]
    rest.sort(key=lambda shard: shard.size, reverse=True)
    outcomes = [*_follow(run, score_shard, rest, "scoring", report)]
    # what no pose file stands behind any more goes
    _remove_stale(job.scores, plan, there)
    failed = dict(sorted(chain.from_iterable(outcome.failed.items() for outcome in outcomes)))
    write_manifest(replace(under_way, state="done", failed=failed), job.scores)
    scored = sum(outcome.windows for outcome in outcomes)
    total = scored + sum(outcome.windows for outcome in kept)
    calibration = find_calibration(model, job.model_sha256)
    warnings = _rate_warnings(detector.config, calibration, kept + outcomes)
    return ArchiveSummary(len(plan), len(kept), total, scored, failed, warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(ScoreIdentity):
    """The model of all scores in a place; score files themselves name their inputs."""

    stepvad: str = version("stepvad")
    model: str
    views: list[dict[str, Any]]
    """The settings of the model's views, for reference."""
    state: Literal["under way", "done"]
    failed: dict[str, str]
    """Pose files without scores after the latest run, and why."""
    format: Literal[1] = 1


def read_manifest(place: Directory) -> Manifest | None:
    """Read the manifest of a place; None if it has none."""
    text = place.read_small(MANIFEST_NAME)
    if text is None:
        return None
    try:
        return decode(Manifest, text, "manifest")
    except DataError as error:
        raise DataError(
            f"{place.named(MANIFEST_NAME)}: expected a manifest of archive score, format "
            f"{scorefile.FORMAT}, got another file ({error.problem})",
            hint="choose another directory for scores",
        ) from error


def check_manifest(job: Job) -> None:
    """Reject a place with scores of another model."""
    known = read_manifest(job.scores)
    if known is None:
        return
    there = asdict(known.identity)
    for name, value in asdict(job.identity).items():
        if there[name] != value:
            raise StepvadError(
                f"{job.scores.named('').rstrip('/')}: expected scores with {name} = {value}, "
                f"got some with {there[name]}",
                hint="choose another directory for other scores",
            )


def write_manifest(manifest: Manifest, place: Directory) -> None:
    """Write the manifest of a place."""
    with place.replacing(MANIFEST_NAME) as temporary:
        text = json.dumps(to_plain(manifest), indent=1, sort_keys=True)
        temporary.write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(ScoreIdentity):
    """What all shards of a run share."""

    poses: Directory
    scores: Directory
    model: Path
    energies: bool = False
    """Store the energy at each noise scale beside the score."""
    quick: bool = False
    """Take pose files of the same name and size for unchanged."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """One shard to check or score."""

    job: Job
    shard: ArchiveShard


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """Outcome of a shard."""

    shard: ArchiveShard
    facts: ScoreFacts | None
    """Metadata of its score file; None if there is none."""
    failed: dict[str, str] = field(default_factory=dict)
    """Pose files without scores, and why."""

    @property
    def windows(self) -> int:
        """Windows in its score file."""
        return 0 if self.facts is None else self.facts.windows


ScoreShard = Callable[[ShardTask], ShardOutcome]
Runner = Callable[[ScoreShard, Sequence[ArchiveShard]], Iterator[ShardOutcome]]


def check_shard(task: ShardTask) -> ShardOutcome:
    """Check whether a shard has complete scores of the same poses and model."""
    job, shard = task.job, task.shard
    try:
        with job.scores.open(shard.name) as file:
            facts = scorefile.read_facts(file, job.scores.named(shard.name))
        if facts.identity != job.identity:
            return ShardOutcome(shard, None)
        same = facts.inputs == _inputs(job, shard, facts.inputs if job.quick else ())
    except (StepvadError, _FileError):
        return ShardOutcome(shard, None)
    return ShardOutcome(shard, facts if same and not facts.failed else None)


def score_shard(task: ShardTask) -> ShardOutcome:
    """Score a shard; report and skip files that cannot be scored."""
    failed: dict[str, str] = {}
    while True:
        try:
            with limited_memory(MEMORY_BYTES):
                return ShardOutcome(task.shard, _write_scores(task, failed), failed)
        except _FileError as error:
            failed[error.name] = error.reason
        except StepvadError as error:
            return ShardOutcome(task.shard, None, dict.fromkeys(task.shard.names, str(error)))


def _rate_warnings(
    config: Config, calibration: Calibration | None, outcomes: Iterable[ShardOutcome]
) -> tuple[str, ...]:
    """Warnings of clips whose frame rate is neither the model's nor converted to it."""
    known = [outcome.facts.clips.values() for outcome in outcomes if outcome.facts is not None]
    rates = {clip.fps for clips in known for clip in clips if clip.windows}
    notes = [rate_note(config, fps) for fps in rates if not is_resampled(config, fps)]
    if calibration is not None:
        notes += [calibration.rate_note(config, fps) for fps in rates if fps is not None]
    return tuple(sorted(filter(None, notes)))


def _job(poses: str, scores: str, model: Path, engine: Engine, options: ScoreOptions) -> Job:
    """Build the job, with absolute locations that other processes can open."""
    source, target = Directory.at(poses), Directory.at(scores)
    if f"{target.url}/".startswith(f"{source.url}/"):
        raise StepvadError(
            f"{scores}: expected a directory outside the poses, got one inside",
            hint="choose another directory for the scores",
        )
    return Job(
        poses=source,
        scores=target,
        model=model.absolute(),
        model_sha256=modelfile.sha256(model),
        engine=engine,
        energies=options.energies,
        quick=options.quick,
    )


def _runner(job: Job, jobs: int, executor: Executor) -> Runner:
    """Create a runner for shards: single-threaded processes, to keep scores bit-identical."""

    def run(work: ScoreShard, several: Sequence[ArchiveShard]) -> Iterator[ShardOutcome]:
        tasks = [ShardTask(job, shard) for shard in several]
        if not (job.poses.is_shared and job.scores.is_shared):
            return map(work, tasks)  # only this process sees memory://
        return executors.run(work, tasks, jobs=jobs, executor=executor, threads=1)

    return run


def _follow(
    run: Runner, work: ScoreShard, several: Sequence[ArchiveShard], stage: str, report: Report
) -> Iterator[ShardOutcome]:
    """Yield outcomes as they complete; report progress in megabytes of poses."""
    total, done, windows = sum(shard.size for shard in several), 0, 0
    report(Progress(stage, 0, total // MEGABYTE))
    for outcome in run(work, several):
        done += outcome.shard.size
        windows += outcome.windows
        report(Progress(stage, done // MEGABYTE, total // MEGABYTE, f"{windows:,} windows"))
        yield outcome


def _remove_stale(place: Directory, plan: Sequence[ArchiveShard], there: set[str]) -> None:
    """Remove scores of shards that no longer exist, in the partitions of this plan."""
    names, partitions = {s.name for s in plan}, {storage.partition_of(s.name) for s in plan}
    for name in sorted(there - names):
        if storage.partition_of(name) in partitions:
            place.delete(name)


class _FileError(Exception):
    """One pose file of a shard that cannot be scored."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason


def _write_scores(task: ShardTask, failed: dict[str, str]) -> ScoreFacts:
    """Write the scores of all files but the failed ones; return the metadata."""
    job, shard = task.job, task.shard
    detector = load_detector(job.model, job.model_sha256, job.engine)
    # a file that changes from here on is scored again
    done, inputs = Tally(), _inputs(job, shard, failed=failed)
    with (
        job.scores.replacing(shard.name) as temporary,
        ScoreFileWriter(temporary, detector.columns if job.energies else None) as writer,
    ):
        for name in shard.names:
            if name not in failed:
                with _of_file(name):
                    score_file(job.poses, name, detector, writer.append, done)
        facts = ScoreFacts(
            **asdict(job.identity),
            stepvad=version("stepvad"),
            inputs=inputs,
            failed=dict(sorted(failed.items())),
            clips=done.clips,
            windows=sum(clip.windows for clip in done.clips.values()),
            flat_windows=done.flat,
            counts=asdict(done.counts),
        )
        writer.close(facts)
    return facts


@contextmanager
def _of_file(name: str) -> Iterator[None]:
    """Attribute data errors to one file."""
    try:
        yield
    except DataError as error:
        raise _FileError(name, str(error)) from error


def _inputs(
    job: Job, shard: ArchiveShard, known: Sequence[InputFacts] = (), *, failed: Container[str] = ()
) -> tuple[InputFacts, ...]:
    """Name, size and digest of the pose files of a shard; digests in `known` are reused by name.

    Files in `failed` get no digest: they may not be readable.
    """
    digests = {facts.name: facts.sha256 for facts in known}
    inputs = []
    for file in shard.files:
        digest = digests.get(file.name)
        if digest is None and file.name not in failed:
            with _of_file(file.name):
                digest = job.poses.sha256(file.name)
        inputs.append(InputFacts(file.name, file.size, digest))
    return tuple(inputs)
