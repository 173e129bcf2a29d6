"""Score an archive: skip finished shards, report bad files, resume after a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepvad import executors
from stepvad.archive import manifest, shards
from stepvad.archive.layout import SUFFIX, ArchiveShard, directory
from stepvad.archive.layout import shards as shards_of
from stepvad.archive.shards import Job, ShardOutcome, ShardTask
from stepvad.archive.storage import Directory
from stepvad.calibration import Calibration, beside
from stepvad.config import Config, Engine, Runtime
from stepvad.detector import Detector
from stepvad.errors import StepvadError
from stepvad.executors import Executor
from stepvad.model import modelfile
from stepvad.progress import Progress, Report, silent
from stepvad.windows.sampling import is_resampled, rate_note

MEGABYTE = 1_000_000


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
    executors.check(options.executor, options.jobs)
    # Fail early if the model cannot score.
    detector = Detector.load(model, runtime=options.runtime, threads=1)
    config, engine = detector.config, detector.network.engine
    job = _job(poses, scores, model, engine, options)
    plan = shards_of(job.poses.files(SUFFIX))
    if not plan:
        raise StepvadError(
            f"{poses}: expected pose files that end in {SUFFIX}, got none",
            hint="write poses with stepvad extract, stepvad convert or a site that records",
        )
    manifest.begin(job, config)
    job.scores.remove_leftovers()
    there = {stored.name for stored in job.scores.files(SUFFIX)}
    looked = [shard for shard in plan if shard.name in there]
    run = _runner(job, options.jobs, options.executor)
    kept = [done for done in _follow(run, shards.look, looked, "checking", report) if done.facts]
    names = {outcome.shard.name for outcome in kept}
    rest = [shard for shard in plan if shard.name not in names]
    rest.sort(key=lambda shard: shard.size, reverse=True)  # largest first, to balance the load
    outcomes = [*_follow(run, shards.score, rest, "scoring", report)]
    _remove_others(job.scores, plan, there)
    manifest.finish(job, config, kept + outcomes)
    failed: dict[str, str] = {}
    for outcome in outcomes:
        failed |= outcome.failed
    scored = sum(_windows(outcome) for outcome in outcomes)
    total = scored + sum(map(_windows, kept))
    warnings = _rate_warnings(config, beside.find(model, job.model_sha256), kept + outcomes)
    failed = dict(sorted(failed.items()))
    return ArchiveSummary(len(plan), len(kept), total, scored, failed, warnings)


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


ScoreShard = Callable[[ShardTask], ShardOutcome]
Runner = Callable[[ScoreShard, Sequence[ArchiveShard]], Iterator[ShardOutcome]]


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
        windows += _windows(outcome)
        report(Progress(stage, done // MEGABYTE, total // MEGABYTE, f"{windows:,} windows"))
        yield outcome


def _remove_others(place: Directory, plan: Sequence[ArchiveShard], there: set[str]) -> None:
    """Remove scores of shards that no longer exist, in the directories of this plan."""
    names, directories = {s.name for s in plan}, {directory(s.name) for s in plan}
    for name in sorted(there - names):
        if directory(name) in directories:
            place.delete(name)


def _windows(outcome: ShardOutcome) -> int:
    return 0 if outcome.facts is None else outcome.facts.windows
