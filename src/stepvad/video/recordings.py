"""Many videos and cameras become track files: several at a time, and stopped with Ctrl-C."""

from __future__ import annotations

import csv
import importlib.util
import logging
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Literal
from urllib.parse import urlsplit

from stepvad import executors
from stepvad.errors import DataError, MissingExtraError, Report, StepvadError
from stepvad.files import replacing
from stepvad.formats import file_stem, tracks
from stepvad.model import modelfile
from stepvad.model.engines import threads_of
from stepvad.video.camera import PREFIXES, Camera, Device, device_of
from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.extract import (
    Extraction,
    ExtractionOptions,
    ExtractionSummary,
    FrameRange,
    PartOrigin,
    Parts,
    Times,
    check_origin,
    extract_camera,
    extract_file,
    remove_parts,
)
from stepvad.video.models import model_file
from stepvad.video.networks import PoseEngine
from stepvad.video.source import PICTURE_RATE, Footage, footage_digest, open_footage
from stepvad.video.url import CameraTls, Url

logger = logging.getLogger(__name__)

RecordingState = Literal["done", "finished before", "unfinished", "failed"]

_CAMERA = re.compile(r"(?:([\w.-]+)=)?(.*://.*)", re.DOTALL)
"""Whatever may be an address: one that is wrong must not be shown as if it were a path."""

_ATTACHED = re.compile(rf"(?:([\w.-]+)=)?((?:{'|'.join(PREFIXES)}).*)", re.DOTALL)
"""An attached camera, with or without a name."""


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
class CameraSource:
    """A camera by name."""

    name: str
    url: Url | Device

    def origin(self) -> PartOrigin:
        """Its name: an address may tell too much."""
        return {"camera": self.name}


RecordingSource = FileSource | CameraSource


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
    min_confidence: float
    follow: bool
    rate: float | None
    duration_s: float | None
    origin: PartOrigin
    stop: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def with_networks(
        cls,
        output: Path,
        networks: tuple[str, str],
        *,
        engine: PoseEngine,
        min_confidence: float,
        follow: bool = True,
        rate: float | None = None,
        duration_s: float | None,
    ) -> ExtractionSettings:
        """The settings with the files of a detector and a pose network, and their checksums.

        Files that are missing are downloaded.
        """
        if importlib.util.find_spec("pyarrow") is None:
            raise MissingExtraError("extract", "video")
        files = model_file(networks[0]), model_file(networks[1])
        origin: PartOrigin = {
            "detector": modelfile.sha256(files[0]),
            "pose": modelfile.sha256(files[1]),
            "engine": str(engine),
            "min_confidence": min_confidence,
            "follow": "last pose" if follow else None,
            "rate": rate,
        }
        return cls(output, *files, engine, min_confidence, follow, rate, duration_s, origin)

    def file(self, name: str) -> Path:
        """The track file of a video."""
        return self.output / f"{name}.parquet"


def open_sources(
    videos: Sequence[str],
    credentials: Path | None,
    *,
    frames: FrameRange,
    duration_s: float | None,
    tls: CameraTls | None = None,
    picture_rate: float = PICTURE_RATE,
) -> list[RecordingSource]:
    """The files and cameras that the words of a command line name, each by a name of its own."""
    sources: list[RecordingSource] = []
    for video in videos:
        if attached := _ATTACHED.fullmatch(video):
            device = device_of(attached[2])
            sources.append(CameraSource(attached[1] or _device_name(device), device))
        elif camera := _CAMERA.fullmatch(video):
            url = Url(camera[2], credentials=credentials, tls=tls)
            sources.append(CameraSource(camera[1] or _camera_name(url), url))
        else:
            sources.append(_file_source(Path(video), frames, picture_rate))
    _check_names(sources)
    cameras = sum(isinstance(source, CameraSource) for source in sources)
    if cameras and frames != FrameRange():
        raise StepvadError(
            "frames: expected video files only, got a camera",
            hint="end a camera with --duration, or with Ctrl-C",
        )
    if not cameras and (duration_s is not None or credentials is not None):
        raise StepvadError(
            "duration and credentials: expected a camera, got video files only",
            hint="choose a part of a video with --frames",
        )
    return sources


def extract_all(
    sources: Sequence[RecordingSource],
    settings: ExtractionSettings,
    *,
    jobs: int | None,
    threads: int | None = None,
    report: Report,
) -> list[RecordingOutcome]:
    """Extract the poses of all videos, in the order given; one that fails does not stop others."""
    settings.output.mkdir(parents=True, exist_ok=True)
    outcomes = {source.name: _finished(source, settings) for source in sources}
    waiting = [source for source in sources if outcomes[source.name] is None]
    waiting.sort(key=lambda source: isinstance(source, FileSource))  # cameras do not wait
    if waiting:
        at_once = _jobs(waiting, jobs)
        share = max(threads_of(threads) // (1 if threads else at_once), 1)
        estimators: SimpleQueue[PoseEstimator] = SimpleQueue()
        for _ in range(at_once):
            estimators.put(
                open_estimator(
                    settings.detector, settings.pose, runtime=settings.engine, threads=share
                )
            )
        found = _in_threads(waiting, settings, estimators, at_once, report)
        outcomes |= {outcome.name: outcome for outcome in found}
    return [outcome for outcome in outcomes.values() if outcome is not None]


def _in_threads(
    sources: Sequence[RecordingSource],
    settings: ExtractionSettings,
    estimators: SimpleQueue[PoseEstimator],
    jobs: int,
    report: Report,
) -> list[RecordingOutcome]:
    """Every source in a thread: the networks compute outside of Python, side by side."""

    def work(source: RecordingSource) -> RecordingOutcome:
        estimator = estimators.get()
        try:
            return _outcome(source, settings, estimator, report)
        finally:
            estimators.put(estimator)

    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(work, source) for source in sources]
        try:
            # In turns: a signal that another thread receives does not wake this one.
            while wait(running, timeout=0.2).not_done:
                pass
        except KeyboardInterrupt:
            settings.stop.set()
            logger.info("stopping; poses so far are kept")
            wait(running)
        finally:
            settings.stop.set()
    return [future.result() for future in running]


def _outcome(
    source: RecordingSource, settings: ExtractionSettings, estimator: PoseEstimator, report: Report
) -> RecordingOutcome:
    file = settings.file(source.name)
    if settings.stop.is_set():
        return RecordingOutcome(source.name, file, "unfinished")
    try:
        origin = {**source.origin(), **settings.origin}
        is_camera = isinstance(source, CameraSource)
        with Parts(_parts_directory(file), origin, is_camera=is_camera) as parts:
            try:
                extraction = _extract(source, settings, estimator, parts, report)
            except StepvadError:
                if parts.latest is None:
                    parts.remove()
                raise
            if extraction is None:
                return RecordingOutcome(source.name, file, "unfinished")
            tracks.write([extraction.clip], file, origin=origin)
            if is_camera:
                _write_times(extraction.times, file.with_suffix(".times.csv"))
            parts.remove()
    except StepvadError as error:
        return RecordingOutcome(source.name, file, "failed", error=error)
    return RecordingOutcome(source.name, file, "done", extraction.summary)


def _extract(
    source: RecordingSource,
    settings: ExtractionSettings,
    estimator: PoseEstimator,
    parts: Parts,
    report: Report,
) -> Extraction | None:
    options = ExtractionOptions(
        min_confidence=settings.min_confidence,
        follow=settings.follow,
        rate=settings.rate,
        stop=settings.stop,
        report=report,
    )
    match source:
        case FileSource():
            return extract_file(source.open(), estimator, parts, options, frames=source.frames)
        case CameraSource():
            if isinstance(source.url, Device):
                source.url.probe()  # a camera that is not there now was probably misspelt
            camera = Camera(source.name, source.url)
            return extract_camera(camera, estimator, parts, options, duration_s=settings.duration_s)


def _finished(source: RecordingSource, settings: ExtractionSettings) -> RecordingOutcome | None:
    """A video whose poses are there already, of the same origin."""
    file = settings.file(source.name)
    if not file.exists():
        return None
    if isinstance(source, CameraSource):
        raise DataError(
            f"{file}: expected a new file for what the camera sees now, got one that exists",
            hint="choose another output directory, or another name: NAME=rtsp://…",
        )
    check_origin(tracks.read_origin(file), {**source.origin(), **settings.origin}, file)
    if _parts_directory(file).is_dir():  # killed after the file was written
        remove_parts(_parts_directory(file))
    return RecordingOutcome(source.name, file, "finished before")


def _jobs(sources: Sequence[RecordingSource], jobs: int | None) -> int:
    cameras = sum(isinstance(source, CameraSource) for source in sources)
    if jobs is None:
        return max(min(len(sources), executors.usable_cores()), cameras)
    if jobs < cameras:
        raise StepvadError(
            f"jobs: expected at least {cameras}, one for each camera, got {jobs}",
            hint="leave it out",
        )
    return min(jobs, len(sources))


def _file_source(path: Path, frames: FrameRange, picture_rate: float) -> FileSource:
    """A file or a folder; the name of a part of it tells which."""
    name = path.absolute().name if path.is_dir() else path.stem
    if frames != FrameRange():
        name += f"-{frames.first}-{'end' if frames.end is None else frames.end}"
    return FileSource(file_stem(name), path, frames, picture_rate)


def _camera_name(url: Url) -> str:
    """Host and path of an address; without the path where that holds settings, or passwords."""
    parts = urlsplit(str(url))
    path = "" if "=" in parts.path else parts.path
    return re.sub(r"[^\w.-]+", "-", f"{parts.hostname}{path}").strip("-.")


def _device_name(device: Device) -> str:
    """The last part of a device's file."""
    return re.sub(r"[^\w.-]+", "-", device.file.rpartition("/")[2]).strip("-.")


def _check_names(sources: Sequence[RecordingSource]) -> None:
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StepvadError(
            f"{twice}: expected videos of distinct names, got two of it",
            hint="extract them into different directories, or name cameras: NAME=rtsp://…",
        )


def _parts_directory(file: Path) -> Path:
    return file.with_name(f".{file.stem}.parts")


def _write_times(times: Times, path: Path) -> None:
    """When each frame of a camera was, as CSV: seconds in the stream and since 1970."""
    with replacing(path, DataError) as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["frame", "connection", "stream_s", "clock_s"])
        columns = (times.number, times.epoch, times.pts, times.wall)
        for number, epoch, pts, wall in zip(*(c.tolist() for c in columns), strict=True):
            writer.writerow([int(number), int(epoch), f"{pts:.6f}", f"{wall:.6f}"])
