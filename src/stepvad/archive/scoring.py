"""Score an archive: skip finished shards, report bad files, resume after a kill.

The manifest beside the scores names their model and their input files.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stepvad import executors, skeletons
from stepvad.archive import scorefile, storage
from stepvad.archive.scorefile import (
    ClipWindows,
    InputFacts,
    ScoreFacts,
    ScoreFileWriter,
    ScoreIdentity,
)
from stepvad.archive.storage import ArchiveShard, Directory
from stepvad.codec import Count, decode, to_plain
from stepvad.config import Config, Engine, Runtime
from stepvad.detector import Detector
from stepvad.errors import DataError, Progress, Report, StepvadError, silent
from stepvad.events.calibration import Calibration, find_calibration
from stepvad.executors import Executor
from stepvad.formats import tracks
from stepvad.formats.reading import located
from stepvad.formats.tracks import ClipFacts
from stepvad.model import modelfile
from stepvad.model.scoring import BATCH
from stepvad.poses import MAX_COORDINATE, MAX_FRAME, PoseRows
from stepvad.site.service import limited_memory
from stepvad.windows.body import Repairs
from stepvad.windows.runs import Sampling, WindowIndex, in_pieces, is_resampled, rate_note, runs_of

MEGABYTE = 1_000_000

MANIFEST_NAME = "manifest.json"

MEMORY_BYTES = 1 << 32
"""Memory that a worker may take for a shard: a small file can claim any size."""
KEPT_BYTES = 1 << 25
"""The largest threshold glibc accepts."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


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
    configs, engine = [view.config for view in detector.views], detector.network.engine
    job = _job(poses, scores, model, engine, options)
    plan = storage.group_shards(job.poses.files(storage.POSE_SUFFIX))
    if not plan:
        raise StepvadError(
            f"{poses}: expected pose files that end in {storage.POSE_SUFFIX}, got none",
            hint="write poses with stepvad extract, stepvad convert or a site that records",
        )
    begin_manifest(job, configs)
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
    # what no pose file stands behind any more goes; the manifest then names all that is left
    _remove_stale(job.scores, plan, there)
    finish_manifest(job, configs, kept + outcomes)
    failed: dict[str, str] = {}
    for outcome in outcomes:
        failed |= outcome.failed
    scored = sum(outcome.windows for outcome in outcomes)
    total = scored + sum(outcome.windows for outcome in kept)
    calibration = find_calibration(model, job.model_sha256)
    warnings = _rate_warnings(configs[0], calibration, kept + outcomes)
    failed = dict(sorted(failed.items()))
    return ArchiveSummary(len(plan), len(kept), total, scored, failed, warnings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(ScoreIdentity):
    """The model of the scores in a place, and their progress."""

    stepvad: str = version("stepvad")
    model: str
    views: list[dict[str, Any]]
    """The settings of the model's views, for reference."""
    state: str
    shards: dict[str, ShardEntry]
    failed: dict[str, str]
    totals: dict[str, Count] = field(init=False)
    """Sums over all shards."""
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        """Add up the shards."""
        entries = self.shards.values()
        totals = {
            "shards": len(entries),
            "files": sum(len(entry.inputs) for entry in entries),
            "clips": sum(entry.clips for entry in entries),
            "windows": sum(entry.windows for entry in entries),
        }
        object.__setattr__(self, "totals", totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntry:
    """Manifest entry of one score file."""

    inputs: tuple[InputFacts, ...]
    windows: Count
    flat_windows: Count
    counts: dict[str, Count]
    stepvad: str
    clips: Count

    @classmethod
    def from_facts(cls, facts: ScoreFacts) -> ShardEntry:
        """Build the entry from the facts of a score file."""
        return cls(
            inputs=facts.inputs,
            windows=facts.windows,
            flat_windows=facts.flat_windows,
            counts=facts.counts,
            stepvad=facts.stepvad,
            clips=len(facts.clips),
        )


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


def begin_manifest(job: Job, configs: Sequence[Config]) -> None:
    """Create the manifest of a place; reject a place with scores of another model."""
    known = read_manifest(job.scores)
    if known is None:
        _write_manifest(job, configs, {}, {}, done=False)
        return
    there = asdict(known.identity)
    for name, value in asdict(job.identity).items():
        if there[name] != value:
            raise StepvadError(
                f"{job.scores.named('').rstrip('/')}: expected scores with {name} = {value}, "
                f"got some with {there[name]}",
                hint="choose another directory for other scores",
            )


def finish_manifest(job: Job, configs: Sequence[Config], outcomes: Sequence[ShardOutcome]) -> None:
    """Write the outcomes of this run; entries of other directories are kept."""
    # entries of directories that this run looked at are replaced
    known = read_manifest(job.scores)
    now = {storage.directory_of(outcome.shard.name) for outcome in outcomes}
    shards, failed = dict[str, ShardEntry](), dict[str, str]()
    if known is not None:
        shards = {
            name: one for name, one in known.shards.items() if storage.directory_of(name) not in now
        }
        failed = {
            name: one for name, one in known.failed.items() if storage.directory_of(name) not in now
        }
    for outcome in outcomes:
        if outcome.facts is not None:
            shards[outcome.shard.name] = ShardEntry.from_facts(outcome.facts)
        failed |= outcome.failed
    _write_manifest(job, configs, shards, failed, done=True)


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
    if task.job.scores.is_shared:  # this process scores shards and nothing else
        _keep_freed_memory()
    failed: dict[str, str] = {}
    while True:
        try:
            with limited_memory(MEMORY_BYTES):
                return ShardOutcome(task.shard, _write_scores(task, failed), failed)
        except _FileError as error:
            failed[error.name] = error.reason
        except StepvadError as error:
            return ShardOutcome(task.shard, None, dict.fromkeys(task.shard.names, str(error)))


class RowCheck:
    """Checks that rows are ordered by track and frame and stay inside their clip."""

    def __init__(self, facts: ClipFacts | None) -> None:
        self.n_frames = 0 if facts is None else facts.n_frames
        """Frames of the clip; if unknown, up to its last pose so far."""
        self._is_open = facts is None
        self._last: tuple[int, int] | None = None  # track and frame

    def __call__(self, rows: PoseRows) -> PoseRows:
        """Return the rows unchanged; raise `DataError` if they are not valid tracks."""
        track, frame, keypoints = rows.track, rows.frame, rows.keypoints
        # each row after the one before it, by track and then by frame, (n - 1,)
        later = (np.diff(track) > 0) | ((np.diff(track) == 0) & (np.diff(frame) > 0))
        first = int(track[0]), int(frame[0])
        in_order = bool(later.all()) and (self._last is None or self._last < first)
        sound = keypoints.min() >= -MAX_COORDINATE and keypoints.max() <= MAX_COORDINATE
        if not (in_order and sound and frame.min() >= 0 and frame.max() <= MAX_FRAME):
            rows.tracks()  # raises a specific error, unless the order is wrong
            raise DataError(
                "expected rows sorted by track and frame, got unsorted ones",
                hint="rewrite the file with: stepvad convert",
            )
        # the clip goes on to its last pose so far, or stays within its length
        last = int(frame.max())
        if self._is_open:
            self.n_frames = max(self.n_frames, last + 1)
        elif last >= self.n_frames:
            raise DataError(
                f"expected frames below {self.n_frames}, got {last}",
                hint="frames count from 0; check the clip's length",
            )
        self._last = int(track[-1]), int(frame[-1])
        return rows


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
    """Remove scores of shards that no longer exist, in the directories of this plan."""
    names, directories = {s.name for s in plan}, {storage.directory_of(s.name) for s in plan}
    for name in sorted(there - names):
        if storage.directory_of(name) in directories:
            place.delete(name)


def _write_manifest(
    job: Job,
    configs: Sequence[Config],
    shards: dict[str, ShardEntry],
    failed: dict[str, str],
    *,
    done: bool,
) -> None:
    made = Manifest(
        model=job.model.name,
        **asdict(job.identity),
        views=[*map(asdict, configs)],
        state="done" if done else "under way",
        shards=shards,
        failed=failed,
    )
    with job.scores.replacing(MANIFEST_NAME) as temporary:
        text = json.dumps(to_plain(made), indent=1, sort_keys=True)
        temporary.write_text(text, encoding="utf-8")


@cache
def _keep_freed_memory() -> None:
    """Keep freed array memory in the process.

    Otherwise glibc returns it to the system, which clears it again: a tenth of our own time.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, 2 * KEPT_BYTES)


class _FileError(Exception):
    """One pose file of a shard that cannot be scored."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason


def _write_scores(task: ShardTask, failed: dict[str, str]) -> ScoreFacts:
    """Write the scores of all files but the failed ones; return the metadata."""
    job, shard = task.job, task.shard
    detector = _detector(job.model, job.model_sha256, job.engine)
    # a file that changes from here on is scored again
    done, inputs = _Done(), _inputs(job, shard, failed=failed)
    with (
        job.scores.replacing(shard.name) as temporary,
        ScoreFileWriter(temporary, detector.columns if job.energies else None) as writer,
    ):
        for name in shard.names:
            if name not in failed:
                with _of_file(name):
                    _score_file(job.poses, name, detector, writer, done)
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


@dataclass(slots=True)
class _Done:
    """Progress of a shard."""

    clips: dict[str, ClipWindows] = field(default_factory=dict)
    counts: Repairs = field(default_factory=Repairs)
    flat: int = 0

    def add_clip(self, clip: str, facts: ClipFacts | None) -> None:
        """Register a clip before its windows are scored."""
        if clip in self.clips:
            raise DataError(
                "expected clips of one camera and date to have distinct names, got it twice",
                hint="rename one of them",
            )
        fps, n_frames = (None, 0) if facts is None else (facts.fps, facts.n_frames)
        self.clips[clip] = ClipWindows(fps, n_frames)


def _score_file(
    place: Directory, name: str, detector: Detector, writer: ScoreFileWriter, done: _Done
) -> None:
    """Score all clips of a file in bounded memory."""
    seen: set[str] = set()
    shown = place.named(name)
    with (
        place.open(name) as file,
        located(shown),
        tracks.opened(file, threads=False) as (header, parts),
    ):
        for clip, several in groupby(parts, key=lambda part: part[0]):
            tracks.check_new(clip, seen)
            facts = None if header is None else tracks.facts_of(clip, header)
            try:
                done.add_clip(clip, facts)
                # rows, checked, to runs of consecutive frames, to pieces of windows
                rows = (rows for _, rows in several)
                first = next(rows)
                n_joints = first.confidence.shape[1]
                skeleton = header.skeleton if header else skeletons.of_size(n_joints)
                check = RowCheck(facts)
                checked = map(check, chain([first], rows))
                sampling = Sampling.for_views(detector.view_settings, facts.fps if facts else None)
                runs = runs_of(
                    checked, detector.view_settings, skeleton, detector.skeleton, sampling
                )
                pieces = in_pieces(runs, detector.view_settings, detector.skeleton, sampling)
                _score_clip(clip, pieces, detector, writer, done)
                done.clips[clip].n_frames = check.n_frames
            except DataError as error:
                raise error.located(f"clip {clip!r}") from error
        # clips that the header lists without poses
        for clip, facts in header.clips.items() if header else ():
            if clip not in seen:
                done.add_clip(clip, facts)


def _score_clip(
    clip: str,
    pieces: Iterator[tuple[WindowIndex, Repairs]],
    detector: Detector,
    writer: ScoreFileWriter,
    done: _Done,
) -> None:
    """Score the windows of a clip piece by piece."""
    for index, mended in pieces:
        done.counts += mended
        for windows in index.batches(BATCH):
            scores = detector.score_windows(windows)
            writer.append(scorefile.ClipScores(clip, scores))
            done.clips[clip].windows += len(scores)
            done.flat += int(windows.flat.sum())


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


@lru_cache(maxsize=1)
def _detector(model: Path, sha256: str, engine: Engine) -> Detector:
    """Load the model, once per process and on one thread."""
    detector = Detector.load(model, runtime=engine, threads=1)
    if detector.sha256 != sha256:
        raise StepvadError(
            f"{model}: expected the model that the run started with, got another",
            hint="do not change the file during a run, and run again",
        )
    return detector
