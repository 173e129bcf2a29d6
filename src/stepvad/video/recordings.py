"""Many videos become track files: several at a time, and stopped with Ctrl-C."""

from __future__ import annotations

import importlib.util
import logging
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

from stepvad import executors
from stepvad.errors import MissingExtraError, Report, StepvadError
from stepvad.formats import file_stem, tracks
from stepvad.model import modelfile
from stepvad.model.engines import threads_of
from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.extract import (
    ExtractionOptions,
    ExtractionSummary,
    FrameRange,
    PartOrigin,
    Parts,
    check_origin,
    extract_file,
)
from stepvad.video.models import model_file
from stepvad.video.networks import PoseEngine
from stepvad.video.source import PICTURE_RATE, Footage, footage_digest, open_footage

logger = logging.getLogger(__name__)

RecordingState = Literal["done", "finished before", "unfinished", "failed"]


@dataclass(frozen=True, slots=True)
class FileSource:
    """A video file or a folder of pictures, and which of its frames."""

    name: str
    path: Path
    frames: FrameRange = field(default_factory=FrameRange)
    picture_rate: float = PICTURE_RATE
    """Frames per second of a folder of pictures."""

    def origin(self) -> PartOrigin:
        """What tells its poses from those of another video."""
        origin: PartOrigin = {
            "video": self.path.absolute().name,
            "digest": footage_digest(self.path),
            "frames": str(self.frames),
        }
        return {**origin, "picture_rate": self.picture_rate} if self.path.is_dir() else origin

    def open(self) -> Footage:
        """The video, under the name of the source."""
        return open_footage(self.path, camera=self.name, picture_rate=self.picture_rate)


@dataclass(frozen=True, slots=True)
class RecordingOutcome:
    """What became of a video: its track file and a summary, or an error."""

    name: str
    file: Path
    state: RecordingState
    summary: ExtractionSummary | None = None
    error: StepvadError | None = None


@dataclass(frozen=True, slots=True)
class ExtractionSettings:
    """What all videos share: where the poses go, and what finds them."""

    output: Path
    detector: Path
    pose: Path
    engine: PoseEngine
    origin: PartOrigin
    options: ExtractionOptions

    @classmethod
    def with_networks(
        cls,
        output: Path,
        networks: tuple[str, str],
        engine: PoseEngine,
        options: ExtractionOptions | None = None,
    ) -> ExtractionSettings:
        """The settings with the files of a detector and a pose network, and their checksums.

        Files that are missing are downloaded.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise MissingExtraError("extract", "video")
        options = options or ExtractionOptions()
        files = model_file(networks[0]), model_file(networks[1])
        origin: PartOrigin = {
            "detector": modelfile.sha256(files[0]),
            "pose": modelfile.sha256(files[1]),
            "engine": str(engine),
            "min_confidence": options.min_confidence,
            "rate": options.rate,
        }
        return cls(output, *files, engine, origin, options)

    def file(self, name: str) -> Path:
        """The track file of a video."""
        return self.output / f"{name}.parquet"


def open_sources(
    videos: Sequence[str], frames: FrameRange, *, picture_rate: float = PICTURE_RATE
) -> list[FileSource]:
    """The files and folders that a command line names, each by a name of its own."""
    sources = [_file_source(video, frames, picture_rate) for video in videos]
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StepvadError(
            f"{twice}: expected videos of distinct names, got two of it",
            hint="extract them into different directories",
        )
    return sources


def extract_all(
    sources: Sequence[FileSource],
    settings: ExtractionSettings,
    *,
    jobs: int | None,
    report: Report,
) -> list[RecordingOutcome]:
    """Extract the poses of all videos, in the order given; one that fails does not stop others."""
    settings.output.mkdir(parents=True, exist_ok=True)
    outcomes = {source.name: _finished(source, settings) for source in sources}
    waiting = [source for source in sources if outcomes[source.name] is None]
    if waiting:
        at_once = min(len(waiting), jobs or executors.usable_cores())
        estimators: SimpleQueue[PoseEstimator] = SimpleQueue()
        for _ in range(at_once):
            estimators.put(
                open_estimator(
                    settings.detector,
                    settings.pose,
                    runtime=settings.engine,
                    threads=max(threads_of(None) // at_once, 1),
                )
            )
        options = replace(settings.options, report=report)
        found = _in_threads(waiting, replace(settings, options=options), estimators, at_once)
        outcomes |= {outcome.name: outcome for outcome in found}
    return [outcome for outcome in outcomes.values() if outcome is not None]


def _in_threads(
    sources: Sequence[FileSource],
    settings: ExtractionSettings,
    estimators: SimpleQueue[PoseEstimator],
    jobs: int,
) -> list[RecordingOutcome]:
    """Every source in a thread: the networks compute outside of Python, side by side."""
    stop = settings.options.stop

    def work(source: FileSource) -> RecordingOutcome:
        estimator = estimators.get()
        try:
            return _outcome(source, settings, estimator)
        finally:
            estimators.put(estimator)

    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(work, source) for source in sources]
        try:
            # In turns: a signal that another thread receives does not wake this one.
            while wait(running, timeout=0.2).not_done:
                pass
        except KeyboardInterrupt:
            stop.set()
            logger.info("stopping; poses so far are kept")
            wait(running)
        finally:
            stop.set()
    return [future.result() for future in running]


def _outcome(
    source: FileSource, settings: ExtractionSettings, estimator: PoseEstimator
) -> RecordingOutcome:
    file, options = settings.file(source.name), settings.options
    if options.stop.is_set():
        return RecordingOutcome(source.name, file, "unfinished")
    try:
        origin = {**source.origin(), **settings.origin}
        with Parts(_parts_directory(file), origin) as parts:
            try:
                extraction = extract_file(
                    source.open(), estimator, parts, options, frames=source.frames
                )
            except StepvadError:
                if parts.latest is None:
                    parts.remove()
                raise
            if extraction is None:
                return RecordingOutcome(source.name, file, "unfinished")
            tracks.write([extraction.clip], file, origin=origin)
            parts.remove()
    except StepvadError as error:
        return RecordingOutcome(source.name, file, "failed", error=error)
    return RecordingOutcome(source.name, file, "done", extraction.summary)


def _finished(source: FileSource, settings: ExtractionSettings) -> RecordingOutcome | None:
    """A video whose poses are there already, of the same origin."""
    file = settings.file(source.name)
    if not file.exists():
        return None
    check_origin(tracks.read_origin(file), {**source.origin(), **settings.origin}, file)
    if _parts_directory(file).is_dir():  # killed after the file was written
        shutil.rmtree(_parts_directory(file))
    return RecordingOutcome(source.name, file, "finished before")


def _file_source(video: str, frames: FrameRange, picture_rate: float) -> FileSource:
    """A file or a folder; the name of a part of it tells which."""
    if "://" in video:  # not repeated, since it may hold a password
        raise StepvadError(
            "videos: expected files and folders, got the address of a camera",
            hint="a site keeps the poses of its cameras: record = true, and stepvad watch",
        )
    path = Path(video)
    name = path.absolute().name if path.is_dir() else path.stem
    if frames != FrameRange():
        name += f"-{frames.first}-{'end' if frames.end is None else frames.end}"
    return FileSource(file_stem(name), path, frames, picture_rate)


def _parts_directory(file: Path) -> Path:
    return file.with_name(f".{file.stem}.parts")
