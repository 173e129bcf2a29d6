"""Read folders of pictures as if they were videos."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepvad.errors import DataError, os_reason
from stepvad.video.source import BOUNDED, UNDECODED, Decoder, DecodeStats, Frame, pyav

logger = logging.getLogger(__name__)

PICTURE_RATE = 25.0
"""Frames per second of a folder of pictures, unless stated."""

MAX_BYTES = 1 << 28
"""Largest picture file: more than an uncompressed 8K picture takes."""

CODECS = {".jpg": "mjpeg", ".jpeg": "mjpeg", ".png": "png"}
"""Decoders by suffix."""

HINT = "put the pictures of one recording into a folder: frame_0001.jpg, frame_0002.jpg, …"

_DIGITS = re.compile(r"(\d+)")


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
        self.duration_s: float | None = len(self._files) / fps
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
            decoded = counts.decoded
            for _, image in decoder.pictures(_Coded(file)):
                pts = number / (self.fps or PICTURE_RATE)
                yield Frame(self.camera, number, pts, time.time(), image, epoch)
            if counts.decoded == decoded:
                logger.warning("%s: expected a picture, got a file %s", file, UNDECODED)
        if counts.skipped and not counts.decoded:
            raise DataError(
                f"{self.path}: expected pictures, got {counts.skipped} that are {UNDECODED}",
                hint="open one of them to see whether it is intact",
            )


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
            hint=HINT,
        )
    series = sorted({_DIGITS.sub("#", file.name) for file in files})
    if len(series) > 1:
        raise DataError(
            f"{folder}: expected one series of pictures, got {len(series)}: "
            f"{', '.join(series[:3])}{', …' if len(series) > 3 else ''} (# is a number)",
            hint=HINT,
        )
    return sorted(files, key=_numbers)


def folder_digest(folder: Path) -> str:
    """Fingerprint of a folder: hash of its pictures' names and sizes, and of both ends."""
    files = picture_files(folder)
    sha = hashlib.sha256()
    for file in files:
        sha.update(f"{file.name}\0{file.stat().st_size}\0".encode())
    for file in (files[0], files[-1]):
        sha.update(_content(file))
    return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class _Coded:
    """A picture file in the manner of a packet: it can be decoded."""

    file: Path

    def decode(self) -> list[Any]:
        """The frame, without a demuxer that could follow references to other files."""
        av = pyav()
        codec = av.CodecContext.create(CODECS[self.file.suffix.lower()], "r")
        # Without explode FFmpeg completes a truncated JPEG with grey.
        codec.options = BOUNDED | {"err_detect": "explode"}
        content = _content(self.file)
        if not content:
            raise ValueError("an empty file")
        return [*codec.decode(av.Packet(content)), *codec.decode(None)][:1]


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MAX_BYTES)


def _numbers(file: Path) -> tuple[list[int], str]:
    """Sorting key within a series: the numbers in the name, then the name for equal ones."""
    return [int(digits) for digits in _DIGITS.findall(file.name)], file.name
