"""Score one shard of an archive into one score file."""

from __future__ import annotations

import ctypes
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import chain, groupby
from pathlib import Path

from stepvad import skeletons
from stepvad.archive.layout import ArchiveShard
from stepvad.archive.rowcheck import RowCheck
from stepvad.archive.scorefacts import ClipWindows, InputFacts, ScoreFacts, ScoreIdentity
from stepvad.archive.scorefile import ClipScores, ScoreFileWriter, read_facts, writing
from stepvad.archive.storage import Directory
from stepvad.config import Engine
from stepvad.detector import Detector
from stepvad.errors import DataError, StepvadError
from stepvad.formats import tracks
from stepvad.formats.tracks import ClipFacts
from stepvad.model.footage import BATCH
from stepvad.supervision.limits import limited_memory
from stepvad.windows import Repairs, Sampling, WindowIndex
from stepvad.windows.cutting import in_pieces
from stepvad.windows.runs import runs_of

MEMORY_BYTES = 1 << 32
"""Memory that a worker may take for a shard: a small file can claim any size."""
KEPT_BYTES = 1 << 25
"""The largest threshold glibc accepts."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all shards of a run share."""

    poses: Directory
    scores: Directory
    model: Path
    model_sha256: str
    engine: Engine
    energies: bool = False
    """Whether to store the energy at each noise scale beside the score."""
    quick: bool = False
    """Whether to treat pose files of the same name and size as unchanged."""

    @property
    def identity(self) -> ScoreIdentity:
        """Properties that all scores in one place must share."""
        return ScoreIdentity(self.model_sha256, self.engine, self.energies)


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


def look(task: ShardTask) -> ShardOutcome:
    """Check whether a shard has complete scores of the same poses and model."""
    job, shard = task.job, task.shard
    try:
        with job.scores.open(shard.name) as file:
            facts = read_facts(file, job.scores.named(shard.name))
        if facts.identity != job.identity:
            return ShardOutcome(shard, None)
        same = facts.inputs == _inputs(job, shard, facts.inputs if job.quick else ())
    except (StepvadError, _FileError):
        return ShardOutcome(shard, None)
    return ShardOutcome(shard, facts if same and not facts.failed else None)


def score(task: ShardTask) -> ShardOutcome:
    """Score a shard; report and skip files that cannot be scored."""
    if task.job.scores.is_shared:  # this process scores shards and nothing else
        _keep_freed_memory()
    failed: dict[str, str] = {}
    while True:
        try:
            with limited_memory(MEMORY_BYTES):
                return ShardOutcome(task.shard, _score(task, failed), failed)
        except _FileError as error:
            failed[error.name] = error.reason
        except StepvadError as error:
            return ShardOutcome(task.shard, None, dict.fromkeys(_names(task.shard), str(error)))


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


def _score(task: ShardTask, failed: dict[str, str]) -> ScoreFacts:
    """Write the scores of all files but the failed ones; return the metadata."""
    job, shard = task.job, task.shard
    detector = _detector(job.model, job.model_sha256, job.engine)
    # a file that changes from here on is scored again
    done, inputs = _Done(), _inputs(job, shard, failed=failed)
    with (
        job.scores.replacing(shard.name) as temporary,
        writing(temporary, detector.config.columns if job.energies else None) as writer,
    ):
        for name in _names(shard):
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

    def begin(self, clip: str, facts: ClipFacts | None) -> None:
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
        tracks.located(shown),
        tracks.opened(file, threads=False) as (header, parts),
    ):
        for clip, several in groupby(parts, key=lambda part: part[0]):
            tracks.check_new(clip, seen)
            facts = None if header is None else tracks.facts_of(clip, header)
            try:
                done.begin(clip, facts)
                rows = (rows for _, rows in several)
                first = next(rows)
                n_joints = first.confidence.shape[1]
                skeleton = header.skeleton if header else skeletons.of_size(n_joints)
                check = RowCheck(facts)
                checked = map(check, chain([first], rows))
                sampling = Sampling.of(detector.config, facts.fps if facts else None)
                runs = runs_of(checked, detector.config, skeleton, detector.skeleton, sampling)
                pieces = in_pieces(runs, detector.config, detector.skeleton, sampling)
                _score_clip(clip, pieces, detector, writer, done)
                done.clips[clip].n_frames = check.n_frames
            except DataError as error:
                raise error.located(f"clip {clip!r}") from error
        for clip, facts in header.clips.items() if header else ():
            if clip not in seen:
                done.begin(clip, facts)


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
            writer.add(ClipScores(clip, scores))
            done.clips[clip].windows += len(scores)
            done.flat += int(windows.flat.sum())


def _names(shard: ArchiveShard) -> list[str]:
    return [file.name for file in shard.files]


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
    if detector.model.sha256 != sha256:
        raise StepvadError(
            f"{model}: expected the model that the run started with, got another",
            hint="do not change the file during a run, and run again",
        )
    return detector
