"""Read the frames of video files, and handle broken media."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepvad.errors import DataError, MissingExtraError, os_reason
from stepvad.video.pixels import Image

HINT = "play the file to see whether it is whole, or convert it to MP4 with H.264, 8K at most"

MAX_PIXELS = 8192 * 4320
"""Pixels of the largest frame: 8K, 100 MB decoded; larger ones are rejected before allocation."""

BOUNDED = {"max_pixels": str(MAX_PIXELS)}
"""FFmpeg's option for `MAX_PIXELS`, for both probing and decoding."""

FILE_TIMEOUT_S = 30.0
"""Timeout of one read from a file, however broken."""

UNDECODED = f"damaged, or larger than {MAX_PIXELS / 1e6:.0f} megapixels"
"""Why a frame may fail to decode; FFmpeg does not report which."""

PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<?xml", b"<MPD", b"v=0")
"""First bytes of files that refer to other files, which FFmpeg would wait for."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One decoded frame of a camera or a file.

    `number` counts the decoded frames of the source from 0; `pts` is the time in the stream. The
    time of decoding is `wall` on the wall clock, for timestamps, and `arrived` on the monotonic
    clock, for ages, since the wall clock may jump. All times are in seconds. `epoch` counts from 0
    how often the source was opened; there is a gap between any two epochs. `image` is RGB,
    `(H, W, 3)`.
    """

    camera: str
    number: int
    pts: float | None
    wall: float
    image: Image
    epoch: int
    arrived: float = field(default_factory=time.monotonic)

    @property
    def age_s(self) -> float:
        """Seconds since it was decoded."""
        return time.monotonic() - self.arrived


@dataclass(slots=True)
class DecodeStats:
    """Counters of a stream: frames decoded, frames lost to errors, changes of resolution."""

    decoded: int = 0
    skipped: int = 0
    resolution_changes: int = 0


class Picture(NamedTuple):
    """A decoded image and its time in the stream."""

    pts: float | None
    image: Image


class VideoFile:
    """The frames of a video file; every iteration reopens it and starts a new epoch.

    Raises `DataError` if the file holds no video. Frames that fail to decode are skipped and
    counted.
    """

    def __init__(self, path: Path | str, *, camera: str | None = None) -> None:
        self.path = Path(path)
        self.camera = self.path.stem if camera is None else camera
        self._counts = DecodeStats()
        self._epoch = -1
        with _opened(self.path) as container:
            stream = video_stream(container, str(self.path))
            rate = stream.average_rate or stream.guessed_rate
            self.fps = float(rate) if rate else None
            self.n_frames: int | None = stream.frames or None
            self.duration_s = _duration_s(container, stream)

    @property
    def counts(self) -> DecodeStats:
        """The counters of the latest iteration so far."""
        return replace(self._counts)

    def __repr__(self) -> str:
        return f"VideoFile({str(self.path)!r}, fps={self.fps}, n_frames={self.n_frames})"

    def __iter__(self) -> Iterator[Frame]:
        self._epoch += 1
        self._counts = counts = DecodeStats()
        return self._frames(self._epoch, counts)

    def since(self, first: int) -> Iterator[Frame]:
        """The frames from number `first` on; earlier ones are decoded all the same."""
        return (frame for frame in self if frame.number >= first)

    def _frames(self, epoch: int, counts: DecodeStats) -> Iterator[Frame]:
        """The frames of one pass through the file."""
        decoder = Decoder(counts)
        with _opened(self.path) as container:
            stream = video_stream(container, str(self.path))
            stream.thread_type = "AUTO"
            for packet in _packets(container, stream, counts):
                for pts, image in decoder.pictures(packet):
                    number = counts.decoded - 1
                    yield Frame(self.camera, number, pts, time.time(), image, epoch)
        if counts.decoded == 0:
            raise DataError(
                f"{self.path}: expected at least one frame, got none and {counts.skipped} errors: "
                f"{UNDECODED}",
                hint=HINT,
            )


class Decoder:
    """Decodes packets to images and counts errors."""

    def __init__(self, counts: DecodeStats) -> None:
        self._counts = counts
        self._shape: tuple[int, ...] | None = None
        self._errors = decoding_errors()

    def pictures(self, packet: Any) -> Iterator[Picture]:
        """Yield the images that a packet completes; none if it is broken."""
        try:
            frames = packet.decode()
        except EOFError:
            return
        except self._errors:
            self._counts.skipped += 1
            return
        for frame in frames:
            picture = self._picture(frame)
            if picture is None:
                self._counts.skipped += 1
            else:
                self._count(picture.image.shape)
                yield picture

    def _picture(self, frame: Any) -> Picture | None:
        """The image of a frame, rotated upright; None if it is damaged or too large."""
        if frame.is_corrupt or frame.width * frame.height > MAX_PIXELS:
            return None
        try:
            image = frame.to_ndarray(format="rgb24")
        except self._errors:
            return None
        quarters = round(getattr(frame, "rotation", 0) / 90) % 4
        if quarters:
            image = np.ascontiguousarray(np.rot90(image, quarters))
        return Picture(None if frame.time is None else float(frame.time), image)

    def _count(self, shape: tuple[int, ...]) -> None:
        self._counts.decoded += 1
        self._counts.resolution_changes += self._shape not in (None, shape)
        self._shape = shape


def pyav() -> Any:
    """Import PyAV, or raise an error that names the missing extra."""
    try:
        import av
        import av.logging
    except ImportError as error:
        raise MissingExtraError("video", "video") from error
    return av


def decoding_errors() -> tuple[type[Exception], ...]:
    """Exceptions that PyAV raises on broken media."""
    return (pyav().FFmpegError, OSError, ValueError, RuntimeError)


def video_stream(container: Any, name: str, *, hint: str = HINT) -> Any:
    """The first video stream of a container, with the frame size limited to `MAX_PIXELS`.

    Raises `DataError` for audio only or a still image. Larger frames anywhere in the stream fail
    to decode.
    """
    kind = container.format.name
    if kind == "image2" or kind.endswith("_pipe"):
        raise DataError(f"{name}: expected a video, got a still image ({kind})", hint=hint)
    if not container.streams.video:
        held = ", ".join(stream.type for stream in container.streams) or "nothing"
        raise DataError(f"{name}: expected a video stream, got {held}", hint=hint)
    stream = container.streams.video[0]
    stream.codec_context.options = dict(BOUNDED)
    return stream


def _opened(path: Path) -> Any:
    """Open the container of a file."""
    av = pyav()
    check_file(path)
    try:
        # Absolute, or FFmpeg could read the path as a protocol; network access is disabled.
        return av.open(
            str(path.absolute()),
            options={"protocol_whitelist": "file"} | BOUNDED,
            timeout=FILE_TIMEOUT_S,
        )
    except decoding_errors() as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: expected a video file, got: {reason}", hint=HINT) from None


def check_file(path: Path) -> None:
    """Raise if a path is clearly not a video file, before FFmpeg tries to interpret it."""
    got = ""
    try:
        if path.is_dir():
            got = "a directory"
        elif not path.is_file():
            got = "a device" if path.exists() else "no file"
        elif path.stat().st_size == 0:
            got = "an empty file"
        else:
            with path.open("rb") as file:
                if file.read(16).lstrip(b"\xef\xbb\xbf").startswith(PLAYLISTS):
                    got = "a playlist"
    except OSError as error:
        got = os_reason(error)
    if got:
        raise DataError(f"{path}: expected a video file, got {got}", hint="check the path")


def _packets(container: Any, stream: Any, counts: DecodeStats) -> Iterator[Any]:
    """Yield the packets of a stream until its end or the first unreadable position."""
    try:
        yield from container.demux(stream)
    except decoding_errors():
        counts.skipped += 1


def _duration_s(container: Any, stream: Any) -> float | None:
    """Duration according to the header, if it has one."""
    if stream.duration is not None and stream.time_base:
        return float(stream.duration * stream.time_base)
    return None if container.duration is None else container.duration / pyav().time_base
