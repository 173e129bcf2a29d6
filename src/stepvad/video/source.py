"""Frames of video files, and what broken media does to them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stepvad.errors import DataError, MissingExtraError
from stepvad.video.pixels import Image

HINT = "play the file to see whether it is whole, or convert it to MP4 with H.264, 8K at most"

MAX_PIXELS = 8192 * 4320
"""Of one picture: 8K, and 100 MB when decoded; more is refused before it takes the memory."""

BOUNDED = {"max_pixels": str(MAX_PIXELS)}
"""FFmpeg's option for that, both where it looks at what a file holds and where it decodes."""

FILE_TIMEOUT_S = 30.0
"""Longest time for one read of a file, however broken."""

UNDECODED = f"damaged, or larger than {MAX_PIXELS / 1e6:.0f} megapixels"
"""Why a frame may not decode: FFmpeg does not say which it is."""

PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<?xml", b"<MPD", b"v=0")
"""First bytes of files that name other files, for which FFmpeg would wait."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One decoded frame of a camera or a file.

    `number` counts the decoded frames of the source from 0, `pts` is the time in the stream. The
    time of decoding is `wall` by the clock on the wall, to date what is seen, and `arrived` by the
    monotonic clock, to tell ages: the former jumps. All are in seconds. `epoch` counts from 0 how
    often the source was opened: nothing that spans two epochs was seen without a gap. `image` is
    RGB, `(H, W, 3)`.
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
class Counts:
    """What became of a stream: frames decoded, frames lost to errors, changes of resolution."""

    decoded: int = 0
    skipped: int = 0
    resolution_changes: int = 0


class Picture(NamedTuple):
    """A decoded image and its time in the stream."""

    pts: float | None
    image: Image


class VideoFile:
    """The frames of a video file; every iteration opens it anew and is an epoch of its own.

    A file that holds no video is a `DataError`. What does not decode is skipped and counted.
    """

    def __init__(self, path: Path | str, *, camera: str | None = None) -> None:
        self.path = Path(path)
        self.camera = self.path.stem if camera is None else camera
        self._counts = Counts()
        self._epoch = -1
        with _opened(self.path) as container:
            stream = video_stream(container, str(self.path))
            rate = stream.average_rate or stream.guessed_rate
            self.fps = float(rate) if rate else None
            self.n_frames: int | None = stream.frames or None
            self.duration_s = _duration_s(container, stream)

    @property
    def counts(self) -> Counts:
        """The counts of the latest iteration so far."""
        return replace(self._counts)

    def __repr__(self) -> str:
        return f"VideoFile({str(self.path)!r}, fps={self.fps}, n_frames={self.n_frames})"

    def __iter__(self) -> Iterator[Frame]:
        self._epoch += 1
        self._counts = counts = Counts()
        return self._frames(self._epoch, counts)

    def _frames(self, epoch: int, counts: Counts) -> Iterator[Frame]:
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


def open_video(path: Path | str) -> VideoFile:
    """The video in a file, ready to be iterated over."""
    return VideoFile(path)


class Decoder:
    """Packets to images, counting what goes wrong on the way."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._shape: tuple[int, ...] | None = None
        self._errors = decoding_errors()

    def pictures(self, packet: Any) -> Iterator[Picture]:
        """The images that a packet completes; none if it is broken."""
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
        """The image of a frame, upright, or nothing if it is damaged."""
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
    """The library that decodes video."""
    try:
        import av
        import av.logging
    except ImportError as error:
        raise MissingExtraError("video", "video") from error
    return av


def decoding_errors() -> tuple[type[Exception], ...]:
    """What PyAV raises when it meets broken media."""
    return (pyav().FFmpegError, OSError, ValueError, RuntimeError)


def video_stream(container: Any, name: str, *, hint: str = HINT) -> Any:
    """The video stream of a container, its pictures bounded in size.

    Sound and a still image are errors. A larger picture does not decode, wherever it comes.
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
    """The container in a file."""
    av = pyav()
    check_file(path)
    try:
        # Absolute, so that no path is taken for a protocol; nothing may reach the network.
        return av.open(
            str(path.absolute()),
            options={"protocol_whitelist": "file"} | BOUNDED,
            timeout=FILE_TIMEOUT_S,
        )
    except decoding_errors() as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: expected a video file, got: {reason}", hint=HINT) from None


def check_file(path: Path) -> None:
    """Refuse what is no video before FFmpeg makes something of it."""
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
        got = str(error.strerror)
    if got:
        raise DataError(f"{path}: expected a video file, got {got}", hint="check the path")


def _packets(container: Any, stream: Any, counts: Counts) -> Iterator[Any]:
    """The packets of a stream, up to the end or to where the file cannot be read any further."""
    try:
        yield from container.demux(stream)
    except decoding_errors():
        counts.skipped += 1


def _duration_s(container: Any, stream: Any) -> float | None:
    """How long a video is, if its header tells."""
    if stream.duration is not None and stream.time_base:
        return float(stream.duration * stream.time_base)
    return None if container.duration is None else container.duration / pyav().time_base
