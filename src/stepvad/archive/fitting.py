"""A detector fitted on poses of an archive, and calibrated on files that it did not see."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from stepvad import executors
from stepvad.archive import storage
from stepvad.archive.scoring import MEGABYTE, MEMORY_BYTES
from stepvad.archive.storage import ArchiveShard, Directory, StoredFile
from stepvad.archive.trackfiles import load_detector
from stepvad.config import Config
from stepvad.detector import Detector
from stepvad.errors import DataError, Progress, Report, StepvadError, silent
from stepvad.events.calibration import (
    Calibration,
    ScoredFootage,
    calibration_path,
    write_calibration,
)
from stepvad.executors import Executor
from stepvad.formats import tracks
from stepvad.formats.reading import located
from stepvad.poses import Clip
from stepvad.site.service import limited_memory

HOLD_OUT = 3
"""One in so many blocks of each camera's files is held out, to calibrate on."""
BLOCK_FILES, BLOCKS = 5, 12
"""Most files of a block, ten minutes of a site's: people linger. Few files make smaller blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """How much to learn from, the alert budget, and where files are read and scored."""

    alerts_per_hour: float = 0.04
    megabytes: float = 200.0
    """Most pose files to fit on, and as many to calibrate on, drawn evenly from all."""
    jobs: int = 1
    executor: Executor = "processes"


DEFAULTS = FitOptions()


@dataclass(frozen=True, slots=True)
class FittedArchive:
    """A fitted detector, its calibration, and the pose files that could not be read."""

    detector: Detector
    calibration: Calibration
    failed: dict[str, str]


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Consecutive files of one camera to read and, with a model, to score."""

    place: Directory
    shard: ArchiveShard
    model: Path | None = None
    sha256: str = ""

    @property
    def camera(self) -> str:
        """The camera; without a directory of its own it is called as the place."""
        return storage.camera_of(self.shard.names[0]) or self.place.url.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Read:
    """The clips of a task or their scores, and the files that could not be read."""

    task: ReadTask
    clips: list[Clip] = field(default_factory=list)
    scored: ScoredFootage = field(default_factory=ScoredFootage)
    failed: dict[str, str] = field(default_factory=dict)


def fit(
    poses: str,
    output: Path,
    config: Config | None = None,
    options: FitOptions = DEFAULTS,
    *,
    report: Report = silent,
) -> FittedArchive:
    """Fit a detector on the poses below a path or URL and write it, with its calibration.

    Files are read and scored `jobs` shards at a time, by processes or on Ray, whose machines must
    all have access to poses and model; this process trains.
    """
    executors.check_choice(options.executor, options.jobs)
    place = Directory.at(poses)
    learned, held = hold_out(place.files(storage.POSE_SUFFIX))
    if not held:
        raise StepvadError(
            f"{poses}: expected at least {HOLD_OUT} pose files of one camera that end in "
            f"{storage.POSE_SUFFIX}, got fewer",
            hint="record more, or use stepvad fit and stepvad calibrate",
        )
    # windows by the clock, at the usual rate of the cameras
    tasks = [ReadTask(place, shard) for shard in _drawn(learned, options)]
    read, failed = _read_all(tasks, options, "reading", report)
    config = Config.footage() if config is None else config
    rates = [clip.fps for part in read for clip in part.clips if clip.fps and clip.tracks]
    if config.clock and config.fps is None and rates:
        config = replace(config, fps=statistics.mode(rates))
    # clips are dropped as soon as they are cut into runs
    clips = (clip for _ in range(len(read)) for clip in read.pop(0).clips)
    Detector.fit(clips, config, report=report).save(output)

    detector = Detector.load(output, threads=1)
    model = output.absolute(), detector.sha256
    tasks = [ReadTask(place, shard, *model) for shard in _drawn(held, options)]
    read, unread = _read_all(tasks, options, "calibrating", report)
    footage = ScoredFootage()
    footage.join(part.scored for part in read)
    calibration = footage.calibrate(detector.sha256, alerts_per_day=24 * options.alerts_per_hour)
    write_calibration(calibration, calibration_path(output))
    return FittedArchive(detector, calibration, dict(sorted((failed | unread).items())))


def hold_out(files: Sequence[StoredFile]) -> tuple[list[StoredFile], list[StoredFile]]:
    """Files to fit on and files to calibrate on: of each camera, blocks of consecutive files."""
    cameras: dict[str, list[StoredFile]] = {}
    for file in files:
        cameras.setdefault(storage.camera_of(file.name), []).append(file)
    learned, held = list[StoredFile](), list[StoredFile]()
    for own in cameras.values():
        block = min(max(len(own) // BLOCKS, 1), BLOCK_FILES)
        for number, file in enumerate(own):
            is_held = number // block % HOLD_OUT == HOLD_OUT - 1
            (held if is_held else learned).append(file)
    return learned, held


def _drawn(files: Sequence[StoredFile], options: FitOptions) -> list[ArchiveShard]:
    """Shards of about as many files as the options allow, drawn at random but always the same."""
    share = options.megabytes * MEGABYTE / max(sum(file.size for file in files), 1)
    n = max(int(len(files) * min(share, 1.0)), 1)
    drawn = np.random.default_rng(0).choice(len(files), n, replace=False)
    names = sorted((files[at] for at in drawn.tolist()), key=lambda file: file.name)
    return storage.group_shards(names)


def _read_all(
    tasks: Sequence[ReadTask], options: FitOptions, stage: str, report: Report
) -> tuple[list[Read], dict[str, str]]:
    """Run all tasks; parts are in the order of their tasks, whichever was done first."""
    if tasks[0].place.is_shared:
        done = executors.run(read, tasks, jobs=options.jobs, executor=options.executor, threads=1)
    else:
        done = map(read, tasks)  # only this process sees memory://
    parts: list[Read] = []
    for part in done:
        parts.append(part)
        report(Progress(stage, len(parts), len(tasks)))
    parts.sort(key=lambda part: part.task.shard.names[0])
    return parts, {name: reason for part in parts for name, reason in part.failed.items()}


def read(task: ReadTask) -> Read:
    """Read the clips of a task, and score them as normal footage if it has a model."""
    part, detector = Read(task), None
    if task.model is not None:
        detector = load_detector(task.model, task.sha256, "auto")
    for name in task.shard.names:
        try:
            with limited_memory(MEMORY_BYTES), located(task.place.named(name)):
                with task.place.open(name) as file:
                    clips = [*tracks.clips_in(file)]
                if detector is None:
                    part.clips.extend(clips)
                else:
                    part.scored.score(detector, task.camera, clips)
        except DataError as error:
            part.failed[name] = str(error)
    return part
