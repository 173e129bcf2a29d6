"""Frames of video files and of folders of pictures; broken media are handled."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepvad.errors import DataError, MissingExtraError, os_reason

logger = logging.getLogger(__name__)

Image = NDArray[np.uint8]
"""An RGB image `(H, W, 3)`."""

HINT = "play the file to see whether it is whole, or convert it to MP4 with H.264, 8K at most"
MAX_PIXELS = 8192 * 4320
"""Pixels of the largest frame: 8K, 100 MB decoded; larger ones are rejected before allocation."""
WITH_LUMA = {
    *("yuv420p", "yuv422p", "yuv444p", "yuvj420p", "yuvj422p", "yuvj444p"),
    *("nv12", "nv21", "gray"),
}
"""Formats whose first plane is brightness, a byte a pixel; nearly all cameras send one of them."""
BOUNDED = {"max_pixels": str(MAX_PIXELS)}
"""FFmpeg's option for `MAX_PIXELS`, for both probing and decoding."""
FILE_TIMEOUT_S = 30.0
"""Timeout of one read from a file, however broken."""
UNDECODED = f"damaged, or larger than {MAX_PIXELS / 1e6:.0f} megapixels"
"""Reasons for a frame not to decode; FFmpeg does not report which."""
PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<?xml", b"<MPD", b"v=0")
"""First bytes of files that refer to other files, which FFmpeg would wait for."""

PICTURE_RATE = 25.0
"""Frames per second of a folder of pictures, unless stated."""
MAX_PICTURE_BYTES = 1 << 28
"""Largest picture file: more than an uncompressed 8K picture takes."""
CODECS = {".jpg": "mjpeg", ".jpeg": "mjpeg", ".png": "png"}
"""Decoders by suffix."""
FOLDER_HINT = "put the pictures of one recording into a folder: frame_0001.jpg, frame_0002.jpg, …"
_DIGITS = re.compile(r"(\d+)")

EDGE_BYTES = 1 << 20
"""Bytes hashed at each end of a video to distinguish it from others of the same size."""

EARLY = 0.25
"""Time by which a frame may be early, in frames of the new rate: clocks jitter."""


def open_footage(
    path: Path | str, *, camera: str | None = None, picture_rate: float = PICTURE_RATE
) -> Footage:
    """Open a video file, or a folder of pictures with `picture_rate` frames per second."""
    if Path(path).is_dir():
        return PictureFolder(path, camera=camera, fps=picture_rate)
    return VideoFile(path, camera=camera)


def footage_digest(path: Path) -> str:
    """Fingerprint of a video: hash of its size and both ends, without reading the whole file."""
    if path.is_dir():  # the names and sizes of its pictures, and both ends
        files = picture_files(path)
        sha = hashlib.sha256()
        for picture in files:
            sha.update(f"{picture.name}\0{picture.stat().st_size}\0".encode())
        for picture in (files[0], files[-1]):
            sha.update(_content(picture))
        return sha.hexdigest()
    check_file(path)
    size = path.stat().st_size
    sha = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        sha.update(file.read(EDGE_BYTES))
        file.seek(max(size - EDGE_BYTES, 0), os.SEEK_SET)
        sha.update(file.read(EDGE_BYTES))
    return sha.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One decoded frame of a camera or a file.

    `number` counts the decoded frames of the source from 0; `pts` is the time in the stream. The
    time of decoding is `wall` on the wall clock, for timestamps, and `arrived` on the monotonic
    clock, for ages, since the wall clock may jump. All times are in seconds. `epoch` counts from 0
    how often the source was opened; there is a gap between any two epochs.
    """

    camera: str
    number: int
    pts: float | None
    wall: float
    picture: Picture
    epoch: int
    arrived: float = field(default_factory=time.monotonic)

    @property
    def image(self) -> Image:
        """The image in RGB, `(H, W, 3)`, converted at the first call."""
        return self.picture.rgb()


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

    @property
    def counts(self) -> DecodeStats:
        """The counters of the latest iteration so far."""
        return replace(self._counts)

    def __repr__(self) -> str:
        return f"VideoFile({str(self.path)!r}, fps={self.fps}, n_frames={self.n_frames})"

    def __iter__(self) -> Iterator[Frame]:
        # counters of this pass alone: two iterations may overlap
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
            # a packet completes any number of frames, and what does not decode leaves a gap
            for packet in _packets(container, stream, counts):
                for picture in decoder.pictures(packet.decode):
                    number = counts.decoded - 1
                    yield Frame(self.camera, number, picture.pts, time.time(), picture, epoch)
        if counts.decoded == 0:
            raise DataError(
                f"{self.path}: expected at least one frame, got none and {counts.skipped} errors: "
                f"{UNDECODED}",
                hint=HINT,
            )


class PictureFolder:
    """The pictures of a folder as frames, in the order of the numbers in their names.

    Frames count from 0 and are 1 / `fps` seconds apart, whatever the numbers in the names are.
    Raises `DataError` unless the folder holds one series of JPEG or PNG pictures. Pictures that
    fail to decode are logged by name, skipped and counted; they leave a gap.
    """

    def __init__(
        self, path: Path | str, *, camera: str | None = None, fps: float = PICTURE_RATE
    ) -> None:
        self.path = Path(path)
        self.camera = self.path.absolute().name if camera is None else camera
        self.fps: float | None = fps
        self._files = picture_files(self.path)
        self.n_frames: int | None = len(self._files)
        self._counts = DecodeStats()
        self._epoch = -1

    @property
    def counts(self) -> DecodeStats:
        """The counters of the latest iteration so far."""
        return replace(self._counts)

    def __repr__(self) -> str:
        return f"PictureFolder({str(self.path)!r}, fps={self.fps}, n_frames={self.n_frames})"

    def __iter__(self) -> Iterator[Frame]:
        return self.since(0)

    def since(self, first: int) -> Iterator[Frame]:
        """The frames from number `first` on; earlier pictures are not read."""
        self._epoch += 1
        self._counts = counts = DecodeStats()
        return self._frames(first, self._epoch, counts)

    def _frames(self, first: int, epoch: int, counts: DecodeStats) -> Iterator[Frame]:
        decoder = Decoder(counts)
        for number, file in enumerate(self._files[first:], first):
            # the number is that of the file, whether or not those before it decoded
            decoded = counts.decoded
            for picture in decoder.pictures(partial(_decode_picture, file)):
                pts = number / (self.fps or PICTURE_RATE)
                yield Frame(self.camera, number, pts, time.time(), picture, epoch)
            if counts.decoded == decoded:
                logger.warning("%s: expected a picture, got a file %s", file, UNDECODED)
        if counts.skipped and not counts.decoded:
            raise DataError(
                f"{self.path}: expected pictures, got {counts.skipped} that are {UNDECODED}",
                hint="open one of them to see whether it is intact",
            )


Footage = VideoFile | PictureFolder


def at_rate(frames: Iterable[Frame], rate: float, fps: float | None = None) -> Iterator[Frame]:
    """At most `rate` frames per second, numbered by when they were, in frames of that rate.

    Time is that in the stream; where it is missing, frames are `fps` apart.
    """
    begin_s, latest = None, -1
    for frame in frames:
        seconds = frame.number / (fps or PICTURE_RATE) if frame.pts is None else frame.pts
        begin_s = seconds if begin_s is None else begin_s
        number = math.floor((seconds - begin_s) * rate + EARLY)
        if number > latest:
            latest = number
            yield replace(frame, number=number)


@dataclass(slots=True)
class DecodeStats:
    """Counters of a stream: frames decoded, frames lost to errors, changes of resolution."""

    decoded: int = 0
    skipped: int = 0
    resolution_changes: int = 0


class Picture:
    """A decoded image, upright, converted only when somebody asks: most frames never are."""

    def __init__(self, frame: Any) -> None:
        """`frame` is PyAV's."""
        self._frame = frame
        # phones store pictures sideways, with a rotation in quarter turns
        self._quarters = round(getattr(frame, "rotation", 0) / 90) % 4
        self._rgb: Image | None = None
        sides = (frame.height, frame.width)
        self.shape = (*(sides[::-1] if self._quarters % 2 else sides), 3)
        """Of the image in RGB, `(H, W, 3)`."""
        self.pts = None if frame.time is None else float(frame.time)

    def luma(self) -> Image:
        """Brightness `(H, W)`, without a copy where the stream has a plane of it."""
        frame = self._frame
        if frame.format.name not in WITH_LUMA:
            frame = frame.reformat(format="gray")
        # rows of the first plane, (rows, bytes a row), which may be longer than the image is wide
        plane = np.frombuffer(frame.planes[0], np.uint8).reshape(-1, frame.planes[0].line_size)
        return np.rot90(plane[: frame.height, : frame.width], self._quarters)

    def rgb(self) -> Image:
        """The image in RGB, `(H, W, 3)`."""
        if self._rgb is None:
            try:
                image = self._frame.to_ndarray(format="rgb24")
            except decoding_errors() as error:
                name = self._frame.format.name
                raise DataError(f"expected a picture, got one of {name}: {error}") from None
            self._rgb = np.ascontiguousarray(np.rot90(image, self._quarters))
        return self._rgb


class Decoder:
    """Decodes packets to pictures and counts errors."""

    def __init__(self, counts: DecodeStats) -> None:
        self._counts = counts
        self._shape: tuple[int, ...] | None = None
        self._errors = decoding_errors()

    def pictures(self, decode: Callable[[], list[Any]]) -> Iterator[Picture]:
        """Yield the pictures that `decode` completes, of a packet or a file; none if broken."""
        try:
            frames = decode()
        except EOFError:
            return
        except self._errors:
            self._counts.skipped += 1
            return
        for frame in frames:
            if frame.is_corrupt or frame.width * frame.height > MAX_PIXELS:
                self._counts.skipped += 1
            else:
                picture = Picture(frame)
                self._count(picture.shape)
                yield picture

    def _count(self, shape: tuple[int, ...]) -> None:
        self._counts.decoded += 1
        self._counts.resolution_changes += self._shape not in (None, shape)
        self._shape = shape


def picture_files(folder: Path) -> list[Path]:
    """The pictures of a folder in natural order (2 before 10).

    Raises `DataError` if there are none, or of several series; other files are ignored.
    """
    try:
        names = [file for file in folder.iterdir() if not file.name.startswith(".")]
    except OSError as error:
        raise DataError(
            f"{folder}: expected a folder of pictures, got: {os_reason(error)}",
            hint="check the path",
        ) from None
    files = [file for file in names if file.suffix.lower() in CODECS and file.is_file()]
    if not files:
        raise DataError(
            f"{folder}: expected pictures ({', '.join(CODECS)}), got none and {len(names)} other "
            f"{'entry' if len(names) == 1 else 'entries'}",
            hint=FOLDER_HINT,
        )
    # one name with the numbers left out: one series
    series = sorted({_DIGITS.sub("#", file.name) for file in files})
    if len(series) > 1:
        raise DataError(
            f"{folder}: expected one series of pictures, got {len(series)}: "
            f"{', '.join(series[:3])}{', …' if len(series) > 3 else ''} (# is a number)",
            hint=FOLDER_HINT,
        )
    return sorted(files, key=_numbers)


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


def pyav() -> Any:
    """Import PyAV, or raise an error that names the missing extra."""
    try:
        import av
        import av.logging
    except ImportError as error:
        raise MissingExtraError("video", "video") from error
    return av


def opencv(feature: str) -> Any:
    """Import OpenCV, or raise an error that names the feature and the missing extra."""
    try:
        import cv2
    except ImportError as error:
        raise MissingExtraError(feature, "video") from error
    return cv2


def decoding_errors() -> tuple[type[Exception], ...]:
    """Exceptions that PyAV raises on broken media."""
    return (pyav().FFmpegError, OSError, ValueError, RuntimeError)


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


def _packets(container: Any, stream: Any, counts: DecodeStats) -> Iterator[Any]:
    """Yield the packets of a stream until its end or the first unreadable position."""
    try:
        yield from container.demux(stream)
    except decoding_errors():
        counts.skipped += 1


def _decode_picture(file: Path) -> list[Any]:
    """The frame of a picture, without a demuxer that could follow references to other files."""
    av = pyav()
    codec = av.CodecContext.create(CODECS[file.suffix.lower()], "r")
    # Without explode FFmpeg completes a truncated JPEG with grey.
    codec.options = BOUNDED | {"err_detect": "explode"}
    content = _content(file)
    if not content:
        raise ValueError("an empty file")
    return [*codec.decode(av.Packet(content)), *codec.decode(None)][:1]


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MAX_PICTURE_BYTES)


def _numbers(file: Path) -> tuple[list[int], str]:
    """Sorting key within a series: the numbers in the name, then the name for equal ones."""
    return [int(digits) for digits in _DIGITS.findall(file.name)], file.name
